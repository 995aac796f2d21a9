# SPDX-License-Identifier: Apache-2.0
# posenc::mpi: ranks of attention over several processes that are processes of MPI. POSENC_MPI: AUTO builds it where MPI is
# found, ON demands it, OFF never. (Debian: libopenmpi-dev, openmpi-bin.)
set(POSENC_BUILD_MPI OFF)
if(POSENC_MPI)
  if(POSENC_MPI STREQUAL "AUTO")
    find_package(MPI QUIET COMPONENTS C)
    if(NOT MPI_C_FOUND)
      message(STATUS "MPI not found: the target posenc::mpi and what needs it are left out")
    endif()
  else()
    find_package(MPI REQUIRED COMPONENTS C)
  endif()
  set(POSENC_BUILD_MPI ${MPI_C_FOUND})
endif()
if(POSENC_BUILD_MPI)
  add_library(posenc_mpi ${PROJECT_SOURCE_DIR}/src/mpi/mpi.cpp)
  add_library(posenc::mpi ALIAS posenc_mpi)
  set_target_properties(posenc_mpi PROPERTIES EXPORT_NAME mpi VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_link_libraries(posenc_mpi PUBLIC posenc::core PRIVATE MPI::MPI_C)
  # mpi.h without the C++ classes that MPI 3 removed, which need another library.
  target_compile_definitions(posenc_mpi PUBLIC OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  posenc_warnings(posenc_mpi)
  # Of a program that may have any number of ranks on any number of cores; root may start it (containers).
  set(POSENC_MPIRUN ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe)
endif()
