#include "axonn/options/options_suggest.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace axonn {

namespace {

char folded(char c) {
  return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before, above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = folded(a[i - 1]) == folded(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
          folded(a[i - 2]) == folded(b[j - 1]))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

int guess_limit(std::string_view word) { return std::max(1, static_cast<int>(word.size()) / 3); }

std::vector<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  std::vector<std::string> best;
  int least = guess_limit(word);
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    if (distance > least) continue;
    if (distance < least) best.clear();
    least = distance;
    best.push_back(candidate);
  }
  return best;
}

std::string did_you_mean(std::span<const std::string> guesses) {
  std::string text;
  for (std::size_t i = 0; i < guesses.size(); ++i) {
    text += i == 0 ? "; did you mean " : i + 1 == guesses.size() ? " or " : ", ";
    text += guesses[i].starts_with('[') ? guesses[i] : '\'' + guesses[i] + '\'';
  }
  return text.empty() ? text : text + '?';
}

std::string join(std::span<const std::string> words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

}  // namespace axonn
