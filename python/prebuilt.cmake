# SPDX-License-Identifier: Apache-2.0
# The targets that the module links, from a build folder of posenc that has made them: POSENC_BUILD.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(POSENC_BUILD "" CACHE PATH "A build folder of posenc, Release")
set(root ${CMAKE_CURRENT_SOURCE_DIR}/..)
if(NOT EXISTS ${POSENC_BUILD}/src/libposenc.a)
  message(FATAL_ERROR "POSENC_BUILD must be a folder where posenc is built; \"${POSENC_BUILD}\" is none")
endif()
include(${root}/cmake/warnings.cmake)
option(POSENC_WERROR "Warnings are errors" ON)
find_package(Threads REQUIRED)
find_package(hwy REQUIRED)
find_package(fmt REQUIRED)

function(posenc_archive name file)
  add_library(${name} STATIC IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${POSENC_BUILD}/${file}
    INTERFACE_INCLUDE_DIRECTORIES "${POSENC_BUILD}/include;${root}/include;${root};${root}/bench"
    INTERFACE_LINK_LIBRARIES "${ARGN}")
endfunction()
posenc_archive(posenc_core_archive src/libposenc_core.a hwy::hwy Threads::Threads)
posenc_archive(posenc_archive src/libposenc.a posenc_core_archive)
add_library(posenc::posenc ALIAS posenc_archive)
posenc_archive(posenc_report_archive src/report/libposenc_report.a posenc_archive)
add_library(posenc::report ALIAS posenc_report_archive)
posenc_archive(posenc_conformance conformance/libposenc_conformance.a posenc_report_archive)
posenc_archive(posenc_bench_lines bench/lines/libposenc_bench_lines.a posenc_report_archive)
