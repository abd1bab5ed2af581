# Finds CUDA: nvcc, the runtime, cuBLASLt and NCCL. Sets AXONN_WITH_CUDA.

# axonn_cuda_needs(found what): AUTO goes without CUDA, ON ends with an error that says what is
# missing.
function(axonn_cuda_needs found what)
  if(found)
    return()
  endif()
  if(AXONN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "AXONN_CUDA is ON and ${what} was not found: put nvcc of CUDA 12.4 or "
                        "newer on PATH (CUDAToolkit_ROOT and CMAKE_PREFIX_PATH name other "
                        "places), or configure with -DAXONN_CUDA=OFF")
  endif()
  message(STATUS "No CUDA backend: ${what} was not found (-DAXONN_CUDA=ON makes this an error)")
  set(AXONN_WITH_CUDA OFF PARENT_SCOPE)
endfunction()

set(AXONN_WITH_CUDA ON)
set(AXONN_CUDA_ARCH "90a-real" CACHE STRING
    "Cards to compile for, as CMAKE_CUDA_ARCHITECTURES: 90a-real (H100, H200), 80-real (A100)")

include(CheckLanguage)
check_language(CUDA)
axonn_cuda_needs("${CMAKE_CUDA_COMPILER}" "nvcc")
if(AXONN_WITH_CUDA)
  # Asked before the language is enabled, which is an error where nvcc does not know the cards.
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc ERROR_QUIET)
  if(NOT nvcc MATCHES "release ([0-9.]+)" OR CMAKE_MATCH_1 VERSION_LESS 12.4)
    axonn_cuda_needs("" "nvcc of CUDA 12.4 or newer")
  endif()
endif()
if(AXONN_WITH_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${AXONN_CUDA_ARCH})
  # What some builds of CMake 3.25 do not know of nvcc.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  enable_language(CUDA)
  find_package(CUDAToolkit QUIET)
  find_library(AXONN_NCCL nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(AXONN_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NOT TARGET CUDA::cublasLt)
    axonn_cuda_needs("" "cuBLASLt")
  elseif(NOT AXONN_NCCL OR NOT AXONN_NCCL_INCLUDE)
    axonn_cuda_needs("" "NCCL (nccl.h, libnccl)")
  endif()
endif()
if(AXONN_WITH_CUDA)
  include(cmake/cudnn.cmake)
endif()
