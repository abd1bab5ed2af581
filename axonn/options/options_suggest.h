#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/options/options.h"

namespace axonn {

/// The least number of insertions, deletions, replacements and swaps of neighbours that turn one
/// word into the other (optimal string alignment). Ignores case and treats '-' and '_' as equal.
int edit_distance(std::string_view a, std::string_view b);

/// The largest edit distance of a guess for `word`: a third of its letters, at least 1.
int guess_limit(std::string_view word);

/// All candidates at the smallest edit distance from `word`, in their order. Empty if that distance
/// is above guess_limit(word).
std::vector<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean 'a', 'b' or 'c'?", or an empty string if there are no guesses. Words are quoted
/// unless they begin with '['.
std::string did_you_mean(std::span<const std::string> guesses);

/// Joins words: "a, b, c".
std::string join(std::span<const std::string> words, std::string_view between = ", ");

/// Throws the UsageError for an unknown section or key, with suggestions.
[[noreturn]] void refuse_section(const OptionList& list, std::string_view section,
                                 const std::string& place);
[[noreturn]] void refuse_key(const OptionList& list, std::string_view section,
                             std::string_view name, const std::string& place);

/// Suggests options for an unknown key, likeliest first: "lr", or "[optimizer] lr" if the option
/// belongs to another section. A key of the section at edit distance 1 is always among them, as
/// long as there are at most four.
std::vector<std::string> guess_key(const OptionList& list, std::string_view section,
                                   std::string_view name);

}  // namespace axonn
