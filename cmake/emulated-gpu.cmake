# Compiles the CUDA backend for GPUs that the CPU emulates (tests/emulated_gpu), for tests: with g++
# instead of nvcc, and headers and libraries of CUDA's names. Sets AXONN_WITH_CUDA.
set(AXONN_WITH_CUDA ON)
set(AXONN_EMULATED_WARP 32 CACHE STRING "Threads of a warp: 32, or 64 as on AMD GPUs")
set(AXONN_EMULATED_WARP_HEADER tests/emulated_gpu/warp_cpu.cuh)
set(folder ${PROJECT_SOURCE_DIR}/tests/emulated_gpu)
file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
list(FILTER sources EXCLUDE REGEX "(_test|races)[.]cpp$")
# Shared, so that inline functions of the standard library are its own and not the program's, which
# a sanitizer may have instrumented.
add_library(axonn_emulated_gpu SHARED ${sources})
target_link_options(axonn_emulated_gpu PRIVATE -Wl,-Bsymbolic)
target_include_directories(axonn_emulated_gpu PUBLIC ${folder}/include ${PROJECT_SOURCE_DIR})
target_compile_features(axonn_emulated_gpu PUBLIC cxx_std_20)
target_compile_definitions(axonn_emulated_gpu PUBLIC AXONN_EMULATED_WARP=${AXONN_EMULATED_WARP})
# ThreadSanitizer sees the program's accesses, and those that platform.h reports.
target_compile_options(axonn_emulated_gpu PRIVATE -O2 -fno-sanitize=thread)
set_source_files_properties(${folder}/blas_products.cpp PROPERTIES COMPILE_OPTIONS -march=native)

# axonn_compile_for_emulated_gpus(TARGET): compiles the target's .cu files as C++, with few
# optimisations: they have many kernels, and each runs for a moment. Their pragmas tell nvcc which
# loops to unroll. Other sources get no options, so that ccache has them from preset dev.
function(axonn_compile_for_emulated_gpus target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cu$")
  set_source_files_properties(${sources} PROPERTIES
    LANGUAGE CXX COMPILE_OPTIONS "-O1;-fno-strict-aliasing;-Wno-unknown-pragmas")
endfunction()
