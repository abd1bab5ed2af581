#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "axonn/data/grammar/expression.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

/// Ranges of code points.
using CodeRanges = std::vector<CodeRange>;
inline constexpr char32_t kLastCode = 0x10ffff;

/// Sorted, without overlaps.
CodeRanges tidy(CodeRanges ranges);
/// All code points but these.
CodeRanges others(const CodeRanges& ranges);

/// Reads the text of a regular expression or grammar, for its parser.
class PatternReader {
 protected:
  static constexpr std::int64_t kMostRepeats = 1000;
  static constexpr int kMostGroups = 100;  ///< within one another

  /// Throws UsageError if the text is not UTF-8. `what` names it in messages: "the pattern".
  PatternReader(std::string_view text, const char* what);

  /// Throws UsageError with the place.
  template <typename... Parts>
  [[noreturn]] void fault(const Parts&... parts) const {
    if (text_.find('\n') == text_.npos) refuse(what_, ", at byte ", at_ + 1, ": ", parts...);
    refuse(what_, ", line ", 1 + std::ranges::count(text_.substr(0, at_), '\n'), ": ", parts...);
  }

  bool done() const { return at_ == text_.size(); }
  bool sees(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  bool take(std::string_view word) {
    if (!sees(word)) return false;
    at_ += word.size();
    return true;
  }
  char32_t take_code();
  /// A number of repetitions.
  std::int64_t number();
  char32_t hexadecimal(std::size_t digits);

  const std::string_view text_;
  std::size_t at_ = 0;  ///< bytes that were read

 private:
  const char* const what_;
};

/// Sets of characters as rules, so that repeating one is cheap.
class CharacterRules {
 public:
  explicit CharacterRules(Rules& rules) : rules_(rules) {}

  /// `write` gives the expression of a set that is not known yet.
  template <typename Write>
  ExpressionPtr of(const CodeRanges& ranges, const Write& write) {
    ExpressionPtr& known = known_[ranges];
    if (!known) known = rules_.add(write(ranges));
    return known;
  }

 private:
  Rules& rules_;
  std::map<CodeRanges, ExpressionPtr> known_;
};

}  // namespace axonn
