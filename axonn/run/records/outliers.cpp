#include "axonn/run/records/outliers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace axonn {

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// The mean of the last values plus `deviations` of their standard deviations.
double limit_of(const std::vector<double>& last, double deviations) {
  if (deviations == 0 || last.size() < OutlierMeans::kFewest) return kNoLimit;
  const auto count = static_cast<double>(last.size());
  const double mean = std::accumulate(last.begin(), last.end(), 0.0) / count;
  double squares = 0;
  for (const double value : last) squares += (value - mean) * (value - mean);
  return mean + deviations * std::sqrt(squares / (count - 1));
}

}  // namespace

bool OutlierMeans::accept(const OutlierRule& rule, double loss_of_step, double norm_of_step) {
  constexpr double kWarmup = 20, kMeanOf = 100;  // fewer steps give no reliable mean
  const auto most = [&](double mean, const std::vector<double>& last) {
    const double multiple = rule.factor > 0 && steps >= kWarmup ? rule.factor * mean : kNoLimit;
    return std::min(multiple, limit_of(last, rule.deviations));
  };
  const double most_loss = most(loss, losses), most_norm = most(norm, norms);
  const bool outlier = loss_of_step > most_loss || norm_of_step > most_norm;
  skipped = outlier ? skipped + 1 : 0;
  skipped_total += outlier ? 1 : 0;
  loss_of_step = std::min(loss_of_step, most_loss);
  norm_of_step = std::min(norm_of_step, most_norm);
  steps += 1;
  const double share = 1 / std::min(steps, kMeanOf);
  loss += share * (loss_of_step - loss);
  norm += share * (norm_of_step - norm);
  for (const auto& [last, value] :
       {std::pair{&losses, loss_of_step}, std::pair{&norms, norm_of_step}}) {
    last->push_back(value);
    const std::size_t kept = std::min(rule.deviations > 0 ? kWindow : 0, last->size());
    last->erase(last->begin(), last->end() - static_cast<std::ptrdiff_t>(kept));
  }
  return !outlier;
}

}  // namespace axonn
