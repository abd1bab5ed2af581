# The common part of CUDA and HIP: both use the same sources, with headers that select one of them.

# axonn_gpu_headers(KIND FOLDER [WARP header]): writes headers below FOLDER/axonn that include those
# of KIND, cuda or hip; WARP instead of KIND's header for warps.
function(axonn_gpu_headers kind folder)
  cmake_parse_arguments(ARG "" "WARP" "" ${ARGN})
  foreach(header compute/tensor/gpu/api compute/ops/gpu/matmul/blas compute/ops/gpu/warp)
    set(included axonn/${header}_${kind}.cuh)
    if(ARG_WARP AND header STREQUAL "compute/ops/gpu/warp")
      set(included ${ARG_WARP})
    endif()
    file(CONFIGURE OUTPUT ${folder}/axonn/${header}.cuh @ONLY
         CONTENT "#pragma once\n#include \"${included}\"\n")
  endforeach()
endfunction()

# axonn_gpu_is_here(RESULT KIND): whether this machine's driver shows a GPU of KIND, cuda or hip.
function(axonn_gpu_is_here result kind)
  set(signs /dev/kfd)
  if(kind STREQUAL "cuda")
    set(signs /dev/nvidia0 /proc/driver/nvidia/gpus /dev/dxg)
  endif()
  set(${result} OFF PARENT_SCOPE)
  foreach(sign IN LISTS signs)
    if(EXISTS ${sign})
      set(${result} ON PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# axonn_use_gpus(TARGET): lets the target's sources call the GPU runtime.
function(axonn_use_gpus target)
  if(AXONN_EMULATED_GPU)
    axonn_compile_for_emulated_gpus(${target})
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/include)
  target_link_libraries(${target} PRIVATE ${AXONN_GPU_RUNTIME})
  target_include_directories(${target} SYSTEM PRIVATE ${AXONN_GPU_INCLUDE})
  target_compile_definitions(${target} PRIVATE ${AXONN_GPU_DEFINITIONS})
  target_compile_options(${target} PRIVATE ${AXONN_GPU_OPTIONS})
endfunction()

# AXONN_GPU: cuda, hip, or empty; AXONN_CUDA and AXONN_HIP decide.
set(AXONN_GPU)
set(AXONN_WITH_CUDA OFF)
set(AXONN_WITH_HIP OFF)
if(AXONN_CUDA STREQUAL "ON" AND AXONN_HIP STREQUAL "ON")
  message(FATAL_ERROR "AXONN_CUDA and AXONN_HIP are both ON, but a build supports the GPUs of one "
                      "vendor: make two builds, each in its own folder")
endif()
if(AXONN_EMULATED_GPU)
  include(cmake/emulated-gpu.cmake)
elseif(NOT AXONN_CUDA STREQUAL "OFF" AND NOT AXONN_HIP STREQUAL "ON")
  include(cmake/cuda.cmake)
endif()
if((NOT AXONN_HIP STREQUAL "OFF" AND NOT AXONN_WITH_CUDA) OR AXONN_HIP_CHECK)
  include(cmake/hip.cmake)
endif()
if(AXONN_EMULATED_GPU)
  set(AXONN_GPU cuda)
  set(AXONN_GPU_RUNTIME axonn_emulated_gpu)
elseif(AXONN_WITH_CUDA)
  set(AXONN_GPU cuda)
  set(AXONN_GPU_RUNTIME CUDA::cudart_static)
  set(AXONN_GPU_INCLUDE ${AXONN_NCCL_INCLUDE})
  set(AXONN_GPU_COLLECTIVES ${AXONN_NCCL})
elseif(AXONN_WITH_HIP)
  set(AXONN_GPU hip)
  set(AXONN_GPU_RUNTIME ${AXONN_HIP_RUNTIME})
  set(AXONN_GPU_INCLUDE ${AXONN_HIP_INCLUDE} ${AXONN_RCCL_INCLUDE} ${AXONN_HIPBLASLT_INCLUDE})
  set(AXONN_GPU_COLLECTIVES ${AXONN_RCCL})
  set(AXONN_GPU_DEFINITIONS ${AXONN_HIP_DEFINITIONS})
  set(AXONN_GPU_OPTIONS ${AXONN_HIP_OPTIONS})
endif()
if(AXONN_GPU)
  axonn_gpu_headers(${AXONN_GPU} ${PROJECT_BINARY_DIR}/include WARP ${AXONN_EMULATED_WARP_HEADER})
endif()
if(AXONN_GPU STREQUAL "hip")  # RCCL's header has a different name
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/include/nccl.h @ONLY
       CONTENT "#include <rccl/rccl.h>\n")
endif()
# Reads these variables, because CMake warns about variables that a preset sets and nothing reads.
message(DEBUG "flags of ${AXONN_GPU}: ${CMAKE_CUDA_FLAGS} ${AXONN_HIP_FLAGS}"
              "${CMAKE_HIP_COMPILER_LAUNCHER}")
