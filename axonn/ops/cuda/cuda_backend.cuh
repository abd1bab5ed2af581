#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/ops/backend.h"
#include "axonn/ops/cuda/attention/cudnn_attention.h"
#include "axonn/ops/cuda/matmul/products.h"
#include "axonn/ops/cuda/scratch.cuh"
#include "axonn/tensor/cuda/runtime.cuh"

namespace axonn::cuda {

/// Backend on one GPU, NVIDIA or AMD. Products and attention have folders of their own; the
/// row-wise operations are those of ops/rowwise. None waits for the GPU.
class CudaBackend final : public Backend {
 public:
  /// options.score_bytes is not 0.
  CudaBackend(int gpu, std::string gpu_name, const CudaOptions& options);

  Device& device() override { return *device_; }
  std::string name() const override { return std::string(gpu_platform()->device); }
  std::vector<std::string> take_remarks() override;

  void product(const Matmul& args) override {
    if (!products_.run(args)) matmul(args);  // now in parts
  }
  void products(std::span<const Matmul> all) override { products_.run(all); }
  bool fuses(const Matmul& args) override { return products_.fuses(args); }
  std::vector<std::string> matmul_ways(const MatmulShape& shape) const override {
    return products_.ways(shape);
  }
  bool set_matmul_way(const MatmulShape& shape, std::string_view way) override {
    return products_.set_way(shape, way);
  }
  std::string matmul_device() const override {
    return concat(gpu_name_, ", ", Products::library());
  }

  void attention(const Attention& args) override;
  void attention_backward(const AttentionBackward& args) override;
  void cached_attention(const CachedAttention& args) override;
  void run(const RowwiseOperation& operation) override;

 private:
  cudaStream_t stream() const { return handle_of(device_->compute()); }

  std::unique_ptr<Device> device_;
  std::string gpu_name_;
  CudaOptions options_;
  Scratch scratch_;  // used by one operation at a time: kernels of the next one run after it
  Products products_;
  CudnnAttention cudnn_;
};

}  // namespace axonn::cuda
