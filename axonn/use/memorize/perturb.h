#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace axonn {

/// What a document is changed by before it is learned in place of itself. none: by nothing; tokens:
/// some of its tokens are others, see near_duplicate(); the others change its text.
enum class Perturbation { none, tokens, paraphrase, names };
inline constexpr std::array<std::string_view, 4> kPerturbations = {"none", "tokens", "paraphrase",
                                                                   "names"};

/// The text in other words, by two rules, each of which is applied in half of all places, drawn
/// with the seed: a word of a table of English synonyms (synonyms.h) becomes another of its row,
/// and two neighbouring sentences of a line change places. If nothing was drawn, all places change;
/// the result is the text itself only if there is none.
std::string paraphrased(std::string_view text, std::uint64_t seed);

/// The text with its names in another language, which the seed invents: a name's vowels become
/// other vowels, its consonants other consonants, so that each letter changes and a name is the
/// same everywhere. A name is a word of three or more ASCII letters, the first of which alone is a
/// capital, that somewhere in the text stands within a sentence, or at a sentence's beginning right
/// before such a word; but no month, day, title, or one of the words that often begin a sentence.
std::string with_translated_names(std::string_view text, std::uint64_t seed);

}  // namespace axonn
