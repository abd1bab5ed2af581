#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "axonn/base/clock.h"
#include "axonn/ops/forwarding_backend.h"

namespace axonn {

/// Records the time of each operation of another backend. Waits for the device before and after
/// each, so that operations do not overlap.
class TimedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// Nothing is fused, so that the operations are those of a dry step.
  bool fuses(const Matmul&) override { return false; }

  /// Operations and seconds since the last call, in order.
  std::vector<std::pair<std::string, double>> take() { return std::exchange(timed_, {}); }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    Stream& stream = device().compute();
    stream.synchronize();
    const double start = now_seconds();
    run();
    stream.synchronize();
    timed_.emplace_back(call.name, now_seconds() - start);
  }

 private:
  std::vector<std::pair<std::string, double>> timed_;
};

}  // namespace axonn
