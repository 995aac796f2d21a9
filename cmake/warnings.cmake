# SPDX-License-Identifier: Apache-2.0
# posenc_compile_fast(): sanitizer builds compile this folder and those below it, which are no part of
# the library, without optimization: 3 s a test file in place of 7, and every check stays.
macro(posenc_compile_fast)
  if(POSENC_SANITIZED)
    add_compile_options(-O0)
  endif()
endmacro()

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

# posenc_quick_build(target [header ...]): for programs that are built oftener than they run long (tests,
# conformance runner, command line): cheap optimisation, and the headers that all their files share
# parsed once. Together they halve the time of a build from nothing.
function(posenc_quick_build target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  # gcc 12 at -O1 sees "literal" + std::string reach beyond the string (same bug).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow>")
  endif()
  if(ARGN)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()
