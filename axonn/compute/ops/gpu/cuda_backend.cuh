#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/gpu/attention/attention_parts.h"
#include "axonn/compute/ops/gpu/attention/attention_ways.h"
#include "axonn/compute/ops/gpu/attention/cudnn_attention.h"
#include "axonn/compute/ops/gpu/matmul/products.h"
#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/compute/tensor/gpu/runtime.cuh"
#include "axonn/compute/tensor/scratch.h"

namespace axonn::cuda {

/// Backend on one GPU, NVIDIA or AMD. Products and attention have folders of their own; the
/// row-wise operations are those of ops/rowwise. None waits for the GPU.
class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaGpu& gpu, const CudaOptions& options);

  Device& device() override { return *device_; }
  Arena& arena() override { return arena_; }
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
    return concat(gpu_name_, ", ", BlasPlans::library());
  }

  void attention(const Attention& args) override;
  void attention_backward(const AttentionBackward& args) override;
  void cached_attention(const CachedAttention& args) override;
  void run(const RowwiseOperation& operation) override;

 private:
  cudaStream_t stream() const { return handle_of(device_->compute()); }

  /// Computes attention, or its gradients if `backward` is set, in the first of the ways that can.
  void attend(const AttentionBackward& args, bool backward, std::vector<AttentionOffer> offers);
  /// Returns why the way cannot, with nothing done; empty if it can.
  std::string attend_in_way(const AttentionOffer& offer, const AttentionBackward& args,
                            bool backward);
  // In attention.cu, with memory of sizes.bytes.
  void attention_in_parts(const Attention& args, const AttentionParts& sizes, char* memory);
  void attention_in_parts(const AttentionBackward& args, const AttentionParts& sizes, char* memory);

  std::unique_ptr<Device> device_;
  Arena arena_;
  std::string gpu_name_;
  AttentionRules rules_;
  Products products_;
  CudnnAttention cudnn_;
  std::set<std::string> left_by_cudnn_;  // attention of the remarks that were made
  std::vector<std::string> remarks_;
};

}  // namespace axonn::cuda
