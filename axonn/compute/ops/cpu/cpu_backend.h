#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/cpu/matmul/products.h"

namespace axonn::cpu {

/// Backend on the CPU. Products and attention have folders of their own; the row-wise operations
/// are those of ops/rowwise, with a source file for each group.
class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads);

  Device& device() override { return *device_; }
  Arena& arena() override { return arena_; }
  std::string name() const override { return "cpu"; }

  void product(const Matmul& args) override { products_.run(args); }
  void products(std::span<const Matmul> all) override { products_.run(all); }
  bool reads_codes(const QuantizedMatmul& args) const override {
    return products_.reads_codes(args);
  }
  void quantized_product(const QuantizedMatmul& args) override { products_.run(args); }
  std::vector<std::string> matmul_ways(const MatmulShape& shape) const override {
    return products_.ways(shape);
  }
  bool set_matmul_way(const MatmulShape& shape, std::string_view way) override {
    return products_.set_way(shape, way);
  }
  std::string matmul_device() const override;
  bool set_batch_invariant(bool value) override;
  bool set_integer_products(bool value) override;

  void attention(const Attention& args) override;
  void attention_backward(const AttentionBackward& args) override;
  void cached_attention(const CachedAttention& args) override;
  bool reads_kept_codes() const override { return true; }
  void run(const RowwiseOperation& operation) override;

 private:
  std::unique_ptr<Device> device_;
  Arena arena_;
  int threads_;
  Products products_;
  bool batch_invariant_ = false;
  HostScratch scratch_;  // used by one operation at a time
};

}  // namespace axonn::cpu
