#include "axonn/model/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "axonn/base/check.h"

namespace axonn {

std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double uniform) {
  AXONN_CHECK(!logits.empty() && sampling.temperature >= 0 && sampling.top_k >= 0 &&
                  sampling.top_p > 0 && sampling.top_p <= 1,
              "sample: ", logits.size(), " logits, temperature ", sampling.temperature, ", top_k ",
              sampling.top_k, ", top_p ", sampling.top_p,
              "; wanted temperature >= 0, top_k >= 0, 0 < top_p <= 1");
  AXONN_CHECK(std::ranges::none_of(logits, [](float x) { return std::isnan(x); }),
              "sample: a logit is NaN; the model is broken");
  const auto best = std::ranges::max_element(logits);
  if (sampling.temperature == 0) return static_cast<std::int32_t>(best - logits.begin());

  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  if (sampling.top_k > 0 && sampling.top_k < std::ssize(order)) order.resize(sampling.top_k);
  std::vector<double> upto;  // cumulative, not normalised
  double total = 0;
  for (std::int32_t token : order)
    upto.push_back(total += std::exp((logits[token] - *best) / sampling.temperature));
  const auto last = std::ranges::lower_bound(upto, sampling.top_p * total);
  const double kept = last == upto.end() ? total : *last;
  const auto chosen = std::ranges::upper_bound(upto, uniform * kept);
  return order[std::min<std::ptrdiff_t>(chosen - upto.begin(), std::ssize(order) - 1)];
}

}  // namespace axonn
