# SPDX-License-Identifier: Apache-2.0
# Builds the consumer against posenc, as a stranger would, and runs it.
#   HOW      find_package | pkg_config | add_subdirectory
#   TREE     the project;  BUILD  a build of it to install from;  WORK  a folder to work in
#   SHARED   ON: a shared library of its own, built in OWN, which tests share
# What is built here shows how the parts fit, not how fast they are: little optimization, few
# instruction sets.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE failed OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(failed)
    message(FATAL_ERROR "${ARGV}\n${out}")
  endif()
  set(RUN_OUT "${out}" PARENT_SCOPE)
endfunction()

set(options -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0
            -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_C_COMPILER=${CC}
            -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_C_COMPILER_LAUNCHER=${LAUNCHER}
            "-DPOSENC_DISABLED_TARGETS=HWY_AVX3|HWY_SSE4|HWY_SSSE3" -DPOSENC_CUDA=OFF)
file(REMOVE_RECURSE ${WORK}/prefix ${WORK}/consumer)
if(HOW STREQUAL add_subdirectory)
  run(${CMAKE_COMMAND} ${options} -DBUILD_SHARED_LIBS=${SHARED} -DPOSENC_TREE=${TREE}
      -S ${TREE}/tests/install/consumer -B ${WORK}/consumer)
else()
  if(SHARED)
    set(BUILD ${OWN})
    run(${CMAKE_COMMAND} ${options} -DBUILD_SHARED_LIBS=ON -DPOSENC_TESTS=OFF -DPOSENC_CLI=OFF
        -DPOSENC_BENCH=OFF -DPOSENC_EXAMPLES=OFF -DPOSENC_INSTALL=ON -S ${TREE} -B ${BUILD})
    run(${CMAKE_COMMAND} --build ${BUILD} --target posenc)
  endif()
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed --component development)
  # Moved once: nothing may remember where it was installed.
  file(RENAME ${WORK}/installed ${WORK}/prefix)
endif()

if(HOW STREQUAL pkg_config)
  file(GLOB_RECURSE pc ${WORK}/prefix/posenc.pc)
  get_filename_component(pc_dir ${pc} DIRECTORY)
  get_filename_component(lib_dir ${pc_dir} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${pc_dir})
  set(static --static)
  if(SHARED)
    set(static "")
  endif()
  run(pkg-config ${static} --cflags --libs posenc)
  separate_arguments(flags UNIX_COMMAND "${RUN_OUT}")
  file(MAKE_DIRECTORY ${WORK}/consumer)
  run(${CXX} -std=c++20 ${TREE}/tests/install/consumer/main.cpp -o ${WORK}/consumer/consumer
      ${flags} -Wl,-rpath,${lib_dir})
else()
  if(HOW STREQUAL find_package)
    run(${CMAKE_COMMAND} ${options} -DCMAKE_PREFIX_PATH=${WORK}/prefix
        -S ${TREE}/tests/install/consumer -B ${WORK}/consumer)
  endif()
  run(${CMAKE_COMMAND} --build ${WORK}/consumer --target consumer)
endif()
run(${WORK}/consumer/consumer)
if(NOT RUN_OUT MATCHES "posenc [0-9.]+: turned")
  message(FATAL_ERROR "the consumer said: ${RUN_OUT}")
endif()
