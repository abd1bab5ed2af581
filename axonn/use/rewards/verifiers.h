#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace axonn {

/// The reward of an answer's text; NaN if it has none. `wanted`: what the line of its prompt says
/// is right.
using Verifier = std::function<double(std::string_view answer, std::string_view wanted)>;

/// The built-in reward of a name, of 1 or 0:
///
///   exact   the answer is what is wanted, without white space around both
///   number  the last number of the answer is the last one that is wanted: "1,234.50", "-3/4" and
///           "12 %" are numbers, compared as exact fractions
///   format  <think>, no other <think>, </think>, as the answer begins, and then anything
///
/// Throws UsageError for another name.
Verifier make_verifier(const std::string& name);
/// Whether it reads what is wanted.
bool reads_wanted(const std::string& name);

/// What the JSON line of a prompt says is right: a text or number under "answer", "solution",
/// "ground_truth", or "ground_truth" of an object "reward_model". Nothing if there is none.
std::optional<std::string> wanted_of_line(std::string_view line);

/// The last number of a text as a fraction in lowest terms, "-3/4"; nothing if it has none, or one
/// of more than 18 digits.
std::optional<std::string> last_number(std::string_view text);

}  // namespace axonn
