#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "axonn/ops/forwarding_backend.h"
#include "axonn/ops/matmul_shape.h"

namespace axonn {

/// Counts the products that pass through it to another backend, by shape.
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

  /// Shapes and numbers of calls, in the order of first calls.
  const std::vector<std::pair<MatmulShape, int>>& products() const { return products_; }

 private:
  std::vector<std::pair<MatmulShape, int>> products_;
};

}  // namespace axonn
