#include "axonn/ops/forwarding_backend.h"

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/tensor/device.h"

namespace axonn {

namespace {

/// Flops of Q·Kᵀ and of P·V over the causal half.
double attention_flops(const Attention& args) {
  const double pairs = args.pairs > 0 ? static_cast<double>(args.pairs)
                                      : static_cast<double>(args.q.rows * args.positions) / 2;
  return 4.0 * pairs * static_cast<double>(args.heads * args.head_dim);
}

/// A ForwardingBackend without an inner backend, so that it need not list the operations.
class DryBackend final : public ForwardingBackend {
 public:
  DryBackend(Recording* recording, OperationSize size)
      : ForwardingBackend(nullptr),
        device_(make_dry_device(recording, size)),
        recording_(recording) {}

  Device& device() override { return *device_; }
  std::string name() const override { return "dry"; }
  void mark(std::string_view layer) override { layer_ = layer; }

  void product(const Matmul& args) override { record(args, 1); }
  /// Runs of equal products are one operation, so that a step of many experts stays small.
  void products(std::span<const Matmul> all) override {
    for (std::size_t i = 0, end; i < all.size(); i = end) {
      const MatmulShape shape = shape_of(all[i]);
      for (end = i + 1; end < all.size() && shape_of(all[end]) == shape;) ++end;
      if (shape.flops() > 0) record(all[i], static_cast<std::int64_t>(end - i));
    }
  }
  /// Stands for no device in particular: an epilogue is recorded as operations of its own.
  bool fuses(const Matmul&) override { return false; }
  std::vector<std::string> matmul_ways(const MatmulShape&) const override { return {name()}; }
  bool set_matmul_way(const MatmulShape&, std::string_view way) override { return way == name(); }
  std::string matmul_device() const override { return name(); }

  void attention(const Attention& args) override {
    next_.flops = attention_flops(args);
    ForwardingBackend::attention(args);
  }
  void attention_backward(const AttentionBackward& args) override {
    next_.flops = 2.5 * attention_flops(args.forward);  // five products instead of two
    ForwardingBackend::attention_backward(args);
  }

 protected:
  void around(const OperationCall& call, const std::function<void()>&) override {
    Recording::Compute now = std::exchange(next_, {});
    if (!recording_) return;
    now.operation = call.name;
    now.kind = call.kind;
    now.layer = layer_;
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

  std::unique_ptr<Device> device_;
  Recording* recording_;
  std::string layer_;
  Recording::Compute next_;  // flops and modes of the operation that is about to be recorded
};

class TracingBackend final : public ForwardingBackend {
 public:
  TracingBackend(std::unique_ptr<Backend> inner, Trace& trace)
      : ForwardingBackend(std::move(inner)), trace_(trace) {}

  void mark(std::string_view layer) override {
    if (trace_.on()) layer_ = layer;
  }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    if (!trace_.on()) return run();
    const double begin = now_seconds();
    run();
    trace_.span(Trace::kCompute, concat(call.name, ' ', layer_), begin, now_seconds());
  }

 private:
  Trace& trace_;
  std::string layer_;
};

}  // namespace

void ForwardingBackend::products(std::span<const Matmul> all) {
  if (all.empty()) return;
  std::vector<View> operands;  // all results, then all left operands, and so on
  for (std::size_t operand = 0; operand < all.front().operands().size(); ++operand)
    for (const Matmul& one : all) operands.push_back(one.operands()[operand]);
  around(
      {.name = Matmul::kName, .kind = Matmul::kKind, .operands = operands, .results = all.size()},
      [this, copies = std::vector(all.begin(), all.end())] { inner_->products(copies); });
}

void ForwardingBackend::on_host(const HostOperation& operation) {
  std::vector<View> operands = operation.results;
  operands.insert(operands.end(), operation.inputs.begin(), operation.inputs.end());
  around({.name = operation.name, .operands = operands, .results = operation.results.size()},
         [this, operation] { inner_->on_host(operation); });
}

std::unique_ptr<Backend> make_dry_backend(Recording* recording, OperationSize size) {
  return std::make_unique<DryBackend>(recording, size);
}

std::unique_ptr<Backend> make_tracing_backend(std::unique_ptr<Backend> inner, Trace& trace) {
  return std::make_unique<TracingBackend>(std::move(inner), trace);
}

}  // namespace axonn
