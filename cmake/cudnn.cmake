# Finds cuDNN, for attention on GPUs. Sets AXONN_WITH_CUDNN, AXONN_CUDNN_LIBRARY,
# AXONN_CUDNN_INCLUDE, and AXONN_CUDNN_OUTCOME: some words for the line about CUDA.
set(AXONN_CUDNN "AUTO" CACHE STRING
    "Use cuDNN for attention in the CUDA backend: AUTO (if it is found), ON or OFF")
set_property(CACHE AXONN_CUDNN PROPERTY STRINGS AUTO ON OFF)

set(AXONN_WITH_CUDNN OFF)
set(AXONN_CUDNN_OUTCOME "cuDNN not requested")
if(NOT AXONN_CUDNN STREQUAL "OFF")
  find_library(AXONN_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(AXONN_CUDNN_INCLUDE cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  set(version 0)
  if(AXONN_CUDNN_INCLUDE)
    file(STRINGS ${AXONN_CUDNN_INCLUDE}/cudnn_version.h lines REGEX "define CUDNN_M(AJOR|INOR) ")
    string(REGEX REPLACE "[^0-9]+" "." version "${lines}")
    string(REGEX REPLACE "^\\.|\\.$" "" version "${version}")
  endif()
  if(AXONN_CUDNN_LIBRARY AND version VERSION_GREATER_EQUAL 9.10)
    set(AXONN_WITH_CUDNN ON)
    set(AXONN_CUDNN_OUTCOME "cuDNN ${version} found")
  elseif(AXONN_CUDNN STREQUAL "ON")
    message(FATAL_ERROR "AXONN_CUDNN is ON and cuDNN 9.10 or newer (cudnn_graph.h, libcudnn) was "
                        "not found: set CMAKE_PREFIX_PATH, or configure with "
                        "-DAXONN_CUDNN=OFF")
  else()
    set(AXONN_CUDNN_OUTCOME "cuDNN 9.10 or newer not found: attention uses axonn's own kernels")
  endif()
endif()
