#include "axonn/data/text/jinja/jinja_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <unordered_map>
#include <utility>

#include "axonn/data/text/jinja/jinja_tokens.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

namespace {

// Published templates nest 12 deep. These bound the memory of parsing and the stack of rendering.
constexpr int kMostNesting = 60;
constexpr std::size_t kMostOperands = 200;  // of one chain of operators or filters

class Parser : TokenReader {
 public:
  Parser(std::string_view source, const std::string& file) : TokenReader(source, file) {
    program_.file = file;
  }

  Program take() {
    program_.body = body({}, {});
    if (!unknown_.empty()) fault(unknown_[0].first, unknown_[0].second);
    std::ranges::sort(program_.literals);
    return std::move(program_);
  }

 private:
  using Kind = Expression::Kind;
  /// Throws if brackets or blocks nest too deep; lives as long as one of them.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : depth_(parser.depth_) {
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

  template <typename... Parts>
  static ExpressionPtr make(Kind kind, Location at, std::string text = {}, Parts... parts) {
    auto made = std::make_unique<Expression>(Expression{kind, at});
    (made->parts.push_back(std::move(parts)), ...);
    made->text = std::move(text);
    return made;
  }
  static ExpressionPtr constant(Location at, Value value) {
    auto made = std::make_unique<Expression>(Expression{Kind::constant, at});
    made->value = std::move(value);
    return made;
  }

  // Statements.

  /// The statements of the block at `begin`, up to a block tag with one of these names, which is
  /// not consumed.
  Body body(Location begin, std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    Body out;
    while (!sees(Is::end)) {
      const Token token = take_token();
      if (token.kind == Is::data) {
        out.push_back({.kind = Statement::Kind::text, .at = token.at});
        out.back().text = std::make_shared<const Text>(Text(token.text));
      } else if (token.kind == Is::open_print) {
        out.push_back({.kind = Statement::Kind::print, .at = token.at});
        out.back().values.push_back(tuple());
        if (!sees(Is::close_print)) unexpected("'}}'");
        ++at_;
      } else {
        if (std::ranges::any_of(ends, [&](auto name) { return sees_name(name); })) return out;
        statement(token.at, out);
        if (!sees(Is::close_block)) unexpected("'%}'");
        ++at_;
      }
    }
    if (ends.size() > 0)
      fault(now().at, "wanted '{% ", *(ends.end() - 1), " %}' for the block at ", begin.line, ':',
            begin.column);
    return out;
  }

  /// The body of a block tag up to its end tag, whose name is consumed.
  Body block(Location begin, std::string_view end) {
    close_block();
    Body out = body(begin, {end});
    ++at_;
    return out;
  }
  void close_block() {
    if (!sees(Is::close_block)) unexpected("'%}'");
    ++at_;
  }

  void statement(Location at, Body& out) {
    const Location named_at = now().at;
    const std::string name = need_name("the name of a statement");
    using S = Statement::Kind;
    const auto begin = [&](S kind) -> Statement& {
      out.push_back({.kind = kind, .at = at});
      return out.back();
    };
    if (name == "if") return choose(begin(S::choose));
    if (name == "for") return loop(begin(S::loop));
    if (name == "set") return set(begin(S::set));
    if (name == "macro") {
      Statement& made = begin(S::macro);
      made.name = need_name();
      made.symbol = symbol(made.name);
      parameters(made);
      return macro_body(made, "endmacro");
    }
    if (name == "with") return with(begin(S::with));
    if (name == "call") {
      Statement& made = begin(S::call_block);
      made.name = "caller";
      if (sees_sign("(")) parameters(made);
      made.values.push_back(postfix(primary(), false));
      if (made.values[0]->kind != Kind::call) fault(at, "wanted a call");
      return macro_body(made, "endcall");
    }
    if (name == "filter") {
      Statement& made = begin(S::filter);
      made.values.push_back(filters_of_block());
      made.bodies.push_back(block(made.at, "endfilter"));
      return;
    }
    if (name == "generation") {
      program_.marks_generation = true;
      begin(S::generation).bodies.push_back(block(at, "endgeneration"));
      return;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fault(named_at, "'", name, "' outside of a loop");
      begin(name == "break" ? S::break_loop : S::continue_loop);
      return;
    }
    if (name.starts_with("end") || name == "else" || name == "elif")
      fault(named_at, "'", printable(name.substr(0, 40)), "' ends no block");
    fault(named_at, "the statement '", printable(name.substr(0, 40)), "' is not supported");
  }

  void macro_body(Statement& made, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const MacroNames names = std::exchange(names_, {});
    made.bodies.push_back(block(made.at, end));
    made.takes = std::exchange(names_, names);
    loops_ = loops;
  }

  void with(Statement& made) {
    while (!sees(Is::close_block)) {
      if (!made.target.parts.empty()) need_sign(",");
      made.target.parts.push_back(target(false));
      need_sign("=");
      made.values.push_back(expression());
    }
    made.bodies.push_back(block(made.at, "endwith"));
  }

  /// The filters of a filter block; their first value is the block.
  ExpressionPtr filters_of_block() {
    ExpressionPtr made = filter(nullptr);
    while (skip_sign("|")) made = filter(std::move(made));
    return made;
  }

  void choose(Statement& made) {
    const std::size_t unknown = unknown_.size();
    while (true) {
      made.values.push_back(tuple("", false));
      close_block();
      made.bodies.push_back(body(made.at, {"elif", "else", "endif"}));
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        close_block();
        made.bodies.push_back(body(made.at, {"endif"}));
      }
      ++at_;  // endif
      unknown_.resize(unknown);
      return;
    }
  }

  Target target(bool member_allowed) {
    const Nesting nesting(*this);
    Target all{.at = now().at};
    bool several = false;
    do {
      if (several && (sees_name("in") || sees_sign("=") || sees_sign(")"))) break;
      Target one{.at = now().at};
      if (skip_sign("(")) {
        one = target(member_allowed);
        need_sign(")");
      } else {
        one.symbol = symbol(need_name());
        if (member_allowed && skip_sign(".")) one.member = need_name();
      }
      all.parts.push_back(std::move(one));
      several = several || sees_sign(",");
    } while (skip_sign(","));
    if (several) return all;
    Target only = std::move(all.parts[0]);
    return only;
  }

  void loop(Statement& made) {
    made.target = target(false);
    if (!skip_name("in")) unexpected("'in'");
    made.values.push_back(tuple("", false));
    if (skip_name("if")) made.values.push_back(expression());
    made.recursive = skip_name("recursive");
    close_block();
    ++loops_;
    made.bodies.push_back(body(made.at, {"else", "endfor"}));
    --loops_;
    if (skip_name("else")) {
      close_block();
      made.bodies.push_back(body(made.at, {"endfor"}));
    }
    ++at_;  // endfor
  }

  void set(Statement& made) {
    made.target = target(true);
    if (skip_sign("=")) {
      made.values.push_back(tuple());
      return;
    }
    made.kind = Statement::Kind::set_body;
    if (skip_sign("|")) made.values.push_back(filters_of_block());
    made.bodies.push_back(block(made.at, "endset"));
  }

  void parameters(Statement& made) {
    need_sign("(");
    while (!skip_sign(")")) {
      if (!made.parameters.empty()) need_sign(",");
      if (skip_sign(")")) break;
      const std::string name = need_name("the name of a parameter");
      made.parameters.emplace_back(symbol(name), name);
      if (skip_sign("="))
        made.defaults.push_back(expression());
      else if (!made.defaults.empty())
        fault(now().at, "a parameter without a default follows one with a default");
    }
  }

  // Expressions, from the loosest operator to the tightest.
  ExpressionPtr expression(bool with_choice = true) {
    const Nesting nesting(*this);
    const std::size_t unknown = unknown_.size();
    ExpressionPtr left = disjunction();
    for (std::size_t n = 0; with_choice && skip_name("if"); check_chain(++n)) {
      const Location at = now().at;
      ExpressionPtr condition = disjunction();
      ExpressionPtr otherwise = skip_name("else") ? expression() : nullptr;
      left =
          make(Kind::choice, at, {}, std::move(left), std::move(condition), std::move(otherwise));
      unknown_.resize(unknown);
    }
    return left;
  }
  ExpressionPtr disjunction() {
    return chain(Kind::disjunction, {"or"},
                 [&] { return chain(Kind::conjunction, {"and"}, [&] { return negation(); }); });
  }

  void check_chain(std::size_t operands) const {
    if (operands > kMostOperands)
      fault(now().at, "this expression has more than ", kMostOperands, " operands in a row");
  }

  /// Operands with operators of one kind between them, from left to right.
  template <typename Operand>
  ExpressionPtr chain(Kind kind, std::initializer_list<std::string_view> signs,
                      const Operand& operand) {
    ExpressionPtr left = operand();
    const Is is = kind == Kind::arithmetic ? Is::sign : Is::name;
    for (std::size_t n = 0; sees(is) && std::ranges::find(signs, now().text) != signs.end();
         check_chain(++n)) {
      const Token sign = take_token();
      left = make(kind, sign.at, sign.text, std::move(left), operand());
      for (const ExpressionPtr& part : left->parts)
        if (kind == Kind::arithmetic && part->kind == Kind::filter && makes_markup(part->text))
          fault(sign.at, "'", sign.text, "' escapes HTML beside '", part->text,
                "', which is not supported; without it the text is written as it is");
    }
    return left;
  }

  static bool makes_markup(std::string_view filter) {
    return filter == "safe" || filter == "e" || filter == "escape" || filter == "forceescape";
  }

  ExpressionPtr negation() {
    if (!sees_name("not")) return comparison();
    const Nesting nesting(*this);
    const Location at = take_token().at;
    return make(Kind::negation, at, {}, negation());
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
    const Location at = now().at;
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

  ExpressionPtr sum() {
    return chain(Kind::arithmetic, {"+", "-"}, [&] { return join(); });
  }
  ExpressionPtr join() {
    const Location at = now().at;
    auto made = std::make_unique<Expression>(Expression{Kind::join, at});
    do {
      made->parts.push_back(product());
      check_chain(made->parts.size());
    } while (skip_sign("~"));
    if (made->parts.size() == 1) return std::move(made->parts[0]);
    return made;
  }
  ExpressionPtr product() {
    return chain(Kind::arithmetic, {"*", "/", "//", "%"},
                 [&] { return chain(Kind::arithmetic, {"**"}, [&] { return unary(true); }); });
  }

  ExpressionPtr unary(bool with_filters) {
    ExpressionPtr made;
    if (sees_sign("-") || sees_sign("+")) {
      const Nesting nesting(*this);
      const Token sign = take_token();
      made = make(sign.text == "-" ? Kind::minus : Kind::plus, sign.at, {}, unary(false));
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
      if (std::from_chars(begin, end, value).ec == std::errc::result_out_of_range)
        value = std::strtod(token.text.c_str(), nullptr);  // inf or 0
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
      names_.varargs = names_.varargs || token.text == "varargs";
      names_.kwargs = names_.kwargs || token.text == "kwargs";
      names_.caller = names_.caller || token.text == "caller";
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
      auto made = std::make_unique<Expression>(Expression{Kind::list, token.at});
      while (!skip_sign("]")) {
        if (!made->parts.empty()) need_sign(",");
        if (skip_sign("]")) break;
        made->parts.push_back(expression());
      }
      return made;
    }
    if (skip_sign("{")) return dict(token.at);
    unexpected("an expression");
  }

  ExpressionPtr dict(Location at) {
    auto made = std::make_unique<Expression>(Expression{Kind::dict, at});
    while (!skip_sign("}")) {
      if (!made->parts.empty()) need_sign(",");
      if (skip_sign("}")) break;
      made->parts.push_back(expression());
      need_sign(":");
      made->parts.push_back(expression());
    }
    return made;
  }

  /// One expression, or several with commas: a tuple. `end`: the bracket after it; "" outside of
  /// brackets, where a tuple is not empty.
  ExpressionPtr tuple(std::string_view end = "", bool with_choice = true) {
    const Location at = now().at;
    const auto ends = [&] {
      return sees_sign(")") || sees(Is::close_print) || sees(Is::close_block) || sees_name("in");
    };
    auto made = std::make_unique<Expression>(Expression{Kind::tuple, at});
    bool several = false;
    while (!ends()) {
      made->parts.push_back(expression(with_choice));
      if (!skip_sign(",")) break;
      several = true;
    }
    if (made->parts.size() == 1 && !several) return std::move(made->parts[0]);
    if (made->parts.empty() && end.empty()) unexpected("an expression");
    return made;
  }

  /// Members, items and calls after an expression; with `filters`, filters and tests instead of
  /// members and items.
  ExpressionPtr postfix(ExpressionPtr left, bool filters) {
    for (std::size_t n = 0;; check_chain(++n)) {
      const Token token = now();
      if (token.kind == Is::sign && token.text == "(") {
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

  /// As in Jinja, one in a branch of a choice only fails when it is reached.
  void note_unknown(Location at, const char* what, const std::string& name) {
    unknown_.emplace_back(
        at, concat("the ", what, " '", printable(name.substr(0, 40)), "' is not supported"));
  }

  ExpressionPtr member(ExpressionPtr left, Location at) {
    if (sees(Is::integer)) return make(Kind::item, at, {}, std::move(left), number(take_token()));
    return make(Kind::member, at, need_name("the name of a member"), std::move(left));
  }

  ExpressionPtr item(ExpressionPtr left, Location at) {
    const Nesting nesting(*this);
    const auto bound = [&]() -> ExpressionPtr {
      if (sees_sign(":") || sees_sign("]")) return nullptr;
      return expression();
    };
    ExpressionPtr first = bound();
    if (skip_sign("]")) {
      if (!first) fault(at, "wanted an index");
      return make(Kind::item, at, {}, std::move(left), std::move(first));
    }
    if (sees_sign(",")) fault(now().at, "an index of several parts is not supported");
    need_sign(":");
    ExpressionPtr end = bound();
    ExpressionPtr step = skip_sign(":") ? bound() : nullptr;
    need_sign("]");
    return make(Kind::slice, at, {}, std::move(left), std::move(first), std::move(end),
                std::move(step));
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
    const Location at = now().at;
    auto made = std::make_unique<Expression>(Expression{Kind::filter, at});
    made->text = need_name("the name of a filter");
    made->filter_function = find_filter(made->text);
    if (!made->filter_function) note_unknown(at, "filter", made->text);
    made->parts.push_back(std::move(left));
    if (sees_sign("(")) made->arguments = call_arguments();
    return made;
  }

  ExpressionPtr test(ExpressionPtr left, Location at) {
    const bool negated = skip_name("not");
    const Location named_at = now().at;
    auto made = std::make_unique<Expression>(Expression{Kind::test, at});
    made->text = need_name("the name of a test");
    made->called_test = find_test(made->text);
    if (!made->called_test) note_unknown(named_at, "test", made->text);
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
    return make(Kind::negation, at, {}, ExpressionPtr(std::move(made)));
  }

  int depth_ = 0, loops_ = 0;
  std::vector<std::pair<Location, std::string>> unknown_;  // filters and tests
  MacroNames names_;  // that the macro being read takes beside its parameters
  std::unordered_map<std::string, int> symbols_;
  Program program_;
};

}  // namespace

bool Program::uses(std::string_view name) const {
  return std::ranges::find(symbols, name) != symbols.end();
}

Program parse(std::string_view source, const std::string& file) {
  return Parser(source, file).take();
}

}  // namespace axonn::jinja
