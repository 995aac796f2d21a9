# SPDX-License-Identifier: Apache-2.0
# posenc_warnings(target): what the project's own code must be free of, with gcc 12 and clang 14.
function(posenc_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                         -Woverloaded-virtual -Wimplicit-fallthrough -Wno-psabi)
  # gcc 12 warns falsely about "literal" + std::string (gcc bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  if(POSENC_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
