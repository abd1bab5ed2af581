#pragma once

#include <cstdint>
#include <vector>

#include "axonn/network/model/model.h"

namespace axonn {

/// One timed product: out (m, n) = a (m, k) · b (n, k)ᵀ, all of the context's dtype, on random
/// values.
class PeakProduct {
 public:
  PeakProduct(const Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k);

  /// Computes and times it once.
  void run();
  /// The median of the runs.
  double median_seconds();
  /// Flop/s, of that time.
  double median_rate() { return flops_ / median_seconds(); }

 private:
  Context ctx_;
  Tensor out_, a_, b_;
  double flops_;
  std::vector<double> seconds_;
};

/// Products with shapes of common layers, and one that is as fast as products get, which must be
/// larger on a device that computes the others in a few milliseconds. Runs some of them.
std::vector<PeakProduct> fixed_products(const Context& ctx);

}  // namespace axonn
