#include "axonn/data/grammar/gbnf.h"

#include <cctype>
#include <set>
#include <string>
#include <tuple>

#include "axonn/data/grammar/pattern_reader.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using Kind = GrammarExpression::Kind;

/// Which rules texts of a rule may begin with. Rules that are not set yet have no texts.
class RuleBeginnings {
 public:
  explicit RuleBeginnings(const Rules& rules) : empty_(rules.all().size()) {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t rule = 0; rule < empty_.size(); ++rule)
        if (const auto& one = rules.all()[rule]; one && !empty_[rule] && may_be_empty(*one))
          empty_[rule] = changed = true;
    }
    for (const ExpressionPtr& one : rules.all()) {
      first_.emplace_back();
      if (one) find(*one, first_.back());
    }
  }

  /// A rule of which a text may begin with one of itself, without end; none: npos.
  std::size_t left_recursive() const {
    enum class Mark : std::uint8_t { unseen, open, closed };
    std::vector<Mark> marks(first_.size(), Mark::unseen);
    std::vector<std::pair<std::size_t, bool>> left;  // a rule, and whether those below it are done
    for (std::size_t rule = 0; rule < first_.size(); ++rule) left.emplace_back(rule, false);
    while (!left.empty()) {
      const auto [rule, done] = left.back();
      left.pop_back();
      if (done) marks[rule] = Mark::closed;
      if (done || marks[rule] != Mark::unseen) continue;
      marks[rule] = Mark::open;
      left.emplace_back(rule, true);
      for (const std::size_t next : first_[rule]) {
        if (marks[next] == Mark::open) return next;
        left.emplace_back(next, false);
      }
    }
    return std::string_view::npos;
  }

 private:
  bool may_be_empty(const GrammarExpression& one) const {
    const auto empty = [&](const ExpressionPtr& part) { return may_be_empty(*part); };
    if (one.kind == Kind::text) return one.text.empty();
    if (one.kind == Kind::sequence) return std::ranges::all_of(one.parts, empty);
    if (one.kind == Kind::choice) return std::ranges::any_of(one.parts, empty);
    if (one.kind == Kind::repeat) return one.least == 0 || empty(one.parts.front());
    return one.kind == Kind::rule && empty_[one.rule];
  }
  void find(const GrammarExpression& one, std::set<std::size_t>& to) const {
    if (one.kind == Kind::rule) to.insert(one.rule);
    for (const ExpressionPtr& part : one.parts) {
      find(*part, to);
      if (one.kind == Kind::sequence && !may_be_empty(*part)) return;
    }
  }

  std::vector<bool> empty_;
  std::vector<std::set<std::size_t>> first_;
};

class GbnfParser : PatternReader {
 public:
  GbnfParser(std::string_view grammar, Rules& rules)
      : PatternReader(grammar, "the grammar", rules, character_of) {}

  ExpressionPtr parse() {
    for (skip_space(); !done(); skip_space()) {
      if (sees(")")) fault("a ) without its (");
      const std::string name = take_name();
      skip_space();
      if (name.empty() || !take("::=")) fault("wanted a rule, NAME ::= ...");
      const std::size_t rule = number_of(name);
      if (rules_.all()[rule]) fault("there are two rules ", name);
      rules_.set(rule, alternatives(0));
    }
    for (const auto& [name, rule] : names_)
      if (!rules_.all()[rule]) refuse("the grammar uses rule ", name, " and does not have it");
    if (!names_.contains("root")) refuse("the grammar has no rule root, where texts begin");
    const std::size_t loop = RuleBeginnings(rules_).left_recursive();
    if (loop != text_.npos)
      refuse(name_of(loop), " of the grammar begins with itself; write repetitions as (...)*");
    return use_of(names_.at("root"));
  }

 private:
  static bool is_of_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  }
  /// White space and comments.
  void skip_space() {
    while (!done())
      if (sees("#"))
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
        ++at_;
      else
        return;
  }
  std::string take_name() {
    const std::size_t begin = at_;
    while (!done() && is_of_name(text_[at_]) && !(at_ == begin && sees("."))) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::size_t number_of(const std::string& name) {
    const auto found = names_.find(name);
    return found != names_.end() ? found->second : names_[name] = rules_.declare();
  }
  std::string name_of(std::size_t rule) const {
    for (const auto& [name, number] : names_)
      if (number == rule) return "rule " + name;
    return "a group";
  }
  bool sees_rule() {
    const std::size_t begin = at_;
    const bool name = !take_name().empty();
    skip_space();
    const bool rule = name && sees("::=");
    at_ = begin;
    return rule;
  }

  ExpressionPtr sequence(int depth) override {
    std::vector<ExpressionPtr> parts;
    for (skip_space(); !done() && !sees("|") && !sees(")") && !sees_rule(); skip_space())
      parts.push_back(quantified(item(depth)));
    return in_order(std::move(parts));
  }

  ExpressionPtr item(int depth) {
    if (take("\"")) return text();
    if (take("[")) return characters(char_class());
    if (take(".")) return characters({{0, kLastCode}});
    if (sees("(=") || sees("(!")) fault("lookahead is not supported");
    if (sees("<") || sees("!<")) fault("tokens, <...>, are not supported; write their text");
    if (take("(")) {
      ExpressionPtr inner = rules_.add(alternatives(depth + 1));
      if (!take(")")) fault("a ( without its )");
      return inner;
    }
    const std::string name = take_name();
    if (name.empty()) fault("wanted \"a text\", [characters], (a group) or a rule's name");
    return use_of(number_of(name));
  }

  ExpressionPtr quantified(ExpressionPtr part) {
    skip_space();
    std::int64_t least = 0, most = GrammarExpression::kUnbounded;
    if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (take("{")) {
      std::tie(least, most) = bounds();
    } else if (!take("*")) {
      return part;
    }
    skip_space();
    if (sees("+") || sees("*") || sees("?") || sees("{"))
      fault("a repetition of a repetition is not supported; write (...)");
    return repeated(std::move(part), least, most);
  }

  /// What follows a {.
  std::pair<std::int64_t, std::int64_t> bounds() {
    const auto spaced_number = [&] {
      skip_space();
      const std::int64_t value = number();
      skip_space();
      return value;
    };
    const std::int64_t least = spaced_number();
    std::int64_t most = least;
    if (take(",")) {
      skip_space();
      most = sees("}") ? GrammarExpression::kUnbounded : spaced_number();
    }
    if (!take("}")) fault("a { without its }");
    if (most != GrammarExpression::kUnbounded && most < least)
      fault("a repetition with its ends swapped");
    return {least, most};
  }

  ExpressionPtr text() {
    std::string bytes;
    while (!take("\"")) append_utf8(character(), bytes);
    return literal(bytes);
  }

  CodeRanges char_class() {
    const bool opposite = take("^");
    CodeRanges ranges;
    while (!take("]")) {
      const char32_t first = character();
      const bool range = sees("-") && !sees("-]") && take("-");
      const char32_t last = range ? character() : first;
      if (last < first) fault("a range of characters with its ends swapped");
      ranges.emplace_back(first, last);
    }
    return opposite ? others(ranges) : ranges;
  }

  /// A character, or what an escape stands for.
  char32_t character() {
    const char32_t code = take_code();
    if (code != '\\') return code;
    const char32_t escaped = take_code();
    if (escaped == 'n') return '\n';
    if (escaped == 'r') return '\r';
    if (escaped == 't') return '\t';
    const std::size_t digits = escaped == 'x' ? 2 : escaped == 'u' ? 4 : escaped == 'U' ? 8 : 0;
    if (digits > 0) {
      const char32_t given = hexadecimal(digits);
      if (given > kLastCode || (given >= 0xd800 && given <= 0xdfff)) fault("no such character");
      return given;
    }
    if (escaped < 0x80 && std::isalnum(static_cast<int>(escaped)) != 0)
      fault("\\", static_cast<char>(escaped), " is not supported");
    return escaped;
  }

  std::map<std::string, std::size_t> names_;
};

}  // namespace

ExpressionPtr gbnf(std::string_view grammar, Rules& rules) {
  return GbnfParser(grammar, rules).parse();
}

}  // namespace axonn
