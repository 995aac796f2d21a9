# SPDX-License-Identifier: Apache-2.0
# The library, its headers, posencConfig.cmake and posenc.pc: component `development`.
include(CMakePackageConfigHelpers)
set(POSENC_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/posenc)
install(TARGETS posenc EXPORT posencTargets COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/posenc ${PROJECT_BINARY_DIR}/include/posenc
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h")
install(EXPORT posencTargets NAMESPACE posenc:: DESTINATION ${POSENC_CMAKE_DIR}
        COMPONENT development)

set(POSENC_IS_STATIC TRUE)
get_target_property(POSENC_KIND posenc TYPE)
if(POSENC_KIND STREQUAL SHARED_LIBRARY)
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

# posenc.pc finds its prefix from where it lies, so that the tree may be moved.
file(RELATIVE_PATH POSENC_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH POSENC_PC_LIBDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH POSENC_PC_INCLUDEDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/posenc.pc.in ${PROJECT_BINARY_DIR}/posenc.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/posenc.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)
