#include "axonn/infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// exp((logit - best) / temperature) of every token.
std::vector<float> weights_of(std::span<const float> logits, float best, double temperature) {
  const float scale = static_cast<float>(1 / temperature);
  std::vector<float> weights(logits.size());
  std::ranges::transform(logits, weights.begin(),
                         [=](float logit) { return std::exp((logit - best) * scale); });
  return weights;
}

/// The first i for which weights 0 to i add up to more than `wanted`, or else the last.
template <typename Weight>
std::size_t reach(std::size_t count, Weight weight, double wanted) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < count; ++i)
    if ((sum += weight(i)) > wanted) return i;
  return count - 1;
}

/// Tokens from the likeliest down; of equally likely ones, the lower id comes first. Only the first
/// sorted() tokens are in order.
class Likeliest {
 public:
  explicit Likeliest(std::span<const float> logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  std::int32_t operator[](std::size_t i) const { return order_[i]; }
  std::size_t sorted() const { return sorted_; }

  void sort(std::size_t count) {
    sorted_ = std::min(count, order_.size());
    std::ranges::partial_sort(order_, order_.begin() + static_cast<std::ptrdiff_t>(sorted_),
                              [this](std::int32_t a, std::int32_t b) {
                                return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
                              });
  }

 private:
  std::span<const float> logits_;
  std::vector<std::int32_t> order_;
  std::size_t sorted_ = 0;
};

}  // namespace

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

  const std::size_t V = logits.size();
  const std::vector<float> weights = weights_of(logits, *best, sampling.temperature);
  const bool all = sampling.top_k == 0 || sampling.top_k >= std::ssize(logits);
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (all && sampling.top_p == 1)
    return static_cast<std::int32_t>(reach(
        V, [&](std::size_t i) { return weights[i]; }, uniform * total));

  Likeliest order(logits);
  order.sort(all ? 64 : sampling.top_k);
  const auto weight = [&](std::size_t i) { return weights[order[i]]; };
  const auto mass = [&](std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += weight(i);
    return sum;
  };
  if (!all) total = mass(order.sorted());
  while (all && order.sorted() < V && mass(order.sorted()) < sampling.top_p * total)
    order.sort(order.sorted() * 8);
  // The fewest of the likeliest tokens that together reach top_p.
  std::size_t kept = order.sorted();
  double before = 0;
  for (std::size_t i = 0; i < order.sorted() && kept == order.sorted(); ++i)
    if ((before += weight(i)) >= sampling.top_p * total) kept = i + 1;
  return order[reach(kept, weight, uniform * mass(kept))];
}

}  // namespace axonn
