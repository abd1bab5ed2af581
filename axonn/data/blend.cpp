#include "axonn/data/blend.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>

#include "axonn/base/check.h"
#include "axonn/base/files.h"

namespace axonn {

namespace {

std::optional<double> number_in(const std::string& word) {
  double number = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

/// Whether the path names a file or is the prefix of Megatron files.
bool is_there(const std::string& path) { return path_exists(path) || path_exists(path + ".idx"); }

/// The words of all entries. An entry that is an existing path is one word.
std::vector<std::string> words_of(const std::vector<std::string>& entries) {
  std::vector<std::string> words;
  for (const std::string& entry : entries) {
    if (is_there(entry)) {
      words.push_back(entry);
      continue;
    }
    std::istringstream stream(entry);
    for (std::string word; stream >> word;) words.push_back(word);
  }
  return words;
}

}  // namespace

Blend::Blend(std::span<const double> weights) : in_period_(weights.size()) {
  AXONN_CHECK(!weights.empty(), "a blend needs at least one source");
  for (double weight : weights)
    if (!(weight > 0) || !std::isfinite(weight))
      refuse("a blend's weights must be positive numbers; got ", weight);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!std::isfinite(sum)) refuse("a blend's weights are too large; their sum is not finite");
  const std::int64_t period = weights.size() == 1 ? 1 : kPeriod;
  for (std::int64_t n = 0; n < period; ++n) {
    const double drawn = static_cast<double>(std::max<std::int64_t>(n, 1));
    std::size_t most_behind = 0;
    double worst = -std::numeric_limits<double>::infinity();
    for (std::size_t s = 0; s < weights.size(); ++s) {
      const double behind = weights[s] / sum * drawn - static_cast<double>(in_period_[s]);
      if (behind > worst) {
        worst = behind;
        most_behind = s;
      }
    }
    source_.push_back(static_cast<std::int32_t>(most_behind));
    earlier_.push_back(static_cast<std::int32_t>(in_period_[most_behind]++));
  }
  for (std::size_t s = 0; s < weights.size(); ++s)
    if (weights[s] / sum * kPeriod < 1 || in_period_[s] == 0)
      refuse("the weight ", weights[s], " is too small a share of the sum ", sum,
             "; a source's share must be at least 1/", kPeriod);
}

Blend::Draw Blend::draw(std::int64_t n) const {
  const auto period = std::ssize(source_);
  const std::int64_t turn = n / period, place = n % period;
  return {source_[place], turn * in_period_[source_[place]] + earlier_[place]};
}

BlendPaths parse_blend(const std::vector<std::string>& entries) {
  const std::vector<std::string> words = words_of(entries);
  if (words.empty()) refuse("data.tokens is empty; give token files, or weights and prefixes");
  BlendPaths blend{};
  blend.weighted = number_in(words[0]) && !is_there(words[0]);
  if (!blend.weighted) {
    for (const std::string& word : words) blend.paths.push_back({1, word});
    return blend;
  }
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const auto weight = number_in(words[i]);
    if (!weight)
      refuse("data.tokens: expected a weight before ", words[i],
             "; a blend is \"w1 path1 w2 path2 ...\"");
    if (!(*weight > 0) || !std::isfinite(*weight))
      refuse("data.tokens: the weight ", words[i], " is not a positive number");
    if (i + 1 == words.size())
      refuse("data.tokens: no path after the weight ", words[i],
             "; a blend is \"w1 path1 w2 path2 ...\"");
    blend.paths.push_back({*weight, words[i + 1]});
  }
  return blend;
}

}  // namespace axonn
