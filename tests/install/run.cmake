# SPDX-License-Identifier: Apache-2.0
# Builds the consumer against posenc, as a stranger would, and runs it.
#   HOW      find_package | pkg_config | add_subdirectory
#   TREE     the project;  BUILD  a build of it to install from;  WORK  a folder to work in
#   SHARED   ON: a shared library of its own: OWN holds the consumer that has posenc as a
#            subdirectory, and the others install from there
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
            "-DPOSENC_DISABLED_TARGETS=HWY_AVX3|HWY_SSE4|HWY_SSSE3" -DPOSENC_CUDA=OFF -DPOSENC_MPI=OFF)
set(consumer ${WORK}/consumer)
set(whole ${consumer})
if(SHARED)
  set(whole ${OWN})
  set(BUILD ${OWN}/posenc)
endif()
file(REMOVE_RECURSE ${WORK}/prefix ${WORK}/consumer ${WORK}/in_c)
if(HOW STREQUAL add_subdirectory OR SHARED)
  run(${CMAKE_COMMAND} ${options} -DBUILD_SHARED_LIBS=${SHARED} -DPOSENC_TREE=${TREE}
      -DPOSENC_INSTALL=ON -S ${TREE}/tests/install/consumer -B ${whole})
  run(${CMAKE_COMMAND} --build ${whole} --target consumer)
endif()
if(HOW STREQUAL add_subdirectory)
  set(consumer ${whole})
else()
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed --component development)
  # Moved once: nothing may remember where it was installed.
  file(RENAME ${WORK}/installed ${WORK}/prefix)
endif()

# posenc alone for the consumer, posenc::core for the program that rotates, C for one that knows no C++.
set(rotation ${consumer}/rotation)
set(in_c ${WORK}/in_c/consumer_c)
if(HOW STREQUAL pkg_config)
  file(GLOB_RECURSE pc ${WORK}/prefix/posenc.pc)
  get_filename_component(pc_dir ${pc} DIRECTORY)
  get_filename_component(lib_dir ${pc_dir} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${pc_dir})
  file(MAKE_DIRECTORY ${consumer} ${WORK}/in_c)
  function(compile compiler standard source program package)
    run(pkg-config --cflags --libs ${package})
    separate_arguments(flags UNIX_COMMAND "${RUN_OUT}")
    run(${compiler} ${standard} ${source} -o ${program} ${flags} -Wl,-rpath,${lib_dir} -Wl,--gc-sections)
  endfunction()
  set(sources ${TREE}/tests/install)
  compile(${CXX} -std=c++20 ${sources}/consumer/main.cpp ${consumer}/consumer posenc)
  compile(${CXX} -std=c++20 ${sources}/consumer/rotation.cpp ${rotation} posenc-core)
  compile(${CC} -std=c99 ${sources}/consumer_c/main.c ${in_c} posenc)
elseif(HOW STREQUAL find_package)
  run(${CMAKE_COMMAND} ${options} -DCMAKE_PREFIX_PATH=${WORK}/prefix
      -S ${TREE}/tests/install/consumer -B ${consumer})
  run(${CMAKE_COMMAND} --build ${consumer})
  run(${CMAKE_COMMAND} -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=${CC} -DCMAKE_PREFIX_PATH=${WORK}/prefix
      -S ${TREE}/tests/install/consumer_c -B ${WORK}/in_c)
  run(${CMAKE_COMMAND} --build ${WORK}/in_c)
else()
  run(${CMAKE_COMMAND} --build ${whole} --target rotation)
  set(rotation ${whole}/rotation)
  set(in_c "")
endif()
run(${consumer}/consumer)
if(NOT RUN_OUT MATCHES "posenc [0-9.]+: turned")
  message(FATAL_ERROR "the consumer said: ${RUN_OUT}")
endif()
run(${rotation})
if(NOT RUN_OUT MATCHES "posenc [0-9.]+: rotated")
  message(FATAL_ERROR "the program that rotates said: ${RUN_OUT}")
endif()
if(in_c)
  run(${in_c})
  if(NOT RUN_OUT MATCHES "posenc [0-9.]+: a plan in C")
    message(FATAL_ERROR "the consumer in C said: ${RUN_OUT}")
  endif()
endif()
