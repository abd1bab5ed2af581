#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "axonn/compute/ops/forwarding_backend.h"

namespace axonn {

/// Calls a function after every operation that passes through it to another backend, once for each
/// product of several. All ranks mark the same layers in the same order, and do the same operations
/// in a layer unless it has experts, so that the numbers compare the ranks' progress.
class WatchingBackend final : public ForwardingBackend {
 public:
  struct Operation {
    std::int64_t number = 0;  ///< grows; of the marks so far and the operations since the last
    std::string_view layer;   ///< the last mark()
    std::string_view name;    ///< "matmul"
    View result;              ///< the first of it; collectives have not yet changed it
  };
  using Watch = std::function<void(const Operation&)>;

  /// inner must outlive it.
  WatchingBackend(Backend& inner, Watch watch)
      : ForwardingBackend(inner), watch_(std::move(watch)) {}

  void mark(std::string_view layer) override {
    layer_ = layer;
    count_ = (count_ / kOperationsOfLayer + 1) * kOperationsOfLayer;
    ForwardingBackend::mark(layer);
  }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    run();
    for (const View& result : call.operands.first(call.results))
      watch_({count_++, layer_, call.name, result});
  }

 private:
  /// More than the operations between two marks, and few enough for 2^39 marks.
  static constexpr std::int64_t kOperationsOfLayer = 1 << 24;

  Watch watch_;
  std::int64_t count_ = 0;
  std::string layer_;
};

}  // namespace axonn
