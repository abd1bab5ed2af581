#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "axonn/plan/machine.h"

namespace axonn {

/// Fits of a machine's constants to what was timed, see docs/planning.md. All of them make the sum
/// of squares of the relative errors small, so that short times count as much as long ones.

struct TimedProduct {
  std::int64_t m = 1, n = 1, k = 1;
  double seconds = 0;  ///< of one product, without its launch
};

/// Errors: Error without products, or with one that took no time.
ProductRate fit_product_rate(std::span<const TimedProduct> products);

struct TimedRows {
  double bytes = 0;
  double seconds = 0;
};

/// Bytes a second: seconds = launch_s + bytes / rate. Errors: Error without times, or with one that
/// is not positive.
double fit_rows_rate(std::span<const TimedRows> times, double launch_s);

struct TimedCollective {
  std::string operation;   ///< "all_reduce"
  int size = 2;            ///< of the group
  std::int64_t bytes = 0;  ///< of the larger buffer
  double seconds = 0;
};

/// The latency of a hop and the rate that explain them best, where each took the less of ring and
/// tree. They are of groups of one shape. Errors: Error without times.
GroupRate fit_group_rate(std::span<const TimedCollective> times);

}  // namespace axonn
