#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/options/options.h"
#include "axonn/options/options_suggest.h"

namespace axonn {

namespace {

using Names = std::vector<std::string>;

/// A longer list of guesses would not help the user.
constexpr std::size_t kMostGuesses = 4;

bool is_word_of(std::string_view word, std::string_view words) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
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
