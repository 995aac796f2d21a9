# SPDX-License-Identifier: Apache-2.0
# The one clang build (POSENC_SANITIZED): clang's warnings, AddressSanitizer, UndefinedBehaviorSanitizer
# and, with POSENC_FUZZ, coverage of the library.
# What is chosen here and in src/ is about minutes.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "POSENC_SANITIZED needs clang, got ${CMAKE_CXX_COMPILER_ID}")
endif()
add_compile_options(-O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined
                    -fno-sanitize-recover=all)
add_link_options(-fsanitize=address,undefined)
