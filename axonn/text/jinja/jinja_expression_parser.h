#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "axonn/base/utf8.h"
#include "axonn/text/jinja/jinja_program.h"

namespace axonn::jinja {

// Published templates nest 12 deep. These bound the memory of parsing and the stack of rendering.
inline constexpr int kMostNesting = 60;
inline constexpr std::size_t kMostOperands = 200;  // of one chain of operators or filters

/// Parses the expressions of a template; Parser (jinja_parser.cpp) adds the statements.
class ExpressionParser {
 public:
  ExpressionParser(std::string_view source, const std::string& file)
      : tokens_(tokenize(source, file)), file_(file) {
    program_.file = file;
  }

 protected:
  using Kind = Expression::Kind;
  using Is = Token::Kind;

  // Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take_token() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  bool sees(Is kind, std::string_view text = {}) const {
    return now().kind == kind && (text.empty() || now().text == text);
  }
  bool sees_sign(std::string_view text) const { return sees(Is::sign, text); }
  bool sees_name(std::string_view text) const { return sees(Is::name, text); }
  bool skip(Is kind, std::string_view text) {
    const bool here = sees(kind, text);
    at_ += here;
    return here;
  }
  bool skip_sign(std::string_view text) { return skip(Is::sign, text); }
  bool skip_name(std::string_view text) { return skip(Is::name, text); }

  template <typename... Parts>
  [[noreturn]] void fault(Place at, const Parts&... parts) const {
    refuse_at(file_, at, parts...);
  }
  std::string shown(const Token& token) const {
    switch (token.kind) {
      case Is::end:
        return "the end of the template";
      case Is::data:
        return "text";
      case Is::close_block:
        return "'%}'";
      case Is::close_print:
        return "'}}'";
      case Is::string:
        return "a string";
      default:
        return concat('\'', printable(token.text.substr(0, 40)), '\'');
    }
  }
  [[noreturn]] void unexpected(std::string_view wanted) const {
    fault(now().at, "wanted ", wanted, ", got ", shown(now()));
  }
  void need_sign(std::string_view text) {
    if (!skip_sign(text)) unexpected(concat('\'', text, '\''));
  }
  std::string need_name(std::string_view what = "a name") {
    if (!sees(Is::name)) unexpected(what);
    return take_token().text;
  }

  /// Throws if brackets or blocks nest too deep; lives as long as one of them.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : depth_(parser.depth_) {
      if (++depth_ > kMostNesting)
        parser.fault(parser.now().at, "this nests deeper than ", kMostNesting);
    }
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int& depth_;
  };

  int symbol(const std::string& name) {
    const auto [found, added] = symbols_.emplace(name, static_cast<int>(symbols_.size()));
    if (added) program_.symbols.push_back(name);
    return found->second;
  }

  static ExpressionPtr make(Kind kind, Place at, std::vector<ExpressionPtr> parts = {},
                            std::string text = {}) {
    auto made = std::make_unique<Expression>(Expression{kind, at});
    made->parts = std::move(parts);
    made->text = std::move(text);
    return made;
  }
  template <typename... Parts>
  static std::vector<ExpressionPtr> list_of(Parts... parts) {
    std::vector<ExpressionPtr> list;
    (list.push_back(std::move(parts)), ...);
    return list;
  }
  static ExpressionPtr constant(Place at, Value value) {
    auto made = std::make_unique<Expression>(Expression{Kind::constant, at});
    made->value = std::move(value);
    return made;
  }

  // Expressions, from the loosest operator to the tightest.
  ExpressionPtr expression(bool with_choice = true) {
    const Nesting nesting(*this);
    ExpressionPtr left = binary_name("or", Kind::disjunction, [&] { return conjunction(); });
    for (std::size_t n = 0; with_choice && skip_name("if"); check_chain(++n)) {
      const Place at = now().at;
      ExpressionPtr condition = binary_name("or", Kind::disjunction, [&] { return conjunction(); });
      ExpressionPtr otherwise = skip_name("else") ? expression() : nullptr;
      left = make(Kind::choice, at,
                  list_of(std::move(left), std::move(condition), std::move(otherwise)));
    }
    return left;
  }
  ExpressionPtr conjunction() {
    return binary_name("and", Kind::conjunction, [&] { return negation(); });
  }

  void check_chain(std::size_t operands) const {
    if (operands > kMostOperands)
      fault(now().at, "this expression has more than ", kMostOperands, " operands in a row");
  }

  template <typename Operand>
  ExpressionPtr binary_name(std::string_view name, Kind kind, const Operand& operand) {
    ExpressionPtr left = operand();
    for (std::size_t n = 0; sees_name(name); check_chain(++n)) {
      const Place at = take_token().at;
      left = make(kind, at, list_of(std::move(left), operand()));
    }
    return left;
  }

  ExpressionPtr negation() {
    if (!sees_name("not")) return comparison();
    const Nesting nesting(*this);
    const Place at = take_token().at;
    return make(Kind::negation, at, list_of(negation()));
  }

  std::optional<std::string> comparison_sign() {
    for (const char* sign : {"==", "!=", "<", "<=", ">", ">="})
      if (skip_sign(sign)) return sign;
    if (skip_name("in")) return "in";
    if (sees_name("not") && next().kind == Is::name && next().text == "in") {
      at_ += 2;
      return "not in";
    }
    return {};
  }

  ExpressionPtr comparison() {
    ExpressionPtr left = sum();
    const Place at = now().at;
    std::vector<std::string> signs;
    std::vector<ExpressionPtr> parts;
    while (const auto sign = comparison_sign()) {
      if (parts.empty()) parts.push_back(std::move(left));
      signs.push_back(*sign);
      parts.push_back(sum());
      check_chain(signs.size());
    }
    if (parts.empty()) return left;
    auto made = std::make_unique<Expression>(Expression{Kind::comparison, at});
    made->parts = std::move(parts);
    made->signs = std::move(signs);
    return made;
  }

  template <typename Operand>
  ExpressionPtr binary_sign(std::initializer_list<const char*> signs, const Operand& operand) {
    ExpressionPtr left = operand();
    for (std::size_t n = 0;; check_chain(++n)) {
      const auto sign = std::ranges::find_if(signs, [&](const char* s) { return sees_sign(s); });
      if (sign == signs.end()) return left;
      const Place at = take_token().at;
      left = make(Kind::arithmetic, at, list_of(std::move(left), operand()), *sign);
    }
  }
  ExpressionPtr sum() {
    return binary_sign({"+", "-"}, [&] { return join(); });
  }
  ExpressionPtr join() {
    const Place at = now().at;
    std::vector<ExpressionPtr> parts;
    parts.push_back(product());
    while (skip_sign("~")) {
      parts.push_back(product());
      check_chain(parts.size());
    }
    return parts.size() == 1 ? std::move(parts[0]) : make(Kind::join, at, std::move(parts));
  }
  ExpressionPtr product() {
    return binary_sign({"*", "/", "//", "%"},
                       [&] { return binary_sign({"**"}, [&] { return unary(true); }); });
  }

  ExpressionPtr unary(bool with_filters) {
    ExpressionPtr made;
    if (sees_sign("-") || sees_sign("+")) {
      const Nesting nesting(*this);
      const Token sign = take_token();
      made = make(sign.text == "-" ? Kind::minus : Kind::plus, sign.at, list_of(unary(false)));
    } else {
      made = primary();
    }
    made = postfix(std::move(made), false);
    return with_filters ? postfix(std::move(made), true) : std::move(made);
  }

  ExpressionPtr number(const Token& token) {
    const char *begin = token.text.data(), *end = begin + token.text.size();
    if (token.kind == Is::real) {
      double value = 0;
      std::from_chars(begin, end, value);
      return constant(token.at, value);
    }
    std::int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc())
      fault(token.at, "this integer is beyond 64 bits");
    return constant(token.at, value);
  }

  ExpressionPtr primary() {
    const Token token = now();
    if (token.kind == Is::name) {
      ++at_;
      if (token.text == "true" || token.text == "True") return constant(token.at, true);
      if (token.text == "false" || token.text == "False") return constant(token.at, false);
      if (token.text == "none" || token.text == "None") return constant(token.at, None{});
      auto made = std::make_unique<Expression>(Expression{Kind::name, token.at});
      made->text = token.text;
      made->symbol = symbol(token.text);
      return made;
    }
    if (token.kind == Is::string) {
      std::string text;
      while (sees(Is::string)) text += take_token().text;
      program_.literals.push_back(text);
      return constant(token.at, std::move(text));
    }
    if (token.kind == Is::integer || token.kind == Is::real) return number(take_token());
    const Nesting nesting(*this);
    if (skip_sign("(")) {
      ExpressionPtr inner = tuple(")");
      need_sign(")");
      return inner;
    }
    if (skip_sign("[")) {
      std::vector<ExpressionPtr> parts;
      while (!skip_sign("]")) {
        if (!parts.empty()) need_sign(",");
        if (skip_sign("]")) break;
        parts.push_back(expression());
      }
      return make(Kind::list, token.at, std::move(parts));
    }
    if (skip_sign("{")) return dict(token.at);
    unexpected("an expression");
  }

  ExpressionPtr dict(Place at) {
    std::vector<ExpressionPtr> parts;
    while (!skip_sign("}")) {
      if (!parts.empty()) need_sign(",");
      if (skip_sign("}")) break;
      parts.push_back(expression());
      need_sign(":");
      parts.push_back(expression());
    }
    return make(Kind::dict, at, std::move(parts));
  }

  /// One expression, or several with commas: a tuple. `end`: the bracket after it; "" outside of
  /// brackets, where a tuple is not empty.
  ExpressionPtr tuple(std::string_view end = "", bool with_choice = true) {
    const Place at = now().at;
    const auto ends = [&] {
      return sees_sign(")") || sees(Is::close_print) || sees(Is::close_block) || sees_name("in");
    };
    std::vector<ExpressionPtr> parts;
    bool several = false;
    while (!ends()) {
      parts.push_back(expression(with_choice));
      if (!skip_sign(",")) break;
      several = true;
    }
    if (parts.size() == 1 && !several) return std::move(parts[0]);
    if (parts.empty() && end.empty()) unexpected("an expression");
    return make(Kind::tuple, at, std::move(parts));
  }

  /// Members, items and calls after an expression; with `filters`, filters and tests instead of
  /// members and items.
  ExpressionPtr postfix(ExpressionPtr left, bool filters) {
    for (std::size_t n = 0;; check_chain(++n)) {
      const Token token = now();
      if (token.kind == Is::sign && token.text == "(") {
        check_method(*left);
        auto made = std::make_unique<Expression>(Expression{Kind::call, token.at});
        made->parts.push_back(std::move(left));
        made->arguments = call_arguments();
        left = std::move(made);
      } else if (filters && skip_sign("|")) {
        left = filter(std::move(left));
      } else if (filters && skip_name("is")) {
        left = test(std::move(left), token.at);
      } else if (!filters && skip_sign(".")) {
        left = member(std::move(left), token.at);
      } else if (!filters && skip_sign("[")) {
        left = item(std::move(left), token.at);
      } else {
        return left;
      }
    }
  }

  void check_method(const Expression& called) const {
    if (called.kind == Kind::member && !is_method(called.text))
      fault(called.at, "the method ", printable(called.text.substr(0, 40)), "() is not supported");
  }

  ExpressionPtr member(ExpressionPtr left, Place at) {
    if (sees(Is::integer))
      return make(Kind::item, at, list_of(std::move(left), number(take_token())));
    std::string name = need_name("the name of a member");
    return make(Kind::member, at, list_of(std::move(left)), std::move(name));
  }

  ExpressionPtr item(ExpressionPtr left, Place at) {
    const Nesting nesting(*this);
    const auto bound = [&]() -> ExpressionPtr {
      if (sees_sign(":") || sees_sign("]")) return nullptr;
      return expression();
    };
    ExpressionPtr first = bound();
    if (skip_sign("]")) {
      if (!first) fault(at, "wanted an index");
      return make(Kind::item, at, list_of(std::move(left), std::move(first)));
    }
    if (sees_sign(",")) fault(now().at, "an index of several parts is not supported");
    need_sign(":");
    ExpressionPtr end = bound();
    ExpressionPtr step = skip_sign(":") ? bound() : nullptr;
    need_sign("]");
    return make(Kind::slice, at,
                list_of(std::move(left), std::move(first), std::move(end), std::move(step)));
  }

  CallArguments call_arguments() {
    const Nesting nesting(*this);
    CallArguments out;
    need_sign("(");
    for (bool first = true; !skip_sign(")"); first = false) {
      if (!first) need_sign(",");
      if (skip_sign(")")) break;
      if (skip_sign("*")) {
        out.rest = expression();
      } else if (skip_sign("**")) {
        out.named_rest = expression();
      } else if (sees(Is::name) && next().kind == Is::sign && next().text == "=") {
        std::string name = take_token().text;
        ++at_;
        out.named.emplace_back(std::move(name), expression());
      } else {
        if (!out.named.empty() || out.rest || out.named_rest)
          fault(now().at, "an argument without a name follows one with a name");
        out.positional.push_back(expression());
      }
    }
    return out;
  }

  ExpressionPtr filter(ExpressionPtr left) {
    const Place at = now().at;
    auto made = std::make_unique<Expression>(Expression{Kind::filter, at});
    made->text = need_name("the name of a filter");
    made->filter = find_filter(made->text);
    if (!made->filter)
      fault(at, "the filter '", printable(made->text.substr(0, 40)), "' is not supported");
    made->parts.push_back(std::move(left));
    if (sees_sign("(")) made->arguments = call_arguments();
    check_names_in(*made);
    return made;
  }

  /// map('name') and select('name') name a filter or test, which must exist.
  void check_names_in(const Expression& filter) const {
    const bool by_attribute = filter.text == "selectattr" || filter.text == "rejectattr";
    const std::size_t index = by_attribute ? 1 : 0;
    const bool tests = by_attribute || filter.text == "select" || filter.text == "reject";
    if ((!tests && filter.text != "map") || filter.arguments.positional.size() <= index) return;
    const Expression& named = *filter.arguments.positional[index];
    if (named.kind != Kind::constant || !named.value.text()) return;
    const std::string& name = named.value.text()->bytes();
    if (tests ? !find_test(name) : !find_filter(name))
      fault(named.at, tests ? "the test '" : "the filter '", printable(name.substr(0, 40)),
            "' is not supported");
  }

  ExpressionPtr test(ExpressionPtr left, Place at) {
    const bool negated = skip_name("not");
    const Place named_at = now().at;
    auto made = std::make_unique<Expression>(Expression{Kind::test, at});
    made->text = need_name("the name of a test");
    made->test = find_test(made->text);
    if (!made->test)
      fault(named_at, "the test '", printable(made->text.substr(0, 40)), "' is not supported");
    made->parts.push_back(std::move(left));
    const auto begins = [&] {
      if (now().kind == Is::sign) return now().text == "[" || now().text == "{";
      if (now().kind == Is::name)
        return now().text != "else" && now().text != "or" && now().text != "and";
      return now().kind == Is::string || now().kind == Is::integer || now().kind == Is::real;
    };
    if (sees_sign("(")) {
      made->arguments = call_arguments();
    } else if (begins()) {
      if (sees_name("is")) fault(now().at, "tests cannot be chained with 'is'");
      made->arguments.positional.push_back(postfix(primary(), false));
    }
    if (!negated) return made;
    return make(Kind::negation, at, list_of<ExpressionPtr>(std::move(made)));
  }

  std::vector<Token> tokens_;
  const std::string& file_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::unordered_map<std::string, int> symbols_;
  Program program_;
};

}  // namespace axonn::jinja
