#include "axonn/compute/ops/dry_backend.h"

#include <array>
#include <utility>
#include <variant>
#include <vector>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/compute/ops/gpu/launch_shape.h"
#include "axonn/compute/ops/gpu/matmul/lanes.h"
#include "axonn/compute/ops/rowwise/adafactor.h"
#include "axonn/compute/ops/rowwise/delta.h"
#include "axonn/compute/ops/rowwise/dequantize.h"
#include "axonn/compute/ops/rowwise/divergence.h"
#include "axonn/compute/ops/rowwise/elementwise.h"
#include "axonn/compute/ops/rowwise/embedding.h"
#include "axonn/compute/ops/rowwise/experts.h"
#include "axonn/compute/ops/rowwise/heads.h"
#include "axonn/compute/ops/rowwise/moments.h"
#include "axonn/compute/ops/rowwise/norm.h"
#include "axonn/compute/ops/rowwise/optimizer.h"
#include "axonn/compute/ops/rowwise/order.h"
#include "axonn/compute/ops/rowwise/reduce.h"
#include "axonn/compute/ops/rowwise/route.h"
#include "axonn/compute/ops/rowwise/softmax.h"
#include "axonn/compute/ops/rowwise/token_record.h"
#include "axonn/compute/ops/rowwise/word_sums.h"
#include "axonn/compute/ops/rowwise/xielu.h"
#include "axonn/compute/tensor/scratch.h"

namespace axonn {

namespace {

/// Takes the memory that a GPU's Launch takes (gpu/launch.cuh), and launches nothing.
struct DryLaunch {
  Scratch& scratch;

  void rows(const rowwise::RowWork&, const auto&) const {}
  void heads(const rowwise::HeadWork&, const auto&) const {}
  void tiles(std::int64_t, std::int64_t, const auto&) const {}
  template <typename Sum>
  void reduce(std::int64_t rows, std::int64_t cols, Sum*, const auto&, const auto&) const {
    scratch.take<Sum>(rows * tiles_of(cols, cuda::kSumTile));
  }
  template <std::size_t n>
  void columns(const rowwise::ColumnWork& work, const std::array<float*, n>&, const auto&) const {
    if (work.rows * work.cols > 0) rowwise::row_blocks<n>(scratch, work, cuda::rows_of_block(work));
  }
  template <typename T>
  void rows_by_id(const rowwise::EmbeddingBackwardKernel<T>& kernel) const {
    if (kernel.R * kernel.C * kernel.V == 0) return;
    for (int i = 0; i < 2; ++i) scratch.take<int>(kernel.V);
  }
  bool norm_backward(const auto& rows) const {
    const cuda::NormShape shape = cuda::NormShape::of(rows.R, rows.C);
    if (shape.packs == 0) return false;
    if (rows.d_weight) scratch.take<float>(shape.blocks * rows.C * (rows.d_bias ? 2 : 1));
    return true;
  }
};

/// A ForwardingBackend without an inner backend, so that it need not list the operations.
class DryBackend final : public ForwardingBackend {
 public:
  DryBackend(Recording* recording, std::optional<AttentionRules> gpu)
      : ForwardingBackend(nullptr),
        device_(make_dry_device(recording, gpu ? OperationSize::large : OperationSize::moderate)),
        arena_(*device_),
        gpu_(std::move(gpu)),
        recording_(recording) {}

  Device& device() override { return *device_; }
  Arena& arena() override { return arena_; }
  std::string name() const override { return "dry"; }
  void mark(std::string_view layer) override { layer_ = layer; }

  void product(const Matmul& args) override {
    take_for_products(1);
    record(args, 1);
  }
  /// Runs of equal products are one operation, so that a step of many experts stays small.
  void products(std::span<const Matmul> all) override {
    take_for_products(all.size());
    if (!recording_ || recording_->paused) return;
    for (std::size_t i = 0, end; i < all.size(); i = end) {
      const MatmulShape shape = shape_of(all[i]);
      for (end = i + 1; end < all.size() && shape_of(all[end]) == shape;) ++end;
      if (shape.flops() > 0) record(all[i], static_cast<std::int64_t>(end - i));
    }
  }
  /// Stands for no device in particular: an epilogue is recorded as operations of its own.
  bool fuses(const Matmul&) override { return false; }
  bool reads_codes(const QuantizedMatmul& args) const override {
    return !gpu_ && cpu_reads_codes(args);
  }
  bool reads_kept_codes() const override { return !gpu_; }
  std::vector<std::string> matmul_ways(const MatmulShape&) const override { return {name()}; }
  bool set_matmul_way(const MatmulShape&, std::string_view way) override { return way == name(); }
  std::string matmul_device() const override { return name(); }

  void attention(const Attention& args) override {
    if (gpu_ && args.q.count() > 0) take_for(attention_offers(args, *gpu_), args, false);
    next_.flops = attention_flops(args);
    ForwardingBackend::attention(args);
  }
  void attention_backward(const AttentionBackward& args) override {
    if (gpu_ && args.forward.k.count() > 0)
      take_for(attention_offers(args, *gpu_), args.forward, true);
    next_.flops = 2.5 * attention_flops(args.forward);  // five products instead of two
    ForwardingBackend::attention_backward(args);
  }
  void run(const RowwiseOperation& operation) override {
    if (gpu_) {
      Scratch scratch(arena_);
      std::visit([&](const auto& args) { args.run(DryLaunch{scratch}, {args.kName}); }, operation);
    }
    ForwardingBackend::run(operation);
  }

 protected:
  void around(const OperationCall& call, const std::function<void()>&) override {
    Recording::Compute now = std::exchange(next_, {});
    if (!recording_ || recording_->paused) return;
    now.operation = call.name;
    now.kind = call.kind;
    now.layer = layer_;
    now.operands.reserve(call.operands.size());
    for (std::size_t i = 0; i < call.operands.size(); ++i) {
      const View& view = call.operands[i];
      const int passes = call.passes.empty() ? 1 : call.passes[i];
      if (view.data) now.operands.push_back({view.rows, view.cols, view.dtype, passes});
    }
    recording_->events.emplace_back(std::move(now));
  }

 private:
  void record(const Matmul& args, std::int64_t count) {
    next_.count = count;
    next_.flops = static_cast<double>(count) * shape_of(args).flops();
    next_.a_transposed = args.a_transposed;
    next_.b_transposed = args.b_transposed;
    ForwardingBackend::product(args);
  }

  /// The memory of products that run at the same time.
  void take_for_products(std::size_t products) {
    Scratch scratch(arena_);
    if (gpu_) scratch.take<char>(cuda::lanes_for(products) * cuda::kLaneBytes);
  }
  void take_for(std::vector<AttentionOffer> offers, const Attention& args, bool backward) {
    const AttentionOffer best =
        best_offer(std::move(offers), [&] { return describe(args, backward); });
    Scratch scratch(arena_);
    scratch.take<char>(best.bytes);
    if (best.way == AttentionWay::parts) take_for_products(1);
  }

  std::unique_ptr<Device> device_;
  Arena arena_;
  std::optional<AttentionRules> gpu_;
  Recording* recording_;
  std::string layer_;
  Recording::Compute next_;  // flops and modes of the operation that is about to be recorded
};

}  // namespace

std::unique_ptr<Backend> make_dry_backend(Recording* recording, std::optional<AttentionRules> gpu) {
  return std::make_unique<DryBackend>(recording, std::move(gpu));
}

}  // namespace axonn
