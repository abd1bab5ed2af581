#include "axonn/use/infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// The first i for which weights 0 to i add up to more than `wanted`, or else the last.
template <typename Weight>
std::size_t reach(std::size_t count, Weight weight, double wanted) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < count; ++i)
    if ((sum += weight(i)) > wanted) return i;
  return count - 1;
}

void check_sampling(std::span<const float> logits, const Sampling& sampling, double uniform,
                    float most) {
  AXONN_CHECK(!logits.empty() && sampling.temperature >= 0 && sampling.top_k >= 0 &&
                  sampling.top_p >= 0 && sampling.top_p <= 1 && sampling.min_p >= 0 &&
                  sampling.min_p <= 1,
              "sample: ", logits.size(), " logits, temperature ", sampling.temperature, ", top_k ",
              sampling.top_k, ", top_p ", sampling.top_p, ", min_p ", sampling.min_p,
              "; wanted temperature >= 0, top_k >= 0, top_p and min_p from 0 to 1");
  AXONN_CHECK(!std::isnan(most), "sample: a logit is NaN; the model is broken");
  AXONN_CHECK(uniform >= 0 && uniform < 1, "sample: a random number of ", uniform,
              ", wanted one in [0, 1)");
}

}  // namespace

float largest_logit(std::span<const float> logits) {
  float most = -std::numeric_limits<float>::infinity();
  int unordered = 0;
#pragma omp simd reduction(max : most) reduction(+ : unordered)
  for (std::size_t i = 0; i < logits.size(); ++i) {
    most = std::max(most, logits[i]);
    unordered += logits[i] != logits[i] ? 1 : 0;
  }
  return unordered > 0 ? std::numeric_limits<float>::quiet_NaN() : most;
}

void penalise(std::span<float> logits, std::span<const std::int32_t> seen, double penalty) {
  AXONN_CHECK(penalty > 0, "penalise: a repetition penalty of ", penalty, ", wanted more than 0");
  if (penalty == 1) return;
  std::vector<bool> done(logits.size());
  const auto factor = static_cast<float>(penalty);
  for (const std::int32_t token : seen) {
    if (token < 0 || token >= std::ssize(logits) || done[token]) continue;
    done[token] = true;
    logits[token] = logits[token] > 0 ? logits[token] / factor : logits[token] * factor;
  }
}

void penalise_generated(std::span<float> logits, std::span<const std::int32_t> generated,
                        const Sampling& sampling) {
  if (sampling.presence_penalty == 0 && sampling.frequency_penalty == 0) return;
  std::map<std::int32_t, std::int64_t> counts;
  for (const std::int32_t token : generated) ++counts[token];
  for (const auto& [token, count] : counts) {
    if (token < 0 || token >= std::ssize(logits)) continue;
    logits[token] -= static_cast<float>(sampling.presence_penalty +
                                        static_cast<double>(count) * sampling.frequency_penalty);
  }
}

std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double uniform) {
  const float most = largest_logit(logits);
  check_sampling(logits, sampling, uniform, most);
  const auto best = std::ranges::find(logits, most);
  if (sampling.temperature == 0) return static_cast<std::int32_t>(best - logits.begin());

  const std::size_t V = logits.size();
  std::vector<float> weights(V);
  std::ranges::transform(logits, weights.begin(), [&](float logit) {
    if (logit == *best) return 1.0f;   // also of infinite logits, whose difference is NaN
    constexpr double kLowest = -1000;  // e to this is 0 in f32
    const double exponent = (double{logit} - *best) / sampling.temperature;
    return exponent > kLowest ? std::exp(static_cast<float>(exponent)) : 0.0f;
  });
  const bool all = sampling.top_k == 0 || sampling.top_k >= std::ssize(logits);
  const auto unlikely = [&](float weight) { return weight < sampling.min_p; };  // the best has 1
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (all && sampling.top_p == 1 && sampling.min_p > 0) {
    std::ranges::replace_if(weights, unlikely, 0.0f);
    total = std::accumulate(weights.begin(), weights.end(), 0.0);
  }
  if (all && sampling.top_p == 1)
    return static_cast<std::int32_t>(reach(
        V, [&](std::size_t i) { return weights[i]; }, uniform * total));

  // Tokens from the likeliest down, of equally likely ones the lower id first; the first `sorted`
  // are in order.
  std::vector<std::int32_t> order(V);
  std::iota(order.begin(), order.end(), 0);
  std::size_t sorted = 0;
  const auto sort = [&](std::size_t count) {
    sorted = std::min(count, V);
    std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(sorted),
                              [&](std::int32_t a, std::int32_t b) {
                                return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                              });
  };
  sort(all ? 64 : sampling.top_k);
  const auto weight = [&](std::size_t i) { return weights[order[i]]; };
  const auto mass = [&](std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += weight(i);
    return sum;
  };
  if (!all) total = mass(sorted);
  while (all && sorted < V && mass(sorted) < sampling.top_p * total) sort(sorted * 8);
  // The fewest of the likeliest tokens that together reach top_p.
  std::size_t kept = sorted;
  double before = 0;
  for (std::size_t i = 0; i < sorted && kept == sorted; ++i)
    if ((before += weight(i)) >= sampling.top_p * total) kept = i + 1;
  while (kept > 1 && unlikely(weight(kept - 1))) --kept;
  return order[reach(kept, weight, uniform * mass(kept))];
}

}  // namespace axonn
