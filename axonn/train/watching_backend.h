#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "axonn/ops/forwarding_backend.h"

namespace axonn {

/// Calls a function after every operation that passes through it to another backend, once for each
/// product of several. All ranks do the same operations in the same order, so that their numbers
/// compare the ranks' progress.
class WatchingBackend final : public ForwardingBackend {
 public:
  struct Operation {
    std::int64_t number = 0;  ///< counted from 0
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
    ForwardingBackend::mark(layer);
  }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    run();
    for (const View& result : call.operands.first(call.results))
      watch_({count_++, layer_, call.name, result});
  }

 private:
  Watch watch_;
  std::int64_t count_ = 0;
  std::string layer_;
};

}  // namespace axonn
