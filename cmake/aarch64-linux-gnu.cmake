# Toolchain of preset aarch64: compiles for 64-bit ARM on another machine, with Debian's cross
# compiler (package g++-aarch64-linux-gnu). scripts/arm64-sysroot.sh makes the folder of headers and
# libraries. QEMU (package qemu-user) runs what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../scripts/arm64-sysroot.sh
  OUTPUT_VARIABLE axonn_sysroot OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE axonn_failed)
if(axonn_failed)
  message(FATAL_ERROR "scripts/arm64-sysroot.sh failed, for the reason above")
endif()
set(CMAKE_SYSROOT ${axonn_sysroot})
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${axonn_sysroot})

# Open MPI: its wrapper compilers and pkg-config would tell this machine's paths.
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(axonn_mpi ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi)
set(MPI_CXX_HEADER_DIR ${axonn_mpi}/include CACHE PATH "")
set(MPI_CXX_LIB_NAMES mpi CACHE STRING "")
set(MPI_mpi_LIBRARY ${axonn_mpi}/lib/libmpi.so CACHE FILEPATH "")
