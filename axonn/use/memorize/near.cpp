#include "axonn/use/memorize/near.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// log(e^a + e^b).
double log_sum(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kNever ? a : a + std::log1p(std::exp(b - a));
}

}  // namespace

NearSearch::NearSearch(std::span<const std::int32_t> text, const NearOptions& options)
    : text_(text.begin(), text.end()), options_(options) {
  AXONN_CHECK(!text_.empty() && options.epsilon >= 0 && options.beams >= 1,
              "NearSearch: a text of ", text_.size(), " tokens, epsilon ", options.epsilon, ", ",
              options.beams, " beams");
  Prefix empty;
  empty.row.resize(text_.size() + 1);
  std::iota(empty.row.begin(), empty.row.end(), 0);
  states_.push_back(std::move(empty));
}

NearSearch::Prefix NearSearch::continued(const Prefix& from, std::int32_t token,
                                         double log_q) const {
  Prefix to{.log_q = from.log_q + log_q,
            .row = from.row,
            .true_so_far = from.true_so_far && token == text_[length_]};
  if (options_.distance == TextDistance::hamming) {
    to.row[length_ + 1] = from.row[length_] + (token != text_[length_]);
    return to;
  }
  to.row[0] = length_ + 1;
  for (std::size_t j = 1; j < to.row.size(); ++j)
    to.row[j] =
        std::min({from.row[j - 1] + (token != text_[j - 1]), from.row[j] + 1, to.row[j - 1] + 1});
  return to;
}

/// Whether a prefix of this length can end within the distance.
bool NearSearch::viable(const Prefix& prefix, std::int64_t length) const {
  if (options_.distance == TextDistance::hamming) return prefix.row[length] <= options_.epsilon;
  for (std::int64_t j = 0; j < std::ssize(prefix.row); ++j)
    if (prefix.row[j] + std::abs(j - length) <= options_.epsilon) return true;
  return false;
}

void NearSearch::step(std::span<const std::vector<TokenChance>> next) {
  AXONN_CHECK(!done() && next.size() == prefixes_.size(), "NearSearch::step: next tokens of ",
              next.size(), " prefixes, wanted of ", prefixes_.size());
  struct Child {
    std::vector<std::int32_t> tokens;
    Prefix state;
  };
  std::vector<Child> children;
  for (std::size_t i = 0; i < prefixes_.size(); ++i)
    for (const auto& [token, log_q] : next[i]) {
      Child child{prefixes_[i], continued(states_[i], token, log_q)};
      if (!viable(child.state, length_ + 1)) continue;
      child.tokens.push_back(token);
      children.push_back(std::move(child));
    }
  // The text's own prefix first, then the likeliest; ties by tokens.
  std::ranges::sort(children, [](const Child& a, const Child& b) {
    if (a.state.true_so_far != b.state.true_so_far) return a.state.true_so_far;
    if (a.state.log_q != b.state.log_q) return a.state.log_q > b.state.log_q;
    return a.tokens < b.tokens;
  });
  const bool last = length_ + 1 == std::ssize(text_);  // all of them are texts: none is dropped
  prefixes_.clear();
  states_.clear();
  for (Child& child : children) {
    if (!last && std::ssize(prefixes_) == options_.beams) {
      lost_ += std::exp(child.state.log_q);
      continue;
    }
    prefixes_.push_back(std::move(child.tokens));
    states_.push_back(std::move(child.state));
  }
  ++length_;
}

NearBounds NearSearch::bounds() const {
  AXONN_CHECK(done(), "NearSearch::bounds: ", length_, " of ", text_.size(), " steps");
  NearBounds bounds{.low = kNever, .high = kNever, .exact = kNever};
  for (const Prefix& state : states_) {
    bounds.low = log_sum(bounds.low, state.log_q);
    if (state.true_so_far) bounds.exact = state.log_q;
    ++bounds.found;
  }
  bounds.high = std::min(0.0, log_sum(bounds.low, lost_ > 0 ? std::log(lost_) : kNever));
  return bounds;
}

NearBounds near_bounds(std::span<const std::int32_t> text, const NextTokens& next,
                       const NearOptions& options) {
  NearSearch search(text, options);
  while (!search.done()) search.step(next(search.prefixes()));
  return search.bounds();
}

std::int64_t kept_tokens(const SamplingPolicy& policy, std::int64_t vocab) {
  return policy.top_k > 0 ? std::min<std::int64_t>(policy.top_k, vocab) : vocab;
}

std::vector<TokenChance> chances_of(std::span<const std::pair<std::int32_t, float>> likeliest,
                                    const SamplingPolicy& policy, std::int64_t vocab) {
  const std::int64_t kept = kept_tokens(policy, vocab);
  if (std::ssize(likeliest) < kept)
    refuse("near-verbatim probabilities need the ", kept, " likeliest tokens of the policy, and ",
           "there are ", likeliest.size(),
           "; choose a policy with a smaller top-k, as in t=1,k=40");
  std::vector<TokenChance> chances;
  double sum = 0;
  const double most = likeliest.front().second;
  for (std::int64_t i = 0; i < kept; ++i) {
    const double weight = policy.temperature == 0
                              ? (i == 0 ? 1 : 0)
                              : std::exp((likeliest[i].second - most) / policy.temperature);
    if (weight == 0) break;
    chances.emplace_back(likeliest[i].first, std::log(weight));
    sum += weight;
  }
  double mass = 0;  // of those that top-p leaves
  std::size_t count = 0;
  for (; count < chances.size() && (count == 0 || mass < policy.top_p * sum); ++count)
    mass += std::exp(chances[count].second);
  chances.resize(count);
  for (auto& [token, log_q] : chances) log_q -= std::log(mass);
  return chances;
}

}  // namespace axonn
