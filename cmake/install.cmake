# Installs, as component `development`, the libraries and the public headers, so that
# find_package(axonn) works, and, as component `program`, the program with its configurations,
# machine files, module files and documents. The program finds share/axonn beside its own folder.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(axonn_libraries GLOBAL PROPERTY AXONN_LIBRARIES)
install(TARGETS ${axonn_libraries} axonn_flags axonn_all EXPORT axonn
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
include(${CMAKE_CURRENT_LIST_DIR}/public-headers.cmake)
foreach(header IN LISTS axonn_public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder}
          COMPONENT development)
endforeach()
install(EXPORT axonn NAMESPACE axonn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/axonn
        COMPONENT development)
configure_package_config_file(cmake/axonn-config.cmake.in axonn-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/axonn)
write_basic_package_version_file(axonn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/axonn-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/axonn-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/axonn COMPONENT development)

install(DIRECTORY configs machines DESTINATION ${CMAKE_INSTALL_DATADIR}/axonn COMPONENT program)
set(modules ${CMAKE_INSTALL_DATADIR}/modulefiles/axonn)
install(FILES packaging/modulefiles/axonn.lua DESTINATION ${modules}
        RENAME ${PROJECT_VERSION}.lua COMPONENT program)
install(FILES packaging/modulefiles/axonn.tcl DESTINATION ${modules}
        RENAME ${PROJECT_VERSION} COMPONENT program)
install(FILES README.md CHANGELOG.md CITATION.cff CONTRIBUTING.md LICENSE
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT program)
# Beside docs what it links to, in the places of the source tree.
install(DIRECTORY docs examples slurm DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY bench/results DESTINATION ${CMAKE_INSTALL_DOCDIR}/bench COMPONENT program)
install(FILES python/axonn/checkpoint.py DESTINATION ${CMAKE_INSTALL_DOCDIR}/python/axonn
        COMPONENT program)
foreach(folder tests/emulated_gpu tests/data/text/chat_templates)
  install(FILES ${folder}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder}
          COMPONENT program)
endforeach()

# `cpack -G DEB` in a build folder: axonn and axonn-dev. scripts/package.sh builds what is released.
set(CPACK_PACKAGE_NAME axonn)
set(CPACK_PACKAGE_VENDOR "the axonn developers")
set(CPACK_PACKAGE_CONTACT "the axonn developers <axonn@localhost>" CACHE STRING
    "Maintainer of the packages, NAME <MAIL>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains large language models on any grid of devices")
set(axonn_machine ${CMAKE_SYSTEM_PROCESSOR})
if(AXONN_ARCHITECTURE STREQUAL "x86_64")
  set(axonn_machine x86-64)
elseif(AXONN_ARCHITECTURE STREQUAL "aarch64")
  set(axonn_machine "64-bit ARM")
endif()
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "The program, for any ${axonn_machine}. Every matrix product \
of a model is cut over three axes of a grid of processes, and the batch over a fourth. The same \
configuration runs on one core and on any grid, with the same losses.")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "The library, for find_package(axonn): models, optimizers \
and training loops of your own.")
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(CMAKE_CROSSCOMPILING)
  # dpkg knows this machine's packages alone; those of the sysroot are in a list.
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
  file(CONFIGURE OUTPUT cpack-arm64.cmake @ONLY CONTENT [=[
execute_process(
  COMMAND @PROJECT_SOURCE_DIR@/scripts/arm64-depends.sh
          @PROJECT_BINARY_DIR@/bin/axonn @CMAKE_SYSROOT@
  OUTPUT_VARIABLE CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS COMMAND_ERROR_IS_FATAL ANY
  OUTPUT_STRIP_TRAILING_WHITESPACE)
]=])
  set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_BINARY_DIR}/cpack-arm64.cmake)
endif()
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME axonn)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME axonn-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libdnnl-dev, libfmt-dev, libpcre2-dev, libicu-dev, libsentencepiece-dev, zlib1g-dev, \
libzstd-dev, libbz2-dev, liblzma-dev")
if(AXONN_WITH_PARQUET)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
         ", libsnappy-dev, liblz4-dev, libbrotli-dev")
endif()
if(AXONN_WITH_MPI)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS openmpi-bin)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libopenmpi-dev")
endif()
include(CPack)
