# Finds the libraries that the project needs. A missing library is an error that names its Debian
# package.

function(axonn_need found package)
  if(NOT ${found})
    message(FATAL_ERROR "axonn needs ${package}: apt-get install ${package}")
  endif()
endfunction()

find_package(Threads REQUIRED)
find_package(OpenMP COMPONENTS CXX QUIET)
axonn_need(OpenMP_CXX_FOUND libgomp1)
find_library(AXONN_DNNL dnnl)  # its CMake package requires OpenCL, which is not needed here
axonn_need(AXONN_DNNL libdnnl-dev)
find_package(fmt CONFIG QUIET)
axonn_need(fmt_FOUND libfmt-dev)
find_package(nlohmann_json CONFIG QUIET)
axonn_need(nlohmann_json_FOUND nlohmann-json3-dev)
find_package(tomlplusplus CONFIG QUIET)
axonn_need(tomlplusplus_FOUND libtomlplusplus-dev)
find_package(CLI11 CONFIG QUIET)
axonn_need(CLI11_FOUND libcli11-dev)
find_library(AXONN_PCRE2 pcre2-8)
axonn_need(AXONN_PCRE2 libpcre2-dev)
find_library(AXONN_ICU icuuc)
axonn_need(AXONN_ICU libicu-dev)
find_library(AXONN_SENTENCEPIECE sentencepiece)
axonn_need(AXONN_SENTENCEPIECE libsentencepiece-dev)
find_library(AXONN_ZLIB z)
axonn_need(AXONN_ZLIB zlib1g-dev)
find_library(AXONN_ZSTD zstd)
axonn_need(AXONN_ZSTD libzstd-dev)
find_path(AXONN_XXHASH xxhash.h)
axonn_need(AXONN_XXHASH libxxhash-dev)

if(AXONN_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI COMPONENTS CXX QUIET)
  if(NOT MPI_CXX_FOUND)
    message(FATAL_ERROR "AXONN_MPI is ON and no MPI was found: apt-get install libopenmpi-dev "
                        "openmpi-bin, or configure with -DAXONN_MPI=OFF")
  endif()
endif()

include(cmake/gpu.cmake)

if(AXONN_TESTS)
  find_package(GTest CONFIG QUIET)
  axonn_need(GTest_FOUND libgtest-dev)
  find_library(AXONN_SENTENCEPIECE_TRAIN sentencepiece_train)  # trains the models of tests
  axonn_need(AXONN_SENTENCEPIECE_TRAIN libsentencepiece-dev)
endif()
