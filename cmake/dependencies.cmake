# Finds the libraries that the project needs. A missing library is an error that names its Debian
# package. A missing optional library (AXONN_MPI, AXONN_ICU, AXONN_SENTENCEPIECE,
# AXONN_HTTP) is one line.

function(axonn_need found package)
  if(NOT ${found})
    message(FATAL_ERROR "axonn needs ${package}: apt-get install ${package}")
  endif()
endfunction()

# axonn_optional(NAME FOUND "packages"): sets AXONN_WITH_<NAME> to whether the build has this
# library. With AXONN_<NAME>=ON it is an error if it was not found.
function(axonn_optional name found packages)
  set(AXONN_WITH_${name} OFF PARENT_SCOPE)
  if(AXONN_${name} STREQUAL "OFF")
    return()
  elseif(${found})
    set(AXONN_WITH_${name} ON PARENT_SCOPE)
  elseif(AXONN_${name} STREQUAL "ON")
    message(FATAL_ERROR "AXONN_${name} is ON and the library was not found: apt-get install "
                        "${packages}, or configure with -DAXONN_${name}=OFF")
  else()
    message(STATUS "${name}: not found: left out (apt-get install ${packages})")
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
find_library(AXONN_ZLIB z)
axonn_need(AXONN_ZLIB zlib1g-dev)
find_library(AXONN_ZSTD zstd)
axonn_need(AXONN_ZSTD libzstd-dev)
find_path(AXONN_XXHASH xxhash.h)
axonn_need(AXONN_XXHASH libxxhash-dev)

find_library(AXONN_ICU_LIBRARY icuuc)
axonn_optional(ICU AXONN_ICU_LIBRARY libicu-dev)
find_library(AXONN_SENTENCEPIECE_LIBRARY sentencepiece)
axonn_optional(SENTENCEPIECE AXONN_SENTENCEPIECE_LIBRARY libsentencepiece-dev)
if(NOT AXONN_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI COMPONENTS CXX QUIET)
endif()
axonn_optional(MPI MPI_CXX_FOUND "libopenmpi-dev openmpi-bin")
find_path(AXONN_BOOST boost/beast/http/basic_parser.hpp)
axonn_optional(HTTP AXONN_BOOST libboost-dev)

include(cmake/gpu.cmake)

if(AXONN_TESTS)
  find_package(GTest CONFIG QUIET)
  axonn_need(GTest_FOUND libgtest-dev)
  if(AXONN_WITH_SENTENCEPIECE)
    find_library(AXONN_SENTENCEPIECE_TRAIN sentencepiece_train)  # trains the models of tests
    axonn_need(AXONN_SENTENCEPIECE_TRAIN libsentencepiece-dev)
  endif()
endif()
