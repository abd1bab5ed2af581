# Installs the libraries, the public headers and the program, so that find_package(axonn) works.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(axonn_libraries GLOBAL PROPERTY AXONN_LIBRARIES)
install(TARGETS ${axonn_libraries} axonn_flags axonn_all EXPORT axonn
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
include(${CMAKE_CURRENT_LIST_DIR}/public-headers.cmake)
foreach(header IN LISTS axonn_public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(EXPORT axonn NAMESPACE axonn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/axonn)
configure_package_config_file(cmake/axonn-config.cmake.in axonn-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/axonn)
write_basic_package_version_file(axonn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/axonn-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/axonn-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/axonn)
