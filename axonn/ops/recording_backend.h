#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "axonn/ops/forwarding_backend.h"

namespace axonn {

/// Notes which products go to another backend, and how often, while it stands before that one.
class RecordingBackend final : public ForwardingBackend {
 public:
  explicit RecordingBackend(Backend& inner) : ForwardingBackend(inner) {}

  void product(const Matmul& args) override {
    const MatmulShape shape = shape_of(args);
    const auto found = std::ranges::find(products_, shape, &std::pair<MatmulShape, int>::first);
    if (found == products_.end())
      products_.emplace_back(shape, 1);
    else
      ++found->second;
    ForwardingBackend::product(args);
  }

  /// Shapes and calls, in the order in which they first came.
  const std::vector<std::pair<MatmulShape, int>>& products() const { return products_; }

 private:
  std::vector<std::pair<MatmulShape, int>> products_;
};

}  // namespace axonn
