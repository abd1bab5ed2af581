#include "axonn/compute/ops/forwarding_backend.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "axonn/compute/tensor/device.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/moment.h"

namespace axonn {

namespace {

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
    Device& on = device();
    const Moment begin = on.moment(on.compute());
    run();
    trace_.span(Trace::kCompute, concat(call.name, ' ', layer_), begin, on.moment(on.compute()));
  }

 private:
  Trace& trace_;
  std::string layer_;
};

}  // namespace

std::vector<std::string> ForwardingBackend::take_remarks() {
  std::vector<std::string> all = std::exchange(remarks_, {});
  std::ranges::move(inner_->take_remarks(), std::back_inserter(all));
  return all;
}

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

std::unique_ptr<Backend> make_tracing_backend(std::unique_ptr<Backend> inner, Trace& trace) {
  return std::make_unique<TracingBackend>(std::move(inner), trace);
}

}  // namespace axonn
