#pragma once

#include <memory>
#include <string>

#include "axonn/ops/backend.h"

namespace axonn {

/// Backend on one GPU, the one of index `gpu` in cuda_status().gpus: cuBLASLt or hipBLASLt for
/// products, cuDNN for attention if the build has it, this project's kernels for the rest. Only the
/// thread that makes it may use and destroy it. Ranks may share a GPU.
///
/// Throws UsageError if there is no such GPU, if this build has no kernels for it or no GPU support
/// at all, or if cuDNN is requested and missing.
std::unique_ptr<Backend> make_cuda_backend(int gpu, const CudaOptions& options = {});

/// "cuBLASLt 13.0.2", or "" in a build without GPU support.
std::string cuda_product_library();

/// "cuDNN 9.19.0", or "" in a build without it.
std::string cuda_attention_library();

}  // namespace axonn
