# Finds CUDA: nvcc, the runtime, cuBLASLt and NCCL. Sets AXONN_WITH_CUDA, and AXONN_CUDA_OUTCOME to
# one line that says what was found and whether the CUDA backend is built.

set(AXONN_WITH_CUDA ON)
set(AXONN_CUDA_OUTCOME)
set(AXONN_CUDA_ARCH "90a-real" CACHE STRING
    "GPUs to compile for, as CMAKE_CUDA_ARCHITECTURES: 90a-real (H100, H200), 80-real (A100)")

# axonn_without_cuda(what): leaves out the CUDA backend, because `what` is missing. With
# AXONN_CUDA=ON it is an error that names `what`.
function(axonn_without_cuda what)
  if(AXONN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "AXONN_CUDA is ON and ${what} was not found: put nvcc of CUDA 12.4 or "
                        "newer on PATH (or set CUDAToolkit_ROOT or CMAKE_PREFIX_PATH), or "
                        "configure with -DAXONN_CUDA=OFF")
  endif()
  set(AXONN_CUDA_OUTCOME "${what} not found: left out" PARENT_SCOPE)
  set(AXONN_WITH_CUDA OFF PARENT_SCOPE)
endfunction()

# Checked before the language is enabled, which is an error if nvcc does not know the GPUs.
find_program(AXONN_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME
             PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(nvcc_version 0)
if(CMAKE_CUDA_COMPILER)
  set(AXONN_NVCC ${CMAKE_CUDA_COMPILER})
endif()
if(AXONN_NVCC)
  execute_process(COMMAND ${AXONN_NVCC} --version OUTPUT_VARIABLE nvcc ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" nvcc "${nvcc}")
  set(nvcc_version ${CMAKE_MATCH_1})
endif()
axonn_gpu_is_here(gpu_is_here cuda)
if(NOT AXONN_NVCC)
  axonn_without_cuda("nvcc")
elseif(nvcc_version VERSION_LESS 12.4)
  axonn_without_cuda("nvcc of CUDA 12.4 or newer")
elseif(AXONN_CUDA STREQUAL "AUTO" AND NOT gpu_is_here)
  set(AXONN_WITH_CUDA OFF)
  set(AXONN_CUDA_OUTCOME
      "nvcc ${nvcc_version} found, no GPU on this machine: left out (-DAXONN_CUDA=ON builds it)")
endif()
if(AXONN_WITH_CUDA)
  set(CMAKE_CUDA_COMPILER ${AXONN_NVCC} CACHE FILEPATH "nvcc")
  set(CMAKE_CUDA_ARCHITECTURES ${AXONN_CUDA_ARCH})
  # Some builds of CMake 3.25 do not know these options of nvcc.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  enable_language(CUDA)
  find_package(CUDAToolkit QUIET)
  find_library(AXONN_NCCL nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(AXONN_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NOT TARGET CUDA::cublasLt)
    axonn_without_cuda("cuBLASLt")
  elseif(NOT AXONN_NCCL OR NOT AXONN_NCCL_INCLUDE)
    axonn_without_cuda("NCCL (nccl.h, libnccl)")
  endif()
endif()
if(AXONN_WITH_CUDA)
  include(cmake/cudnn.cmake)
  set(AXONN_CUDA_OUTCOME "nvcc ${nvcc_version}, cuBLASLt and NCCL found: built for \
${AXONN_CUDA_ARCH}; ${AXONN_CUDNN_OUTCOME}")
endif()
message(STATUS "CUDA: ${AXONN_CUDA_OUTCOME}")
