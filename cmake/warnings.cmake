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

# posenc_fewer_collections(target): gcc collects its own garbage from 128 MB on, a tenth of the time of large units. They
# take 0.5 GB at most.
function(posenc_fewer_collections target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
  endif()
endfunction()

# posenc_compile_cheaply(target): for what is built oftener than it runs long. gcc takes a third less time at -Og than at
# -O1, and half of -O3; what is compiled so runs up to a quarter longer than at -O1.
function(posenc_compile_cheaply target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
endfunction()

# posenc_quick_build(target [header ...]): for programs (tests, conformance runner, command line): cheap optimisation,
# and the headers that all their files share parsed once. Together they halve the time of a build from nothing.
function(posenc_quick_build target)
  posenc_compile_cheaply(${target})
  # gcc 12 at -O1 and -Og sees "literal" + std::string reach beyond the string (same bug).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow>")
  endif()
  if(ARGN)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# posenc_one_unit_a_folder(target [file ...]): the files of a folder are compiled as one, which takes a fifth of the time:
# headers are parsed and templates are made once. POSENC_UNITY=OFF compiles every file by itself, which is
# quicker to work with and finds includes that are missing; clang-tidy in ./test --full reads every file so.
# Folders for which POSENC_UNIT_OF_<folder> is set to the same name share a unit, and so do all of a target that has one:
# most of a small unit goes into headers.
# A local name may be that of another file's constant (-Wshadow). Files whose names are a neighbour's too are named and
# stay apart.
function(posenc_one_unit_a_folder target)
  if(NOT POSENC_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "^\\$<")
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    get_filename_component(name ${source} NAME)
    if(name IN_LIST ARGN)
      continue()
    endif()
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${source})
    get_filename_component(folder ${folder} DIRECTORY)
    if(DEFINED POSENC_UNIT_OF_${target})
      set(folder ${POSENC_UNIT_OF_${target}})
    elseif(DEFINED POSENC_UNIT_OF_${folder})
      set(folder ${POSENC_UNIT_OF_${folder}})
    endif()
    string(MAKE_C_IDENTIFIER "${folder}" group)
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
