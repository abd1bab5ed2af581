# Installs the libraries, the headers and the program, so that find_package(axonn) works.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(axonn_libraries GLOBAL PROPERTY AXONN_LIBRARIES)
install(TARGETS ${axonn_libraries} axonn_flags axonn_all EXPORT axonn
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY axonn/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/axonn
        FILES_MATCHING PATTERN "*.h"
        # Excluded: the program's own headers, and those of the mpi transport, which need mpi.h.
        PATTERN "cli" EXCLUDE PATTERN "ops/cuda" EXCLUDE PATTERN "comm/mpi/mpi_*.h" EXCLUDE)
install(DIRECTORY ${PROJECT_BINARY_DIR}/include/axonn/
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/axonn
        FILES_MATCHING PATTERN "*.h" PATTERN "cuda" EXCLUDE)
install(EXPORT axonn NAMESPACE axonn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/axonn)
configure_package_config_file(cmake/axonn-config.cmake.in axonn-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/axonn)
write_basic_package_version_file(axonn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/axonn-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/axonn-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/axonn)
