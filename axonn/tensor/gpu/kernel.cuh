#pragma once

#include <type_traits>

#include "axonn/tensor/gpu/runtime.cuh"

namespace axonn::cuda {

/// Enqueues a kernel on the stream: `blocks` blocks of `threads` threads. All kernels are launched
/// here. Throws Error if the runtime refuses the launch.
template <typename... Parameters>
void launch_kernel(cudaStream_t stream, dim3 blocks, int threads, void (*kernel)(Parameters...),
                   std::type_identity_t<Parameters>... args) {
  void* values[] = {&args...};
  check("cudaLaunchKernel",
        cudaLaunchKernel(kernel, blocks, dim3(static_cast<unsigned>(threads)), values, 0, stream));
}

}  // namespace axonn::cuda
