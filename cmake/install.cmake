# SPDX-License-Identifier: Apache-2.0
# The libraries, headers, posencConfig.cmake and files for pkg-config: component `development`.
include(CMakePackageConfigHelpers)
set(POSENC_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/posenc)
set(POSENC_TARGETS posenc_core)
if(BUILD_SHARED_LIBS AND POSENC_FILES)
  set(POSENC_TARGETS posenc posenc_core_interface)
elseif(POSENC_FILES)
  list(APPEND POSENC_TARGETS posenc)
endif()
if(POSENC_REPORT)
  list(APPEND POSENC_TARGETS posenc_report)
endif()
install(TARGETS ${POSENC_TARGETS} EXPORT posencTargets COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/posenc ${PROJECT_BINARY_DIR}/include/posenc
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h")
install(EXPORT posencTargets NAMESPACE posenc:: DESTINATION ${POSENC_CMAKE_DIR}
        COMPONENT development)

if(POSENC_BUILD_MPI)
  install(TARGETS posenc_mpi EXPORT posencMpiTargets COMPONENT development
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(EXPORT posencMpiTargets NAMESPACE posenc:: DESTINATION ${POSENC_CMAKE_DIR} COMPONENT development)
endif()

# What a linker of C needs beside a static library of C++.
set(POSENC_CXX_LIBRARY -lstdc++)
if(CMAKE_CXX_FLAGS MATCHES "-stdlib=libc\\+\\+")
  set(POSENC_CXX_LIBRARY -lc++)
endif()
set(POSENC_IS_STATIC TRUE)
if(BUILD_SHARED_LIBS)
  set(POSENC_IS_STATIC FALSE)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/posencConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/posencConfig.cmake
                              INSTALL_DESTINATION ${POSENC_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/posencConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/posencConfig.cmake
              ${PROJECT_BINARY_DIR}/posencConfigVersion.cmake
        DESTINATION ${POSENC_CMAKE_DIR} COMPONENT development)

# The .pc files find their prefix from where they lie, so that the tree may be moved. What a static library needs
# stands among its own: whoever asks without --static links all the same.
file(RELATIVE_PATH POSENC_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH POSENC_PC_LIBDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH POSENC_PC_INCLUDEDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
function(posenc_pc name text libs requires)
  set(POSENC_PC_NAME ${name})
  set(POSENC_PC_TEXT ${text})
  set(POSENC_PC_LIBS ${libs})
  set(POSENC_PC_REQUIRES ${requires})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/posenc.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT development)
endfunction()
set(core_text "${PROJECT_DESCRIPTION}: definitions, plans and kernels")
if(NOT BUILD_SHARED_LIBS)
  posenc_pc(posenc-core "${core_text}" "-lposenc_core ${POSENC_CXX_LIBRARY} -lm -pthread" libhwy)
  set(posenc_libs "-lposenc")
  set(posenc_requires posenc-core)
elseif(POSENC_FILES)
  posenc_pc(posenc-core "${core_text}" "" posenc)
  set(posenc_libs "-lposenc")
  set(posenc_requires "")
else()
  posenc_pc(posenc-core "${core_text}" "-lposenc_core" "")
endif()
if(POSENC_FILES)
  posenc_pc(posenc "${PROJECT_DESCRIPTION}" "${posenc_libs}" "${posenc_requires}")
endif()
