#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "axonn/plan/planner/machine/machine.h"

namespace axonn {

/// Fits of a machine's constants to measured times, see docs/planning-model.md. Those of products
/// and of groups minimise squared relative errors, so that short times count as much as long ones.

struct TimedProduct {
  std::int64_t m = 1, n = 1, k = 1;
  double seconds = 0;  ///< of one product, without its launch
};

/// Throws without products, or if a time is not positive.
ProductRate fit_product_rate(std::span<const TimedProduct> products);

struct TimedRows {
  double bytes = 0;
  double seconds = 0;
};

/// Bytes per second, for seconds = launch_s + bytes / rate: the sum of bytes over the sum of times.
/// Throws without times, or if one is not positive.
double fit_rows_rate(std::span<const TimedRows> times, double launch_s);

struct TimedCollective {
  std::string operation;   ///< "all_reduce"
  int size = 2;            ///< of the group
  std::int64_t bytes = 0;  ///< of the larger buffer
  double seconds = 0;
};

/// The latency of a hop and the rate that fit the times best, if each collective takes the faster
/// of ring and tree. All times must be of groups of one shape. Throws without times.
GroupRate fit_group_rate(std::span<const TimedCollective> times);

}  // namespace axonn
