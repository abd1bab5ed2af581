#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

/// A ForwardingBackend that looks for silent corruption. `rank` begins its messages: "rank 3".
class CheckingBackend : public ForwardingBackend {
 public:
  CheckingBackend(std::unique_ptr<Backend> inner, std::string rank)
      : ForwardingBackend(std::move(inner)), rank_(std::move(rank)) {}

  void mark(std::string_view layer) override {
    layer_ = layer;
    ForwardingBackend::mark(layer);
  }

 protected:
  /// "silent corruption: rank 3: ", then the text.
  std::string corruption(std::string_view text) const {
    return concat("silent corruption: ", rank_, ": ", text);
  }
  /// The operation, then " of h.3.mlp.c_fc.weight" if a layer is marked.
  std::string in_layer(std::string_view operation) const {
    return concat(operation, layer_.empty() ? "" : " of ", layer_);
  }

 private:
  std::string rank_, layer_ = {};
};

}  // namespace axonn
