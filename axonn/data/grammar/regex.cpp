#include "axonn/data/grammar/regex.h"

#include <cctype>

#include "axonn/data/grammar/pattern_reader.h"

namespace axonn {

namespace {

const CodeRanges kDigits{{'0', '9'}}, kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
    kSpaces{{'\t', '\r'}, {' ', ' '}};

class RegexParser : PatternReader {
 public:
  RegexParser(std::string_view pattern, Rules& rules, const RegexOptions& options)
      : PatternReader(pattern, "the pattern", rules, options.write), searches_(options.searches) {}

  ExpressionPtr parse() {
    ExpressionPtr all = alternatives(0);
    if (at_ < text_.size()) fault("a ) without its (");
    return all;
  }

 private:
  ExpressionPtr anything() { return repeated(characters({{0, kLastCode}}), 0); }

  ExpressionPtr sequence(int depth) override {
    std::vector<ExpressionPtr> parts;
    const bool begins = depth == 0 && take("^");
    if (depth == 0 && searches_ && !begins) parts.push_back(anything());
    bool ends = false;
    while (!done() && !sees("|") && !sees(")") && !ends) {
      ends = depth == 0 && take("$");
      if (!ends) parts.push_back(quantified(item(depth)));
    }
    if (ends && !done() && !sees("|")) fault("$ is supported at the end alone");
    if (depth == 0 && searches_ && !ends) parts.push_back(anything());
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
        const std::size_t end = text_.find('>', at_);
        if (end == text_.npos) fault("the name of a group does not end");
        at_ = end + 1;
      } else if (!take(":")) {
        fault("lookaround and flags, (?", text_.substr(at_, 2), ", are not supported");
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

  /// What follows a backslash.
  CodeRanges escape() {
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

  CodeRanges char_class() {
    const bool opposite = take("^");
    CodeRanges ranges;
    for (bool first = true; first || !sees("]"); first = false) {
      if (done()) fault("a [ without its ]");
      if (sees("[:")) fault("classes such as [:alpha:] are not supported");
      const CodeRanges from = class_member();
      if (!sees("-") || sees("-]") || from.size() != 1 || from[0].first != from[0].second) {
        ranges.insert(ranges.end(), from.begin(), from.end());
        continue;
      }
      take("-");
      const CodeRanges to = class_member();
      if (to.size() != 1 || to[0].first != to[0].second || to[0].first < from[0].first)
        fault("a range of characters with its ends swapped");
      ranges.emplace_back(from[0].first, to[0].first);
    }
    take("]");
    return opposite ? others(ranges) : ranges;
  }

  CodeRanges class_member() {
    if (take("\\b")) return {{'\b', '\b'}};
    if (take("\\")) return escape();
    const char32_t code = take_code();
    return {{code, code}};
  }

  const bool searches_;
};

}  // namespace

ExpressionPtr regex(std::string_view pattern, Rules& rules, const RegexOptions& options) {
  return RegexParser(pattern, rules, options).parse();
}

}  // namespace axonn
