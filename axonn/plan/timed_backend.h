#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/base/clock.h"
#include "axonn/ops/forwarding_backend.h"

namespace axonn {

/// Notes how long each operation of another backend takes. It waits for the device before and after
/// each, so that what is noted is the operation's own.
class TimedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// Every operation is timed by itself, as a dry run has them.
  bool fuses(const Matmul&) override { return false; }

  /// Operations and seconds since the last call, in order.
  std::vector<std::pair<std::string, double>> take() { return std::exchange(timed_, {}); }

 protected:
  void around(std::string_view operation, const std::function<void()>& run,
              std::initializer_list<View>) override {
    Stream& stream = device().compute();
    stream.synchronize();
    const double start = now_seconds();
    run();
    stream.synchronize();
    timed_.emplace_back(operation, now_seconds() - start);
  }

 private:
  std::vector<std::pair<std::string, double>> timed_;
};

}  // namespace axonn
