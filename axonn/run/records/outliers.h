#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace axonn {

/// Which steps are outliers: those whose loss or gradient norm exceeds one of two limits.
struct OutlierRule {
  double factor = 0;      ///< times the running mean of about the last hundred steps; 0: no limit
  double deviations = 0;  ///< standard deviations above the mean of the last 128 steps; 0: no limit
};

/// Loss and gradient norm of the last steps, and which of them were outliers.
struct OutlierMeans {
  static constexpr std::size_t kWindow = 128;  ///< steps of the standard deviation
  static constexpr std::size_t kFewest = 64;   ///< fewer give no reliable deviation

  double loss = 0, norm = 0;       ///< running means over about the last hundred steps
  double steps = 0;                ///< number of steps in the means
  std::int64_t skipped = 0;        ///< number of outliers since the last step that was applied
  std::int64_t skipped_total = 0;  ///< number of outliers in the whole run
  /// Of the last kWindow steps, oldest first; empty unless the rule has deviations.
  std::vector<double> losses = {}, norms = {};

  /// Returns whether to apply the step, and adds it to the means. An outlier is not applied, and
  /// counts in the means as the limit that it exceeds, so that they follow a loss that stays high.
  /// Gives the same answer on every rank if its inputs are the same.
  bool accept(const OutlierRule& rule, double loss_of_step, double norm_of_step);
};

}  // namespace axonn
