#include "axonn/use/memorize/near.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// log(e^a + e^b).
double log_sum(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kNever ? a : a + std::log1p(std::exp(b - a));
}

}  // namespace

PrefixDistances::PrefixDistances(std::size_t tokens) : row_(tokens + 1) {
  std::iota(row_.begin(), row_.end(), 0);
}

void PrefixDistances::add(std::span<const std::int32_t> text, std::int32_t token,
                          TextDistance distance) {
  ++length_;
  if (distance == TextDistance::hamming) {
    row_[length_] = row_[length_ - 1] + (token != text[length_ - 1]);
    row_.back() = row_[length_];
    return;
  }
  std::int64_t before = std::exchange(row_[0], length_);  // of j - 1, without the token
  for (std::size_t j = 1; j < row_.size(); ++j) {
    const std::int64_t least =
        std::min({before + (token != text[j - 1]), row_[j] + 1, row_[j - 1] + 1});
    before = std::exchange(row_[j], least);
  }
}

bool PrefixDistances::can_be_within(std::int64_t epsilon, TextDistance distance) const {
  if (distance == TextDistance::hamming) return row_[length_] <= epsilon;
  for (std::int64_t j = 0; j < std::ssize(row_); ++j)
    if (row_[j] + std::abs(j - length_) <= epsilon) return true;
  return false;
}

NearSearch::NearSearch(std::span<const std::int32_t> text, const NearOptions& options)
    : text_(text.begin(), text.end()), options_(options) {
  AXONN_CHECK(!text_.empty() && options.epsilon >= 0 && options.beams >= 1,
              "NearSearch: a text of ", text_.size(), " tokens, epsilon ", options.epsilon, ", ",
              options.beams, " beams");
  states_.push_back({.distances = PrefixDistances(text_.size())});
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
      Child child{prefixes_[i], states_[i]};
      child.state.distances.add(text_, token, options_.distance);
      if (!child.state.distances.can_be_within(options_.epsilon, options_.distance)) continue;
      child.state.log_q += log_q;
      child.state.true_so_far = child.state.true_so_far && token == text_[length_];
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

NearSamples::NearSamples(std::span<const std::int32_t> text, NearSampling options)
    : text_(text.begin(), text.end()), options_(std::move(options)) {
  constexpr std::uint64_t kStreams = std::uint64_t{1} << 32;
  AXONN_CHECK(!text_.empty() && !options_.epsilon.empty() && options_.samples >= 1 &&
                  options_.first_stream + options_.samples <= kStreams,
              "NearSamples: a text of ", text_.size(), " tokens, ", options_.epsilon.size(),
              " distances, ", options_.samples, " samples from stream ", options_.first_stream);
  Samples all{.distances = PrefixDistances(text_.size()), .numbers = {}};
  all.numbers.resize(options_.samples);
  std::iota(all.numbers.begin(), all.numbers.end(), 0);
  of_prefix_.push_back(std::move(all));
}

void NearSamples::step(std::span<const std::vector<TokenChance>> next) {
  AXONN_CHECK(!done() && next.size() == prefixes_.size(), "NearSamples::step: next tokens of ",
              next.size(), " prefixes, wanted of ", prefixes_.size());
  const Random random(options_.seed, "generate");  // as choose_token()
  const std::int64_t farthest = std::ranges::max(options_.epsilon);
  std::vector<std::vector<std::int32_t>> prefixes;
  std::vector<Samples> samples;
  for (std::size_t i = 0; i < prefixes_.size(); ++i) {
    std::vector<double> sums;  // of the chances of the first 1, 2, ... tokens
    for (const auto& [token, log_q] : next[i])
      sums.push_back((sums.empty() ? 0 : sums.back()) + std::exp(log_q));
    std::map<std::size_t, std::vector<std::int64_t>> drawn;  // by the token's place in next
    for (const std::int64_t number : of_prefix_[i].numbers) {
      const std::uint64_t draw = (options_.first_stream + number) << 32 | length_;
      const auto at = std::ranges::upper_bound(sums, random.uniform(draw) * sums.back());
      drawn[std::min<std::size_t>(at - sums.begin(), sums.size() - 1)].push_back(number);
    }
    for (auto& [place, numbers] : drawn) {
      Samples some{of_prefix_[i].distances, std::move(numbers)};
      some.distances.add(text_, next[i][place].first, options_.distance);
      if (!some.distances.can_be_within(farthest, options_.distance)) continue;
      prefixes.push_back(prefixes_[i]);
      prefixes.back().push_back(next[i][place].first);
      samples.push_back(std::move(some));
    }
  }
  prefixes_ = std::move(prefixes);
  of_prefix_ = std::move(samples);
  ++length_;
}

std::vector<std::int64_t> NearSamples::found() const {
  AXONN_CHECK(done(), "NearSamples::found: ", length_, " of ", text_.size(), " steps");
  std::vector<std::int64_t> found(options_.epsilon.size(), 0);
  for (const Samples& some : of_prefix_)
    for (std::size_t e = 0; e < found.size(); ++e)
      if (some.distances.whole() <= options_.epsilon[e]) found[e] += std::ssize(some.numbers);
  return found;
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
  if (kept == vocab && policy.top_p == 1) std::ranges::sort(chances, {}, &TokenChance::first);
  return chances;
}

}  // namespace axonn
