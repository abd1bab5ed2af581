#include "axonn/data/grammar/regex.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

constexpr std::int64_t kMostRepeats = 1000;
constexpr int kMostGroups = 100;  // within one another
constexpr char32_t kLastCode = 0x10ffff;

using Ranges = std::vector<CodeRange>;

const Ranges kDigits{{'0', '9'}}, kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
    kSpaces{{'\t', '\r'}, {' ', ' '}};

/// Sorted, without overlaps.
Ranges tidy(Ranges ranges) {
  std::ranges::sort(ranges);
  Ranges out;
  for (const auto& [first, last] : ranges)
    if (!out.empty() && first <= out.back().second + 1)
      out.back().second = std::max(out.back().second, last);
    else
      out.emplace_back(first, last);
  return out;
}

Ranges others(const Ranges& ranges) {
  Ranges out;
  char32_t next = 0;
  for (const auto& [first, last] : tidy(ranges)) {
    if (first > next) out.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastCode) out.emplace_back(next, kLastCode);
  return out;
}

class RegexParser {
 public:
  RegexParser(std::string_view pattern, Rules& rules, const RegexOptions& options)
      : pattern_(pattern), rules_(rules), options_(options) {
    if (valid_utf8_prefix(pattern) != pattern.size()) refuse("the pattern is not UTF-8");
  }

  ExpressionPtr parse() {
    ExpressionPtr all = alternatives(0);
    if (at_ < pattern_.size()) fault("a ) without its (");
    return all;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fault(const Parts&... parts) const {
    refuse("the pattern, at byte ", at_ + 1, ": ", parts...);
  }
  bool done() const { return at_ == pattern_.size(); }
  bool sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!sees(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_code() {
    if (done()) fault("it ends too early");
    const char32_t code = code_point(pattern_.substr(at_));
    at_ += utf8_front(pattern_.substr(at_)).bytes;
    return code;
  }

  /// A set of characters is a rule, so that repeating it is cheap.
  ExpressionPtr characters(const Ranges& ranges) {
    const Ranges wanted = tidy(ranges);
    if (wanted.empty()) fault("no character fits");
    ExpressionPtr& known = sets_[wanted];
    if (!known) known = rules_.add(options_.write(wanted));
    return known;
  }
  ExpressionPtr anything() { return repeated(characters({{0, kLastCode}}), 0); }

  ExpressionPtr alternatives(int depth) {
    if (depth > kMostGroups) fault("groups nest deeper than ", kMostGroups);
    std::vector<ExpressionPtr> parts;
    do parts.push_back(sequence(depth));
    while (take("|"));
    return either(std::move(parts));
  }

  ExpressionPtr sequence(int depth) {
    std::vector<ExpressionPtr> parts;
    const bool begins = depth == 0 && take("^");
    if (depth == 0 && options_.searches && !begins) parts.push_back(anything());
    bool ends = false;
    while (!done() && !sees("|") && !sees(")") && !ends) {
      ends = depth == 0 && take("$");
      if (!ends) parts.push_back(quantified(item(depth)));
    }
    if (ends && !done() && !sees("|")) fault("$ is supported at the end alone");
    if (depth == 0 && options_.searches && !ends) parts.push_back(anything());
    return in_order(std::move(parts));
  }

  ExpressionPtr item(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return characters(char_class());
    if (take(".")) return characters(others({{'\n', '\n'}}));
    if (sees("^") || sees("$")) fault("^ and $ are supported at the ends of the pattern alone");
    if (sees("*") || sees("+") || sees("?") || sees("{")) fault("there is nothing to repeat");
    if (take("\\")) return characters(escape());
    const char32_t code = take_code();
    return characters({{code, code}});
  }

  ExpressionPtr group(int depth) {
    if (take("?")) {
      const bool named = take("P<") || (sees("<") && !sees("<=") && !sees("<!") && take("<"));
      if (named) {
        const std::size_t end = pattern_.find('>', at_);
        if (end == pattern_.npos) fault("the name of a group does not end");
        at_ = end + 1;
      } else if (!take(":")) {
        fault("lookaround and flags, (?", pattern_.substr(at_, 2), ", are not supported");
      }
    }
    ExpressionPtr inner = alternatives(depth + 1);
    if (!take(")")) fault("a ( without its )");
    return inner;
  }

  ExpressionPtr quantified(ExpressionPtr part) {
    std::int64_t least = 1, most = 1;
    if (take("*")) {
      least = 0, most = GrammarExpression::kUnbounded;
    } else if (take("+")) {
      most = GrammarExpression::kUnbounded;
    } else if (take("?")) {
      least = 0;
    } else if (take("{")) {
      least = most = number();
      if (take(",")) most = sees("}") ? GrammarExpression::kUnbounded : number();
      if (!take("}")) fault("a { that begins no repetition; write \\{ for the character");
      if (most != GrammarExpression::kUnbounded && most < least)
        fault("a repetition with its ends swapped");
    } else {
      return part;
    }
    take("?");  // lazy: the same texts
    if (sees("+") || sees("*") || sees("?") || sees("{"))
      fault("a repetition of a repetition is not supported; write (...)");
    return repeated(std::move(part), least, most);
  }

  std::int64_t number() {
    std::int64_t value = 0;
    const std::size_t begin = at_;
    while (!done() && pattern_[at_] >= '0' && pattern_[at_] <= '9' && value <= kMostRepeats)
      value = value * 10 + (pattern_[at_++] - '0');
    if (at_ == begin) fault("wanted a number; write \\{ for the character {");
    if (value > kMostRepeats) fault("more than ", kMostRepeats, " repetitions");
    return value;
  }

  char32_t hexadecimal(std::size_t digits) {
    char32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char c = done() ? ' ' : lower_ascii(pattern_[at_++]);
      if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) fault("wanted ", digits, " digits");
      code = code * 16 + static_cast<char32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return code;
  }

  /// What follows a backslash.
  Ranges escape() {
    const char32_t code = take_code();
    switch (code) {
      case 'd':
        return kDigits;
      case 'D':
        return others(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return others(kWord);
      case 's':
        return kSpaces;
      case 'S':
        return others(kSpaces);
      case 't':
        return {{'\t', '\t'}};
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'x':
      case 'u': {
        const char32_t given = hexadecimal(code == 'x' ? 2 : 4);
        return {{given, given}};
      }
      default:
        break;
    }
    const bool letter = code < 0x80 && (std::isalnum(static_cast<int>(code)) != 0);
    if (letter) fault("\\", static_cast<char>(code), " is not supported");
    return {{code, code}};
  }

  Ranges char_class() {
    const bool opposite = take("^");
    Ranges ranges;
    for (bool first = true; first || !sees("]"); first = false) {
      if (done()) fault("a [ without its ]");
      if (sees("[:")) fault("classes such as [:alpha:] are not supported");
      const Ranges from = class_member();
      if (!sees("-") || sees("-]") || from.size() != 1 || from[0].first != from[0].second) {
        ranges.insert(ranges.end(), from.begin(), from.end());
        continue;
      }
      take("-");
      const Ranges to = class_member();
      if (to.size() != 1 || to[0].first != to[0].second || to[0].first < from[0].first)
        fault("a range of characters with its ends swapped");
      ranges.emplace_back(from[0].first, to[0].first);
    }
    take("]");
    return opposite ? others(ranges) : ranges;
  }

  Ranges class_member() {
    if (take("\\b")) return {{'\b', '\b'}};
    if (take("\\")) return escape();
    const char32_t code = take_code();
    return {{code, code}};
  }

  const std::string_view pattern_;
  Rules& rules_;
  const RegexOptions& options_;
  std::size_t at_ = 0;
  std::map<Ranges, ExpressionPtr> sets_;
};

}  // namespace

ExpressionPtr regex(std::string_view pattern, Rules& rules, const RegexOptions& options) {
  return RegexParser(pattern, rules, options).parse();
}

}  // namespace axonn
