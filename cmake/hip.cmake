# Finds HIP: hipcc, the runtime, hipBLASLt and RCCL. Sets AXONN_WITH_HIP. Unless AXONN_HIP is OFF,
# prints one line that says what was found and whether the HIP backend is built.

set(AXONN_HIP_ARCH "gfx90a" CACHE STRING
    "AMD GPUs to compile for: gfx90a (MI210, MI250X), gfx942 (MI300A, MI300X), or several")
set(AXONN_HIP_FLAGS "" CACHE STRING "Additional flags for hipcc")

# axonn_without_hip(what remedy): leaves out the HIP backend, because `what` is missing. With
# AXONN_HIP=ON it is an error with `what` and the remedy.
function(axonn_without_hip what remedy)
  set(AXONN_WITH_HIP OFF PARENT_SCOPE)
  if(AXONN_HIP STREQUAL "ON")
    message(FATAL_ERROR "AXONN_HIP is ON and ${what} was not found: ${remedy}, or configure with "
                        "-DAXONN_HIP=OFF")
  endif()
  set(AXONN_HIP_OUTCOME "${what} not found: left out" PARENT_SCOPE)
endfunction()

set(rocm HINTS ENV ROCM_PATH ENV ROCM_HOME PATHS /opt/rocm)
find_program(AXONN_HIPCC hipcc ${rocm} PATH_SUFFIXES bin)
find_path(AXONN_HIP_INCLUDE hip/hip_runtime_api.h ${rocm} PATH_SUFFIXES include)
find_library(AXONN_HIP_RUNTIME amdhip64 ${rocm} PATH_SUFFIXES lib)
find_path(AXONN_HIPBLASLT_INCLUDE hipblaslt/hipblaslt.h ${rocm} PATH_SUFFIXES include)
find_library(AXONN_HIPBLASLT hipblaslt ${rocm} PATH_SUFFIXES lib)
find_path(AXONN_RCCL_INCLUDE rccl/rccl.h ${rocm} PATH_SUFFIXES include)
find_library(AXONN_RCCL rccl ${rocm} PATH_SUFFIXES lib)

set(hip_version 0)
if(AXONN_HIP_INCLUDE)
  file(STRINGS ${AXONN_HIP_INCLUDE}/hip/hip_version.h hip_version REGEX "HIP_VERSION_MAJOR +[0-9]")
  string(REGEX MATCH "[0-9]+$" hip_version "${hip_version}")
endif()

set(AXONN_WITH_HIP ON)
set(AXONN_HIP_OUTCOME "HIP ${hip_version}, hipBLASLt and RCCL found: built for ${AXONN_HIP_ARCH}")
axonn_gpu_is_here(gpu_is_here hip)
if(AXONN_HIP STREQUAL "OFF")
  set(AXONN_WITH_HIP OFF)
endif()
set(install "install ROCm 6.0 or newer (hipblaslt-dev, rccl-dev) and name its folder by ROCM_PATH")
if(NOT AXONN_HIPCC OR NOT AXONN_HIP_INCLUDE OR NOT AXONN_HIP_RUNTIME)
  axonn_without_hip("HIP (hipcc, hip/hip_runtime_api.h, libamdhip64)" "${install}")
elseif(NOT AXONN_HIPBLASLT OR NOT AXONN_HIPBLASLT_INCLUDE)
  axonn_without_hip("hipBLASLt (hipblaslt/hipblaslt.h, libhipblaslt)" "${install}")
elseif(NOT AXONN_RCCL OR NOT AXONN_RCCL_INCLUDE)
  axonn_without_hip("RCCL (rccl/rccl.h, librccl)" "${install}")
elseif(hip_version LESS 6)
  axonn_without_hip("HIP 6.0 or newer (here is ${hip_version})" "${install}")
elseif(AXONN_HIP STREQUAL "AUTO" AND NOT gpu_is_here)
  set(AXONN_WITH_HIP OFF)
  set(AXONN_HIP_OUTCOME
      "HIP ${hip_version} found, no GPU on this machine: left out (-DAXONN_HIP=ON builds it)")
endif()
if(NOT AXONN_HIP STREQUAL "OFF")
  message(STATUS "HIP: ${AXONN_HIP_OUTCOME}")
endif()

# For the host's compiler. Clean-up code ignores error codes, which HIP marks as nodiscard.
set(AXONN_HIP_DEFINITIONS __HIP_PLATFORM_AMD__)
set(AXONN_HIP_OPTIONS -Wno-unused-result)

# axonn_hip_objects(OBJECTS [HEADERS folder] SOURCES a.cu ...): compiles the sources for
# AXONN_HIP_ARCH and sets OBJECTS to the object files. The folder (default: this build's) holds the
# headers of axonn_gpu_headers(). It calls hipcc directly, because CMake's HIP language does not
# find Debian's hipcc.
function(axonn_hip_objects objects)
  cmake_parse_arguments(ARG "" "HEADERS" "SOURCES" ${ARGN})
  if(NOT ARG_HEADERS)
    set(ARG_HEADERS ${PROJECT_BINARY_DIR}/include)
  endif()
  separate_arguments(flags UNIX_COMMAND "${AXONN_HIP_FLAGS}")
  list(TRANSFORM AXONN_HIP_ARCH PREPEND --offload-arch= OUTPUT_VARIABLE gpus)
  set(all)
  foreach(source IN LISTS ARG_SOURCES)
    get_filename_component(path ${source} ABSOLUTE)
    cmake_path(REPLACE_FILENAME ARG_HEADERS hip/${source}.o OUTPUT_VARIABLE object)
    cmake_path(GET object PARENT_PATH folder)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_HIP_COMPILER_LAUNCHER} ${AXONN_HIPCC} -x hip ${gpus} -std=c++20 -O3 -fPIC
              ${flags} ${AXONN_HIP_OPTIONS} -I${ARG_HEADERS} -I${PROJECT_SOURCE_DIR}
              -MD -MT ${object} -MF ${object}.d -c ${path} -o ${object}
      DEPENDS ${path} DEPFILE ${object}.d
      COMMENT "Building HIP object ${source}.o" VERBATIM)
    list(APPEND all ${object})
  endforeach()
  set_source_files_properties(${all} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${objects} ${all} PARENT_SCOPE)
endfunction()

# axonn_hip_check(SOURCES...): declares target hip_compile_check, which compiles these sources and
# the host's code for AMD GPUs, in any build. Declarations in tests/hip_stubs stand for hipBLASLt
# and RCCL.
function(axonn_hip_check)
  if(NOT AXONN_HIPCC OR NOT AXONN_HIP_INCLUDE)
    message(FATAL_ERROR "AXONN_HIP_CHECK is ON and hipcc or hip/hip_runtime_api.h was not found: "
                        "apt-get install hipcc libamdhip64-dev, or put ROCm's bin on PATH")
  endif()
  set(headers ${PROJECT_BINARY_DIR}/hip_check/include)
  axonn_gpu_headers(hip ${headers})
  axonn_hip_objects(objects HEADERS ${headers} SOURCES ${ARGN})
  file(CONFIGURE OUTPUT ${headers}/nccl.h @ONLY CONTENT "#include <rccl/rccl.h>\n")
  add_library(hip_compile_check_host OBJECT EXCLUDE_FROM_ALL
    gpu/matmul/blas_plans.cpp
    gpu/matmul/products.cpp
    ${PROJECT_SOURCE_DIR}/axonn/ranks/comm/device/nccl.cpp
    ${PROJECT_SOURCE_DIR}/axonn/compute/tensor/gpu/cuda_device.cpp
    ${PROJECT_SOURCE_DIR}/axonn/compute/tensor/gpu/platform_hip.cpp)
  target_link_libraries(hip_compile_check_host PRIVATE axonn_flags)
  target_include_directories(hip_compile_check_host BEFORE PRIVATE ${headers})
  target_include_directories(hip_compile_check_host SYSTEM PRIVATE
    ${AXONN_HIP_INCLUDE} ${PROJECT_SOURCE_DIR}/tests/hip_stubs)
  target_compile_definitions(hip_compile_check_host PRIVATE ${AXONN_HIP_DEFINITIONS})
  file(STRINGS ${AXONN_HIP_INCLUDE}/hip/library_types.h bf16 REGEX "HIP_R_16BF")
  if(NOT bf16)  # as in versions before 5.7
    target_compile_definitions(hip_compile_check_host PRIVATE HIP_R_16BF=HIP_R_16F)
  endif()
  target_compile_options(hip_compile_check_host PRIVATE ${AXONN_HIP_OPTIONS})
  add_custom_target(hip_compile_check DEPENDS ${objects} hip_compile_check_host)
endfunction()
