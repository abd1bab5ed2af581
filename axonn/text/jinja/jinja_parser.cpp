#include "axonn/text/jinja/jinja_expression_parser.h"

namespace axonn::jinja {

namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Program take() {
    program_.body = body({}, {});
    std::ranges::sort(program_.literals);
    return std::move(program_);
  }

 private:
  /// The statements of the block at `begin`, up to a block tag with one of these names, which is
  /// not consumed.
  Body body(Place begin, std::initializer_list<std::string_view> ends) {
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
  Body block(Place begin, std::string_view end) {
    close_block();
    Body out = body(begin, {end});
    ++at_;
    return out;
  }
  void close_block() {
    if (!sees(Is::close_block)) unexpected("'%}'");
    ++at_;
  }

  void statement(Place at, Body& out) {
    const Place named_at = now().at;
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
      return macro(made, "endmacro");
    }
    if (name == "call") {
      Statement& made = begin(S::call);
      made.name = "caller";
      if (sees_sign("(")) parameters(made);
      made.values.push_back(unary(true));
      if (made.values[0]->kind != Kind::call) fault(made.values[0]->at, "wanted a call");
      made.bodies.push_back(block(made.at, "endcall"));
      return;
    }
    if (name == "filter") {
      Statement& made = begin(S::filter);
      made.values.push_back(filters_of_block());
      made.bodies.push_back(block(made.at, "endfilter"));
      return;
    }
    if (name == "with") return with(begin(S::with));
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

  /// The filters of a filter block; their first value is the block.
  ExpressionPtr filters_of_block() {
    ExpressionPtr made = filter(nullptr);
    while (skip_sign("|")) made = filter(std::move(made));
    return made;
  }

  void choose(Statement& made) {
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
    made.targets.push_back(target(false));
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
    made.targets.push_back(target(true));
    if (skip_sign("=")) {
      made.values.push_back(tuple());
      return;
    }
    made.kind = Statement::Kind::set_body;
    if (skip_sign("|")) made.values.push_back(filters_of_block());
    made.bodies.push_back(block(made.at, "endset"));
  }

  void with(Statement& made) {
    while (!sees(Is::close_block)) {
      if (!made.targets.empty()) need_sign(",");
      made.targets.push_back({.at = now().at, .symbol = symbol(need_name())});
      need_sign("=");
      made.values.push_back(expression());
    }
    made.bodies.push_back(block(made.at, "endwith"));
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

  void macro(Statement& made, std::string_view end) {
    parameters(made);
    const int loops = std::exchange(loops_, 0);
    made.bodies.push_back(block(made.at, end));
    loops_ = loops;
  }

  int loops_ = 0;
};

}  // namespace

bool Program::uses(std::string_view name) const {
  return std::ranges::find(symbols, name) != symbols.end();
}

Program parse(std::string_view source, const std::string& file) {
  return Parser(source, file).take();
}

}  // namespace axonn::jinja
