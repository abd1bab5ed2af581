#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// The least number of inserted, deleted and replaced letters and swapped neighbours that turn one
/// word into the other (optimal string alignment); capitals, '-' and '_' do not count.
int edit_distance(std::string_view a, std::string_view b);

/// How far from `word` a guess may be: a third of its letters, at least 1.
int guess_limit(std::string_view word);

/// The candidates nearest to `word`, all those equally near, in their order; none beyond
/// guess_limit(word).
std::vector<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean 'a', 'b' or 'c'?", or nothing if there are no guesses. Words are quoted unless
/// they begin with '['.
std::string did_you_mean(std::span<const std::string> guesses);

/// "a, b, c".
std::string join(std::span<const std::string> words, std::string_view between = ", ");

}  // namespace axonn
