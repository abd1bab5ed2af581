#include "axonn/ops/tracing_backend.h"

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/ops/forwarding_backend.h"

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
    const double begin = now_seconds();
    run();
    trace_.span(Trace::kCompute, concat(call.name, ' ', layer_), begin, now_seconds());
  }

 private:
  Trace& trace_;
  std::string layer_;
};

}  // namespace

std::unique_ptr<Backend> make_tracing_backend(std::unique_ptr<Backend> inner, Trace& trace) {
  return std::make_unique<TracingBackend>(std::move(inner), trace);
}

}  // namespace axonn
