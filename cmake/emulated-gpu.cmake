# Compiles the CUDA backend for GPUs that the CPU emulates (tests/emulated_gpu), for tests: with g++
# instead of nvcc, and headers and libraries of CUDA's names. Sets AXONN_WITH_CUDA.
set(AXONN_WITH_CUDA ON)
set(AXONN_EMULATED_WARP 32 CACHE STRING "Threads of a warp: 32, or 64 as on AMD GPUs")
add_library(axonn_emulated_gpu STATIC)
foreach(source runtime memory streams graphs executor blas nccl nccl_launch nccl_data)
  target_sources(axonn_emulated_gpu PRIVATE ${PROJECT_SOURCE_DIR}/tests/emulated_gpu/${source}.cpp)
endforeach()
set(folder ${PROJECT_SOURCE_DIR}/tests/emulated_gpu)
target_include_directories(axonn_emulated_gpu PUBLIC ${folder}/include ${PROJECT_SOURCE_DIR})
target_compile_features(axonn_emulated_gpu PUBLIC cxx_std_20)
target_compile_definitions(axonn_emulated_gpu PUBLIC AXONN_EMULATED_WARP=${AXONN_EMULATED_WARP})
# ThreadSanitizer sees the program's accesses, and what platform.h reports.
target_compile_options(axonn_emulated_gpu PRIVATE -O2 -fno-sanitize=thread)
