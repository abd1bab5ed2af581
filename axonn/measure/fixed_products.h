#pragma once

#include <cstdint>
#include <vector>

#include "axonn/model/model.h"

namespace axonn {

/// One timed product: out (m, n) = a (m, k) · b (n, k)ᵀ, all of the context's dtype, on random
/// values.
class PeakProduct {
 public:
  PeakProduct(const Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k);

  /// Computes and times it once.
  void run();
  /// Flop/s, the median of the runs.
  double median_rate();

 private:
  Context ctx_;
  Tensor out_, a_, b_;
  double flops_;
  std::vector<double> rates_;
};

/// Products with shapes of common layers, and one that is as fast as products get, which on a GPU
/// must be larger.
std::vector<PeakProduct> fixed_products(const Context& ctx);

}  // namespace axonn
