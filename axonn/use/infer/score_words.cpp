#include "axonn/use/infer/score_words.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "axonn/foundation/base/check.h"

namespace axonn {

std::size_t score_words(std::int64_t likeliest) {
  return 1 + 2 * static_cast<std::size_t>(std::max<std::int64_t>(likeliest, 0));
}

void append(std::vector<std::int32_t>& words, const TokenScore& score) {
  words.push_back(std::bit_cast<std::int32_t>(score.log_probability));
  for (const auto& [token, log_probability] : score.likeliest) {
    words.push_back(token);
    words.push_back(std::bit_cast<std::int32_t>(log_probability));
  }
}

TokenScore take_score(std::span<const std::int32_t>& words, std::int64_t likeliest) {
  TokenScore score{.log_probability = std::bit_cast<float>(words.front())};
  const std::size_t size = score_words(likeliest);
  for (std::size_t i = 1; i < size; i += 2)
    score.likeliest.emplace_back(words[i], std::bit_cast<float>(words[i + 1]));
  words = words.subspan(size);
  return score;
}

TokenScore score_of(std::span<const float> logits, std::int32_t token, std::int64_t count,
                    std::int64_t known) {
  AXONN_CHECK(token >= 0 && token < std::ssize(logits), "score_of: token ", token, " of ",
              logits.size(), " logits");
  const float most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - most);
  const double log_sum = most + std::log(sum);
  const auto log_probability = [&](std::int32_t i) {
    return static_cast<float>(logits[i] - log_sum);
  };
  TokenScore score{.log_probability = log_probability(token)};
  if (count <= 0) return score;
  std::vector<std::int32_t> ids(std::min<std::int64_t>(known, std::ssize(logits)));
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<std::ptrdiff_t>(count, std::ssize(ids));
  std::ranges::partial_sort(ids, end, [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  for (auto i = ids.begin(); i != end; ++i) score.likeliest.emplace_back(*i, log_probability(*i));
  return score;
}

}  // namespace axonn
