#include <variant>

#include "axonn/ops/cuda/cuda_backend.cuh"
#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/cuda_backend.h"
#include "axonn/tensor/cuda/cuda_device.h"

namespace axonn {

namespace cuda {

namespace {

/// Throws if this build has no kernels for the GPU.
void check_kernels(const CudaGpu& gpu) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, add_rows);
  if (status == cudaSuccess) return;
  cudaGetLastError();
  refuse(gpu_platform()->device, ": ", gpu.name, " is of ", gpu.architecture,
         ", for which this build has no kernels (", cudaGetErrorString(status),
         "); configure with -D", gpu.build_for);
}

}  // namespace

CudaBackend::CudaBackend(int gpu, std::string gpu_name, const CudaOptions& options)
    : device_(make_cuda_device(gpu)),
      gpu_name_(std::move(gpu_name)),
      scratch_(*device_),
      products_(*device_),
      cudnn_(*device_, scratch_, options) {}

void CudaBackend::product(const Matmul& args) { products_.run(args); }

std::vector<std::string> CudaBackend::matmul_ways(const MatmulShape& shape) const {
  return products_.ways(shape);
}

bool CudaBackend::set_matmul_way(const MatmulShape& shape, std::string_view way) {
  return products_.set_way(shape, way);
}

void CudaBackend::run(const RowwiseOperation& operation) {
  std::visit([&](const auto& args) { args.run(Launch{stream(), scratch_}); }, operation);
}

std::string CudaBackend::matmul_device() const {
  return concat(gpu_name_, ", ", Products::library());
}

std::vector<std::string> CudaBackend::take_remarks() { return cudnn_.take_remarks(); }

}  // namespace cuda

std::unique_ptr<Backend> make_cuda_backend(int gpu, const CudaOptions& options) {
  const CudaStatus status = cuda_status();
  if (!status.trouble.empty()) refuse(gpu_platform()->device, ": ", status.trouble);
  if (gpu < 0 || gpu >= std::ssize(status.gpus))
    refuse(gpu_platform()->device, ": there is no GPU ", gpu, "; there are ", status.gpus.size(),
           ", numbered from 0");
  cuda::check(cudaSetDevice(gpu));
  cuda::check_kernels(status.gpus[gpu]);
  return std::make_unique<cuda::CudaBackend>(gpu, status.gpus[gpu].name, options);
}

std::string cuda_product_library() { return cuda::Products::library(); }

std::string cuda_attention_library() { return cuda::CudnnAttention::library(); }

}  // namespace axonn
