# Reads cmake/gpu.cmake and cmake/hip.cmake as a configuration does, as if all, some or nothing of
# ROCm were installed, and checks their messages.

# These preset the results of CMake's searches; OFF means not found.
file(WRITE ${WORK}/rocm-5/hip/hip_version.h "#define HIP_VERSION_MAJOR 5\n")
file(WRITE ${WORK}/rocm-6/hip/hip_version.h "#define HIP_VERSION_MAJOR 6\n")
set(nothing -DAXONN_HIPCC=OFF -DAXONN_HIP_INCLUDE=OFF -DAXONN_HIP_RUNTIME=OFF)
set(rocm_5 -DAXONN_HIPCC=hipcc -DAXONN_HIP_INCLUDE=${WORK}/rocm-5 -DAXONN_HIP_RUNTIME=amdhip64)
set(rocm_6 -DAXONN_HIPCC=hipcc -DAXONN_HIP_INCLUDE=${WORK}/rocm-6 -DAXONN_HIP_RUNTIME=amdhip64)
set(no_blas -DAXONN_HIPBLASLT=OFF -DAXONN_HIPBLASLT_INCLUDE=OFF)
set(blas -DAXONN_HIPBLASLT=hipblaslt -DAXONN_HIPBLASLT_INCLUDE=include)
set(no_rccl -DAXONN_RCCL=OFF -DAXONN_RCCL_INCLUDE=OFF)
set(rccl -DAXONN_RCCL=rccl -DAXONN_RCCL_INCLUDE=include)

# expect(CODE TEXT FILE DEFINITIONS...): checks that reading FILE ends with CODE and prints TEXT.
function(expect code text file)
  execute_process(COMMAND ${CMAKE_COMMAND} ${ARGN} -P ${SOURCE}/cmake/${file}
                  WORKING_DIRECTORY ${SOURCE} RESULT_VARIABLE result
                  OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  string(FIND "${said}" "${text}" at)
  if(NOT result EQUAL code OR at EQUAL -1)
    message(SEND_ERROR "${file} ${ARGN}: ended with ${result}, not ${code}, and printed:\n${said}\n"
                       "instead of:\n${text}")
  endif()
endfunction()

set(on -DAXONN_HIP=ON)
string(CONCAT remedy "install ROCm 6.0 or newer (hipblaslt-dev, rccl-dev) and name its folder by "
                     "ROCM_PATH, or configure with -DAXONN_HIP=OFF")
set(hip "HIP (hipcc, hip/hip_runtime_api.h, libamdhip64)")
expect(1 "AXONN_HIP is ON and ${hip} was not found: ${remedy}"
       gpu.cmake -DAXONN_CUDA=OFF ${on} ${nothing} ${no_blas} ${no_rccl})
expect(1 "hipBLASLt (hipblaslt/hipblaslt.h, libhipblaslt) was not found: ${remedy}"
       gpu.cmake -DAXONN_CUDA=OFF ${on} ${rocm_5} ${no_blas} ${no_rccl})
expect(1 "RCCL (rccl/rccl.h, librccl) was not found: ${remedy}"
       gpu.cmake -DAXONN_CUDA=OFF ${on} ${rocm_6} ${blas} ${no_rccl})
expect(1 "HIP 6.0 or newer (here is 5) was not found: ${remedy}"
       gpu.cmake -DAXONN_CUDA=OFF ${on} ${rocm_5} ${blas} ${rccl})
expect(0 "" gpu.cmake -DAXONN_CUDA=OFF ${on} ${rocm_6} ${blas} ${rccl})
expect(0 "HIP: RCCL (rccl/rccl.h, librccl) not found: left out"
       gpu.cmake -DAXONN_CUDA=OFF -DAXONN_HIP=AUTO ${rocm_6} ${blas} ${no_rccl})
expect(1 "AXONN_CUDA and AXONN_HIP are both ON, but a build supports the GPUs of one vendor"
       gpu.cmake -DAXONN_CUDA=ON -DAXONN_HIP=ON)
