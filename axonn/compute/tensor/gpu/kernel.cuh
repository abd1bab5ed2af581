#pragma once

#include <cstddef>
#include <type_traits>

#include "axonn/compute/tensor/gpu/runtime.cuh"

namespace axonn::cuda {

/// The threads of a block, and the bytes of shared memory that a launch gives it besides what the
/// kernel declares (AXONN_SHARED_OF_LAUNCH).
struct BlockSize {
  BlockSize(int of_threads, std::size_t bytes = 0)  // NOLINT: most launches name threads alone
      : threads(of_threads), shared_bytes(bytes) {}
  int threads;
  std::size_t shared_bytes;
};

/// Enqueues a kernel on the stream: `blocks` blocks of this size. All kernels are launched here.
/// Throws Error if the runtime refuses the launch.
template <typename... Parameters>
void launch_kernel(cudaStream_t stream, dim3 blocks, const BlockSize& size,
                   void (*kernel)(Parameters...), std::type_identity_t<Parameters>... args) {
  constexpr std::size_t kUnasked = std::size_t{48} << 10;  // more must be permitted
  if (size.shared_bytes > kUnasked)
    check("cudaFuncSetAttribute",
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(size.shared_bytes)));
  void* values[] = {&args...};
  check("cudaLaunchKernel",
        cudaLaunchKernel(kernel, blocks, dim3(static_cast<unsigned>(size.threads)), values,
                         size.shared_bytes, stream));
}

}  // namespace axonn::cuda
