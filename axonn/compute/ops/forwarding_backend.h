#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/foundation/base/trace.h"

namespace axonn {

/// An operation that passes through a ForwardingBackend.
struct OperationCall {
  std::string_view name;  ///< its kName: "matmul", "layer_norm"; or that of a HostOperation
  OperationKind kind = OperationKind::rowwise;
  std::span<const View> operands;    ///< results first; one that the caller left out is empty
  std::span<const int> passes = {};  ///< how often each is read or written; empty: once
  std::size_t results = 1;           ///< operands that a caller should look at as the results
  std::uint32_t also_writes = 0;     ///< a bit for each operand that it writes besides these

  bool writes(std::size_t operand) const {
    return operand < results || (operand < 32 && (also_writes >> operand & 1) != 0);
  }
};

/// A Backend that passes every operation to another one, through around(). Derive from it to time
/// operations, or to change some of them.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner)
      : owned_(std::move(inner)), inner_(owned_.get()) {}
  /// Does not own `inner`, which must outlive it.
  explicit ForwardingBackend(Backend& inner) : inner_(&inner) {}

  Device& device() override { return inner_->device(); }
  Arena& arena() override { return inner_->arena(); }
  std::string name() const override { return inner_->name(); }
  /// Those of remark(), then the inner backend's.
  std::vector<std::string> take_remarks() override;
  bool check_memory() override { return inner_->check_memory(); }

  void product(const Matmul& args) override {
    forward(args, [=, this] { inner_->product(args); });
  }
  /// One operation, a matmul whose results are those of all products.
  void products(std::span<const Matmul> all) override;
  bool fuses(const Matmul& args) override { return inner_->fuses(args); }
  bool reads_codes(const QuantizedMatmul& args) const override { return inner_->reads_codes(args); }
  void quantized_product(const QuantizedMatmul& args) override {
    forward(args, [=, this] { inner_->quantized_product(args); });
  }
  std::vector<std::string> matmul_ways(const MatmulShape& shape) const override {
    return inner_->matmul_ways(shape);
  }
  bool set_matmul_way(const MatmulShape& shape, std::string_view way) override {
    return inner_->set_matmul_way(shape, way);
  }
  std::string matmul_device() const override { return inner_->matmul_device(); }
  bool set_integer_products(bool value) override {
    return inner_ && inner_->set_integer_products(value);
  }
  bool set_batch_invariant(bool value) override {
    return inner_ && inner_->set_batch_invariant(value);
  }

  void attention(const Attention& args) override {
    forward(args, [=, this] { inner_->attention(args); });
  }
  void attention_backward(const AttentionBackward& args) override {
    forward(args, [=, this] { inner_->attention_backward(args); });
  }
  void cached_attention(const CachedAttention& args) override {
    forward(args, [=, this] { inner_->cached_attention(args); });
  }
  bool reads_kept_codes() const override { return inner_ && inner_->reads_kept_codes(); }
  void run(const RowwiseOperation& operation) override {
    std::visit([&](const auto& args) { forward(args, [=, this] { inner_->run(args); }); },
               operation);
  }

  void on_host(const HostOperation& operation) override;

  void mark(std::string_view layer) override { inner_->mark(layer); }

 protected:
  /// Runs one operation. `run` holds its arguments by value, so it may be copied, called later, and
  /// called again. Without an inner backend it is empty.
  virtual void around(const OperationCall&, const std::function<void()>& run) { run(); }
  /// Adds a remark of its own.
  void remark(std::string text) { remarks_.push_back(std::move(text)); }

 private:
  template <typename Operation, typename Run>
  void forward(const Operation& args, const Run& run) {
    const auto operands = args.operands();
    OperationCall call{.name = Operation::kName, .operands = operands};
    if constexpr (requires { Operation::kKind; }) call.kind = Operation::kKind;
    if constexpr (requires { Operation::kAlsoWrites; }) call.also_writes = Operation::kAlsoWrites;
    const auto passes = [&] {
      if constexpr (requires { args.passes(); }) {
        static_assert(std::tuple_size_v<decltype(args.passes())> ==
                          std::tuple_size_v<decltype(args.operands())>,
                      "passes() has a number for each operand");
        return args.passes();
      } else {
        return std::array<int, 0>();
      }
    }();
    call.passes = passes;
    if (inner_)
      around(call, run);
    else
      around(call, nullptr);
  }

  std::unique_ptr<Backend> owned_;
  Backend* inner_;
  std::vector<std::string> remarks_ = {};
};

/// Counts the products that pass through it to another backend, by shape. Leaves out those of
/// products(), whose shapes change from call to call.
class RecordingBackend final : public ForwardingBackend {
 public:
  explicit RecordingBackend(Backend& inner) : ForwardingBackend(inner) {}

  void product(const Matmul& args) override {
    const MatmulShape shape = shape_of(args);
    const auto found = std::ranges::find(counts_, shape, &std::pair<MatmulShape, int>::first);
    if (found == counts_.end())
      counts_.emplace_back(shape, 1);
    else
      ++found->second;
    ForwardingBackend::product(args);
  }

  /// Shapes and numbers of calls, in the order of first calls.
  const std::vector<std::pair<MatmulShape, int>>& counts() const { return counts_; }

 private:
  std::vector<std::pair<MatmulShape, int>> counts_;
};

/// A Backend that records the time and layer of every operation of another one in a trace, which
/// must outlive it.
std::unique_ptr<Backend> make_tracing_backend(std::unique_ptr<Backend> inner, Trace& trace);

}  // namespace axonn
