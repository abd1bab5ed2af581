// Stands in for gpu/ in a build without CUDA and HIP.
#include "axonn/compute/ops/backend.h"
#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

std::unique_ptr<Backend> make_cuda_backend(int, const CudaOptions&) {
  refuse(cuda_status().trouble);
}

std::string cuda_product_library() { return {}; }

std::string cuda_attention_library() { return {}; }

int cuda_attention_version() { return 0; }

}  // namespace axonn
