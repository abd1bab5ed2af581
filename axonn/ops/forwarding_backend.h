#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "axonn/ops/backend.h"

namespace axonn {

/// An operation that passes through a ForwardingBackend.
struct OperationCall {
  std::string_view name;  ///< its kName: "matmul", "layer_norm"
  OperationKind kind = OperationKind::rowwise;
  std::span<const View> operands;    ///< results first; one that the caller left out is empty
  std::span<const int> passes = {};  ///< how often each is read or written; empty: once
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
  std::string name() const override { return inner_->name(); }
  std::vector<std::string> take_remarks() override { return inner_->take_remarks(); }

  void product(const Matmul& args) override {
    forward(args, [=, this] { inner_->product(args); });
  }
  bool fuses(const Matmul& args) override { return inner_->fuses(args); }
  std::vector<std::string> matmul_ways(const MatmulShape& shape) const override {
    return inner_->matmul_ways(shape);
  }
  bool set_matmul_way(const MatmulShape& shape, std::string_view way) override {
    return inner_->set_matmul_way(shape, way);
  }
  std::string matmul_device() const override { return inner_->matmul_device(); }

  void attention(const Attention& args) override {
    forward(args, [=, this] { inner_->attention(args); });
  }
  void attention_backward(const AttentionBackward& args) override {
    forward(args, [=, this] { inner_->attention_backward(args); });
  }
  void cached_attention(const CachedAttention& args) override {
    forward(args, [=, this] { inner_->cached_attention(args); });
  }
  void run(const RowwiseOperation& operation) override {
    std::visit([&](const auto& args) { forward(args, [=, this] { inner_->run(args); }); },
               operation);
  }

  void mark(std::string_view layer) override { inner_->mark(layer); }

 protected:
  /// Runs one operation. `run` holds its arguments by value, so it may be copied, called later, and
  /// called again.
  virtual void around(const OperationCall& call, const std::function<void()>& run) {
    (void)call;
    run();
  }

 private:
  template <typename Operation>
  void forward(const Operation& args, const std::function<void()>& run) {
    const auto operands = args.operands();
    OperationCall call{.name = Operation::kName, .operands = operands};
    if constexpr (requires { Operation::kKind; }) call.kind = Operation::kKind;
    if constexpr (requires { args.passes(); }) {
      const auto passes = args.passes();
      call.passes = passes;
      around(call, run);
    } else {
      around(call, run);
    }
  }

  std::unique_ptr<Backend> owned_;
  Backend* inner_;
};

}  // namespace axonn
