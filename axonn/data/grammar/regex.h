#pragma once

#include <string_view>

#include "axonn/data/grammar/expression.h"

namespace axonn {

struct RegexOptions {
  /// Whether the text may have more before and after a match, unless ^ and $ say otherwise.
  bool searches = false;
  WriteCharacters write = character_of;
};

/// The texts that match a regular expression as a whole: characters, ., [...], [^...], \d \w \s and
/// their opposites (of ASCII, as in ECMAScript), escapes, (...), (?:...), (?<name>...), |, *, +, ?,
/// {n}, {n,}, {n,m}, lazy or not. ^ and $ may stand at the ends. Throws UsageError that names what
/// is not supported: lookaround, backreferences, \b, \p, flags; and if it is no regular expression,
/// or repeats more than 1,000 times.
ExpressionPtr regex(std::string_view pattern, Rules& rules, const RegexOptions& options = {});

}  // namespace axonn
