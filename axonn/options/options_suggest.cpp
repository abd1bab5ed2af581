#include "axonn/options/options_suggest.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "axonn/base/check.h"

namespace axonn {

namespace {

char folded(char c) {
  return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

using Names = std::vector<std::string>;

/// A longer list of guesses would not help the user.
constexpr std::size_t kMostGuesses = 4;

bool is_word_of(std::string_view word, std::string_view words) {
  return !word.empty() && concat(' ', words, ' ').find(concat(' ', word, ' ')) != std::string::npos;
}

Names names_of(const OptionList::Section& section) {
  Names names;
  for (const Option& option : section.options) names.push_back(option.name());
  return names;
}

/// All options for which `matches` is true. Those of this section come first, without the section's
/// name.
template <typename Matches>
Names matching(const OptionList& list, std::string_view section, Matches matches) {
  Names here, elsewhere;
  for (const auto& in : list.sections())
    for (const Option& option : in.options)
      if (matches(option)) {
        if (in.name == section)
          here.push_back(option.name());
        else
          elsewhere.push_back('[' + in.name + "] " + option.name());
      }
  here.insert(here.end(), elsewhere.begin(), elsewhere.end());
  return here;
}

Names all_sections(const OptionList& list) {
  Names names;
  for (const auto& section : list.sections()) names.push_back('[' + section.name + ']');
  return names;
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

std::vector<std::string> guess_key(const OptionList& list, std::string_view section,
                                   std::string_view name) {
  const auto* own = list.find(section);
  Names guesses = own ? nearest(name, names_of(*own)) : Names{};
  const bool close = !guesses.empty() && edit_distance(name, guesses.front()) <= 1;
  if (!close) guesses.clear();
  // A key of another section, or another project's name for a key, is as likely as a typo.
  for (std::string& other : matching(list, section, [&](const Option& option) {
         const bool same =
             name.size() == option.name().size() && edit_distance(name, option.name()) == 0;
         return same || is_word_of(name, option.info().also);
       }))
    if (std::ranges::find(guesses, other) == guesses.end()) guesses.push_back(std::move(other));
  if (guesses.empty() && own) guesses = nearest(name, names_of(*own));
  // A short word is close to too many keys. If the section is unknown, shorter words are tried too,
  // because there is no other hint.
  if (guesses.empty() && name.size() > (own ? 3 : 1))
    guesses = matching(list, section, [&](const Option& option) {
      return edit_distance(name, option.name()) <= std::max(1, guess_limit(name) / 2);
    });
  if (guesses.empty() && name.size() > 3)
    guesses = matching(list, section, [&](const Option& option) {
      return option.name().find(name) != std::string::npos;
    });
  if (guesses.size() > kMostGuesses) guesses.resize(kMostGuesses);
  return guesses;
}

void refuse_section(const OptionList& list, std::string_view section, const std::string& place) {
  Names bare;
  for (const auto& known : list.sections()) bare.push_back(known.name);
  Names guesses = nearest(section, bare);
  for (std::string& guess : guesses) guess = '[' + guess + ']';
  refuse(
      "there is no section [", section, "] (", place, ')',
      guesses.empty() ? "; the sections are " + join(all_sections(list)) : did_you_mean(guesses));
}

void refuse_key(const OptionList& list, std::string_view section, std::string_view name,
                const std::string& place) {
  const auto* own = list.find(section);
  if (!own) refuse_section(list, section, place);
  const Names guesses = guess_key(list, section, name);
  refuse('[', section, "] has no key '", name, "' (", place, ')',
         guesses.empty() ? "; its keys are " + join(names_of(*own)) : did_you_mean(guesses));
}

}  // namespace axonn
