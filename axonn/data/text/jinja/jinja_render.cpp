#include "axonn/data/text/jinja/jinja_render.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <tuple>

#include "axonn/data/text/jinja/jinja_methods.h"
#include "axonn/data/text/jinja/jinja_operators.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/data/text/jinja/jinja_scope.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

namespace {

// Bounds the stack: each level takes about 1 KB, with AddressSanitizer 6 KB.
constexpr int kMostLevels = 600;

class Renderer;

/// A macro with the variables around its definition.
class Macro : public Callable {
 public:
  Macro(Renderer& renderer, const Statement& definition, ScopePtr scope)
      : renderer_(renderer), definition_(definition), scope_(std::move(scope)) {}
  Value call(Session& session, const Arguments& arguments) const override;
  Value member(std::string_view name) const override;

 private:
  /// Sets a name that the macro uses beside its parameters.
  void set_name(Scope& scope, const char* name, Value value) const;

  Renderer& renderer_;
  const Statement& definition_;
  ScopePtr scope_;
};

/// The variable `loop`.
class Loop : public Callable, public std::enable_shared_from_this<Loop> {
 public:
  Loop(Renderer& renderer, const Statement& statement, ScopePtr scope, int depth)
      : depth_(depth), renderer_(renderer), statement_(statement), scope_(std::move(scope)) {}
  Value call(Session& session, const Arguments& arguments) const override;
  Value member(std::string_view name) const override;

  /// loop.cycle() and loop.changed().
  class Method : public Callable {
   public:
    Method(std::shared_ptr<const Loop> loop, bool cycles)
        : loop_(std::move(loop)), cycles_(cycles) {}
    Value call(Session& session, const Arguments& arguments) const override;

   private:
    std::shared_ptr<const Loop> loop_;
    bool cycles_;
  };

  std::vector<Value> items;
  std::size_t index = 0;

 private:
  int depth_;  // of recursive loops, from 1 on
  Renderer& renderer_;
  const Statement& statement_;
  ScopePtr scope_;
  mutable std::optional<std::vector<Value>> last_;  // arguments of changed()
};

class Renderer {
 public:
  enum class Flow { normal, break_loop, continue_loop };

  Renderer(const Program& program, const RenderOptions& options)
      : program_(program),
        session_{.now = options.now, .most_steps = options.most_steps},
        root_(std::make_shared<Scope>()) {}
  // Macros and their scopes refer to each other.
  ~Renderer() {
    for (const ScopePtr& scope : defining_) scope->variables.clear();
  }
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  Text render(const Variables& variables) {
    for (std::size_t i = 0; i < program_.symbols.size(); ++i) {
      for (const auto& [name, value] : globals())
        if (program_.symbols[i] == name) root_->set(static_cast<int>(i), value);
      for (const auto& [name, value] : variables)
        if (program_.symbols[i] == name) root_->set(static_cast<int>(i), value);
    }
    Text out;
    try {
      out_ = &out;
      run(program_.body, std::make_shared<Scope>(Scope{root_}));
    } catch (const RaisedException&) {
      throw;
    } catch (const UsageError& error) {  // only here is the location known
      refuse_at(program_.file, location_, error.what());
    }
    return out;
  }

  /// The text that a body writes, with its own variables.
  Text written(const Body& body, const ScopePtr& scope) {
    Text text;
    Text* const before = std::exchange(out_, &text);
    run(body, scope);
    out_ = before;
    return text;
  }

  Value evaluate(const Expression& e, const ScopePtr& scope) {
    const Level level(*this);
    return evaluate_kind(e, scope);
  }

  /// What a recursive loop writes of other items.
  Text written_loop(const Statement& s, const Value& items, const ScopePtr& scope, int depth) {
    const Level level(*this);
    Text text;
    Text* const before = std::exchange(out_, &text);
    run_loop(s, items, scope, depth);
    out_ = before;
    return text;
  }

  /// The number of a name in the template; -1 if it has none.
  int symbol_of(std::string_view name) const {
    const auto found = std::ranges::find(program_.symbols, name);
    return found == program_.symbols.end() ? -1
                                           : static_cast<int>(found - program_.symbols.begin());
  }

 private:
  /// Counts a step and a level of nesting, as long as it lives.
  class Level {
   public:
    explicit Level(Renderer& renderer) : levels_(renderer.levels_) {
      renderer.session_.charge();
      if (levels_ == kMostLevels) refuse("the template calls itself too deep");
      ++levels_;
    }
    ~Level() { --levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& levels_;
  };

  static const std::vector<std::pair<std::string_view, Value>>& globals() {
    static const std::vector<std::pair<std::string_view, Value>> all = global_functions();
    return all;
  }

  // Statements.

  Flow run(const Body& body, const ScopePtr& scope) {
    const Level level(*this);
    for (const Statement& statement : body)
      if (const Flow flow = run(statement, scope); flow != Flow::normal) return flow;
    return Flow::normal;
  }

  void write(const Text& text) {
    session_.charge(text.cost());
    out_->append(text);
  }

  Flow run(const Statement& s, const ScopePtr& scope) {
    using S = Statement::Kind;
    location_ = s.at;
    session_.charge();
    switch (s.kind) {
      case S::text:
        write(*s.text);
        break;
      case S::print: {
        const Value value = evaluate(*s.values[0], scope);
        location_ = s.at;
        write(to_text(value));
        break;
      }
      case S::choose: {
        std::size_t i = 0;
        while (i < s.values.size() && !evaluate(*s.values[i], scope).truth()) ++i;
        if (i < s.bodies.size()) return run(s.bodies[i], scope);
        break;
      }
      case S::loop:
        run_loop(s, evaluate(*s.values[0], scope), scope, 1);
        break;
      case S::set:
        assign(s.target, evaluate(*s.values[0], scope), *scope);
        break;
      case S::set_body:
        set_body(s, scope);
        break;
      case S::macro:
        define(s, scope);
        break;
      case S::filter:
        write(to_text(filtered(*s.values[0], written(s.bodies[0], inner(scope)), scope)));
        break;
      case S::generation: {
        Text text = written(s.bodies[0], inner(scope));
        text.mark();
        write(text);
        break;
      }
      case S::with:
        return run_with(s, scope);
      case S::call_block:
        call_with_block(s, scope);
        break;
      case S::break_loop:
        return Flow::break_loop;
      case S::continue_loop:
        return Flow::continue_loop;
    }
    return Flow::normal;
  }

  Flow run_with(const Statement& s, const ScopePtr& scope) {
    const ScopePtr within = inner(scope);
    for (std::size_t i = 0; i < s.values.size(); ++i)
      assign(s.target.parts[i], evaluate(*s.values[i], scope), *within);
    return run(s.bodies[0], within);
  }

  void call_with_block(const Statement& s, const ScopePtr& scope) {
    const Expression& e = *s.values[0];
    const Value function = evaluate(*e.parts[0], scope);
    Arguments arguments = arguments_of(e.arguments, scope);
    arguments.named.emplace_back("caller", CallablePtr(made_macro(s, scope)));
    write(to_text(call_value(e, function, arguments)));
  }

  std::shared_ptr<const Macro> made_macro(const Statement& s, const ScopePtr& scope) {
    if (defining_.empty() || defining_.back() != scope) defining_.push_back(scope);
    session_.charge(512);  // of its scope, too
    return std::make_shared<const Macro>(*this, s, scope);
  }

  void set_body(const Statement& s, const ScopePtr& scope) {
    Value value = written(s.bodies[0], inner(scope));
    if (!s.values.empty()) value = filtered(*s.values[0], std::move(value), scope);
    assign(s.target, std::move(value), *scope);
  }

  static ScopePtr inner(const ScopePtr& scope) { return std::make_shared<Scope>(Scope{scope}); }

  void define(const Statement& s, const ScopePtr& scope) {
    scope->set(s.symbol, CallablePtr(made_macro(s, scope)));
  }

  /// Applies the filters of a filter block to what the block writes.
  Value filtered(const Expression& filter, Value value, const ScopePtr& scope) {
    if (filter.parts[0]) value = filtered(*filter.parts[0], std::move(value), scope);
    const Arguments arguments = arguments_of(filter.arguments, scope);
    location_ = filter.at;
    return call_filter(filter, value, arguments);
  }

  Value call_filter(const Expression& e, const Value& value, const Arguments& arguments) {
    if (!e.filter_function) refuse("the filter '", printable(e.text), "' is not supported");
    return call_function(*e.filter_function, session_, value, arguments);
  }

  void assign(const Target& target, Value value, Scope& scope) {
    location_ = target.at;
    if (!target.parts.empty()) {
      const std::vector<Value> all = elements(value);
      session_.charge(value.cost());
      if (all.size() != target.parts.size())
        refuse("wanted ", target.parts.size(), " values to unpack, got ", all.size());
      for (std::size_t i = 0; i < all.size(); ++i) assign(target.parts[i], all[i], scope);
    } else if (target.member.empty()) {
      scope.set(target.symbol, std::move(value));
    } else {
      const Value* found = scope.find(target.symbol);
      if (!found || !found->space())
        refuse("only members of a namespace() can be set, and '",
               program_.symbols[static_cast<std::size_t>(target.symbol)], "' is none");
      check_namespace_member(target.member);
      found->space()->set(target.member, std::move(value));
    }
  }

  /// The elements for which the condition of the loop holds.
  std::vector<Value> chosen(const Statement& s, std::vector<Value> all, const ScopePtr& scope) {
    if (s.values.size() < 2) return all;
    std::erase_if(all, [&](const Value& each) {
      const ScopePtr within = inner(scope);
      assign(s.target, each, *within);
      return !evaluate(*s.values[1], within).truth();
    });
    return all;
  }

  void run_loop(const Statement& s, const Value& items, const ScopePtr& scope, int depth) {
    location_ = s.at;
    session_.charge(items.cost());
    const auto loop = std::make_shared<Loop>(*this, s, scope, depth);
    loop->items = chosen(s, elements(items), scope);
    ScopePtr within;
    for (; loop->index < loop->items.size(); ++loop->index) {
      if (!within || within.use_count() > 1) within = inner(scope);
      within->variables.clear();
      within->set(loop_symbol_, CallablePtr(loop));
      assign(s.target, loop->items[loop->index], *within);
      if (run(s.bodies[0], within) == Flow::break_loop) break;
    }
    if (loop->items.empty() && s.bodies.size() > 1) run(s.bodies[1], inner(scope));
  }

  // Expressions.

  Arguments arguments_of(const CallArguments& written, const ScopePtr& scope) {
    Arguments out;
    for (const ExpressionPtr& each : written.positional)
      out.positional.push_back(evaluate(*each, scope));
    for (const auto& [name, each] : written.named)
      out.named.emplace_back(name, evaluate(*each, scope));
    if (written.rest)
      for (Value& each : elements(evaluate(*written.rest, scope)))
        out.positional.push_back(std::move(each));
    if (written.named_rest) {
      const Value rest = evaluate(*written.named_rest, scope);
      if (!rest.dict()) refuse("** needs a dict, not a ", rest.type_name());
      for (const auto& [name, each] : rest.dict()->items())
        out.named.emplace_back(need_text(name, "**").bytes(), each);
    }
    session_.charge((out.positional.size() + out.named.size()) * sizeof(Value));
    return out;
  }

  Value call_value(const Expression& e, const Value& function, const Arguments& arguments) {
    location_ = e.at;
    if (const auto* undefined = function.as<Undefined>())
      refuse(undefined->why ? *undefined->why : "an undefined value cannot be called");
    if (!function.callable()) refuse("a ", function.type_name(), " cannot be called");
    Value result = function.callable()->call(session_, arguments);
    location_ = e.at;
    return result;
  }

  Value compared(const Expression& e, const ScopePtr& scope) {
    Value left = evaluate(*e.parts[0], scope);
    for (std::size_t i = 0; i < e.signs.size(); ++i) {
      Value right = evaluate(*e.parts[i + 1], scope);
      location_ = e.at;
      const bool within = e.signs[i] == "in" || e.signs[i] == "not in";
      session_.charge(within ? right.weight() : std::min(left.weight(), right.weight()));
      if (!holds(e.signs[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  static bool holds(std::string_view sign, const Value& left, const Value& right) {
    if (sign == "==") return equal(left, right);
    if (sign == "!=") return !equal(left, right);
    if (sign == "in") return contains(right, left);
    if (sign == "not in") return !contains(right, left);
    const int order = compare(left, right);
    if (sign == "<") return order < 0;
    if (sign == "<=") return order <= 0;
    return sign == ">" ? order > 0 : order >= 0;
  }

  Value made_dict(const Expression& e, const ScopePtr& scope) {
    Dict dict;
    for (std::size_t i = 0; i + 1 < e.parts.size(); i += 2) {
      Value key = evaluate(*e.parts[i], scope), value = evaluate(*e.parts[i + 1], scope);
      location_ = e.at;
      dict.set(std::move(key), std::move(value));
    }
    session_.charge(e.parts.size() * sizeof(Value));
    return dict;
  }

  using Kind = Expression::Kind;

  Value evaluate_kind(const Expression& e, const ScopePtr& scope) {
    const auto part = [&](std::size_t i) { return evaluate(*e.parts[i], scope); };
    switch (e.kind) {
      case Kind::constant:
        return e.value;
      case Kind::name:
        if (const Value* found = scope->find(e.symbol)) return *found;
        return Value::undefined(concat('\'', e.text, "' is undefined"));
      case Kind::list:
      case Kind::tuple: {
        List list{.is_tuple = e.kind == Kind::tuple};
        for (const ExpressionPtr& each : e.parts) list.items.push_back(evaluate(*each, scope));
        location_ = e.at;
        session_.charge(list.items.size() * sizeof(Value));
        return list;
      }
      case Kind::dict:
        return made_dict(e, scope);
      case Kind::choice:
        if (part(1).truth()) return part(0);
        return e.parts[2] ? part(2) : Value::undefined("a choice without 'else' has no value");
      case Kind::conjunction: {
        Value left = part(0);
        return left.truth() ? part(1) : left;
      }
      case Kind::disjunction: {
        Value left = part(0);
        return left.truth() ? left : part(1);
      }
      case Kind::negation:
        return !part(0).truth();
      case Kind::comparison:
        return compared(e, scope);
      default:
        return evaluate_operation(e, scope);
    }
  }

  /// The operations that can fail by their operands: they set the location after evaluating those.
  Value evaluate_operation(const Expression& e, const ScopePtr& scope) {
    Value first = e.parts[0] ? evaluate(*e.parts[0], scope) : Value();
    if (e.kind == Kind::join) return joined(e, std::move(first), scope);
    if (e.kind == Kind::call) return call_value(e, first, arguments_of(e.arguments, scope));
    if (e.kind == Kind::filter || e.kind == Kind::test) {
      const Arguments arguments = arguments_of(e.arguments, scope);
      location_ = e.at;
      if (e.kind == Kind::filter) return call_filter(e, first, arguments);
      if (!e.called_test) refuse("the test '", printable(e.text), "' is not supported");
      return call_test(*e.called_test, session_, first, arguments);
    }
    std::array<Value, 3> others{None{}, None{}, None{}};
    for (std::size_t i = 1; i < e.parts.size(); ++i)
      if (e.parts[i]) others[i - 1] = evaluate(*e.parts[i], scope);
    location_ = e.at;
    if (e.kind == Kind::member) return member_of(first, e.text);
    if (first.text()) session_.charge(first.cost());
    Value result = evaluated(e, first, others);
    if (first.text() || e.kind == Kind::slice || e.kind == Kind::arithmetic)
      session_.charge(result.cost());
    return result;
  }

  static Value evaluated(const Expression& e, const Value& first,
                         const std::array<Value, 3>& others) {
    switch (e.kind) {
      case Kind::item:
        return item_of(first, others[0]);
      case Kind::slice:
        return slice_of(first, others[0], others[1], others[2]);
      case Kind::minus:
        return negated(first);
      case Kind::plus:
        return first.as<double>() ? first : Value(need_integer(first, "'+'"));
      default:
        return arithmetic(e.text, first, others[0]);
    }
  }

  Value joined(const Expression& e, Value first, const ScopePtr& scope) {
    Text out;
    for (std::size_t i = 0; i < e.parts.size(); ++i) {
      const Text part = to_text(i == 0 ? first : evaluate(*e.parts[i], scope));
      location_ = e.at;
      session_.charge(part.cost());
      out.append(part);
    }
    return out;
  }

  const Program& program_;
  Session session_;
  const int loop_symbol_ =
      static_cast<int>(std::ranges::find(program_.symbols, "loop") - program_.symbols.begin());
  ScopePtr root_;
  std::vector<ScopePtr> defining_;  // of macros
  Text* out_ = nullptr;
  Location location_;
  int levels_ = 0;
};

void Macro::set_name(Scope& scope, const char* name, Value value) const {
  if (const int symbol = renderer_.symbol_of(name); symbol >= 0)
    scope.set(symbol, std::move(value));
}

Value Macro::call(Session&, const Arguments& arguments) const {
  const auto& [parameters, defaults, name, takes] =
      std::tie(definition_.parameters, definition_.defaults, definition_.name, definition_.takes);
  const std::size_t given = std::min(arguments.positional.size(), parameters.size());
  if (given < arguments.positional.size() && !takes.varargs)
    refuse(name, "() takes at most ", parameters.size(), " arguments, got ",
           arguments.positional.size());
  const auto scope = std::make_shared<Scope>(Scope{scope_});
  for (std::size_t i = 0; i < given; ++i) scope->set(parameters[i].first, arguments.positional[i]);
  Dict others;
  for (const auto& [argument, value] : arguments.named) {
    const auto found = std::ranges::find(parameters, argument, &Parameter::second);
    if (found != parameters.end())
      scope->set(found->first, value);
    else if (argument == "caller" && takes.caller)
      set_name(*scope, "caller", value);
    else if (takes.kwargs)
      others.set(argument, value);
    else
      refuse(name, "() has no parameter '", printable(argument.substr(0, 40)), "'");
  }
  const auto more = arguments.positional.begin() + static_cast<std::ptrdiff_t>(given);
  if (takes.varargs)
    set_name(*scope, "varargs",
             List{.items = {more, arguments.positional.end()}, .is_tuple = true});
  if (takes.kwargs) set_name(*scope, "kwargs", std::move(others));
  const std::size_t required = parameters.size() - defaults.size();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [symbol, parameter] = parameters[i];
    if (std::ranges::find(scope->variables, symbol, &Variable::first) != scope->variables.end())
      continue;
    scope->set(symbol, i >= required ? renderer_.evaluate(*defaults[i - required], scope)
                                     : Value::undefined(
                                           concat("parameter '", parameter, "' was not provided")));
  }
  return renderer_.written(definition_.bodies[0], scope);
}

Value Macro::member(std::string_view name) const {
  const MacroNames& takes = definition_.takes;
  if (name == "name") return definition_.name;
  if (name == "catch_varargs") return takes.varargs;
  if (name == "catch_kwargs") return takes.kwargs;
  if (name == "caller") return takes.caller;
  if (name != "arguments") return Callable::member(name);
  List names{.is_tuple = true};
  for (const Parameter& parameter : definition_.parameters)
    names.items.emplace_back(parameter.second);
  return names;
}

Value Loop::call(Session&, const Arguments& arguments) const {
  if (!statement_.recursive) refuse("loop() needs a loop that is 'recursive'");
  if (arguments.positional.size() != 1) refuse("loop() takes one argument");
  return renderer_.written_loop(statement_, arguments.positional[0], scope_, depth_ + 1);
}

Value Loop::member(std::string_view name) const {
  const auto size = items.size();
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return size - index;
  if (name == "revindex0") return size - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == size;
  if (name == "length") return size;
  if (name == "depth") return depth_;
  if (name == "depth0") return depth_ - 1;
  if (name == "previtem")
    return index > 0 ? items[index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < size ? items[index + 1] : Value::undefined("there is no next item");
  if (name == "cycle" || name == "changed")
    return CallablePtr(std::make_shared<const Method>(shared_from_this(), name == "cycle"));
  return Value::undefined(concat("'loop' has no attribute '", name, '\''));
}

Value Loop::Method::call(Session&, const Arguments& arguments) const {
  const std::vector<Value>& values = arguments.positional;
  if (cycles_) {
    if (values.empty()) refuse("loop.cycle() needs items");
    return values[loop_->index % values.size()];
  }
  const bool same = loop_->last_ && std::ranges::equal(*loop_->last_, values, equal);
  if (!same) loop_->last_ = values;
  return !same;
}

}  // namespace

Text render(const Program& program, const Variables& variables, const RenderOptions& options) {
  return Renderer(program, options).render(variables);
}

}  // namespace axonn::jinja
