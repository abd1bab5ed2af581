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

/// What the parsers of regular expressions and grammars have in common: reading, alternatives and
/// sets of characters.
class PatternReader {
 protected:
  static constexpr std::int64_t kMostRepeats = 1000;
  static constexpr int kMostGroups = 100;  ///< within one another

  /// Throws UsageError if the text is not UTF-8. `what` names it in messages: "the pattern".
  PatternReader(std::string_view text, const char* what, Rules& rules, WriteCharacters write);
  virtual ~PatternReader() = default;

  /// Throws UsageError with the location.
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

  /// Sequences with | between them, within so many groups.
  ExpressionPtr alternatives(int depth);
  virtual ExpressionPtr sequence(int depth) = 0;
  /// One character of a set, which is a rule, so that repeating it is cheap.
  ExpressionPtr characters(const CodeRanges& ranges);

  Rules& rules_;
  const std::string_view text_;
  std::size_t at_ = 0;  ///< bytes that were read

 private:
  const char* const what_;
  const WriteCharacters write_;
  std::map<CodeRanges, ExpressionPtr> sets_;
};

}  // namespace axonn
