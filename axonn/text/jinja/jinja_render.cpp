#include "axonn/text/jinja/jinja_render.h"

#include <algorithm>
#include <array>

#include "axonn/base/utf8.h"

namespace axonn::jinja {

namespace {

// Bounds the stack: each level takes about 1 KB, with AddressSanitizer 6 KB.
constexpr int kMostLevels = 600;

/// The variables of a block. Those of the blocks around it are looked up in `outer`.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<int, Value>> variables = {};

  const Value* find(int symbol) const {
    for (const Scope* scope = this; scope; scope = scope->outer.get())
      for (const auto& [name, value] : scope->variables)
        if (name == symbol) return &value;
    return nullptr;
  }
  void set(int symbol, Value value) {
    for (auto& [name, old] : variables)
      if (name == symbol) {
        old = std::move(value);
        return;
      }
    variables.emplace_back(symbol, std::move(value));
  }
};
using ScopePtr = std::shared_ptr<Scope>;

class Renderer;

/// A macro, or the body of a call block, with the variables around its definition.
class Macro : public Callable {
 public:
  Macro(Renderer& renderer, const Statement& definition, ScopePtr scope)
      : renderer_(renderer), definition_(definition), scope_(std::move(scope)) {}
  Value call(Session& session, const Arguments& arguments) const override;

 private:
  void bind(const Arguments& arguments, Scope& scope) const;

  Renderer& renderer_;
  const Statement& definition_;
  ScopePtr scope_;
};

/// The variable `loop`.
class Loop : public Callable, public std::enable_shared_from_this<Loop> {
 public:
  Loop(Renderer& renderer, const Statement& statement, ScopePtr scope, std::int64_t depth)
      : renderer_(renderer), statement_(statement), scope_(std::move(scope)), depth_(depth) {}
  Value call(Session& session, const Arguments& arguments) const override;
  Value member(std::string_view name) const override;

  std::vector<Value> items;
  std::size_t index = 0;
  /// The arguments of the last loop.changed(), if it was called.
  mutable std::shared_ptr<const List> last;

 private:
  Renderer& renderer_;
  const Statement& statement_;
  ScopePtr scope_;
  std::int64_t depth_;
};

class LoopMethod : public Callable {
 public:
  LoopMethod(std::shared_ptr<const Loop> loop, bool changed)
      : loop_(std::move(loop)), changed_(changed) {}
  Value call(Session&, const Arguments& arguments) const override {
    const std::vector<Value>& given = arguments.positional;
    if (changed_) {
      const Value now(List{.items = given});
      const bool same = loop_->last && equal(loop_->last, now);
      loop_->last = *now.as<ListPtr>();
      return !same;
    }
    if (given.empty()) wrong("loop.cycle() needs an argument");
    return given[loop_->index % given.size()];
  }

 private:
  std::shared_ptr<const Loop> loop_;
  bool changed_;
};

class Renderer : public Session {
 public:
  enum class Flow { normal, break_loop, continue_loop };

  Renderer(const Program& program, const RenderOptions& options)
      : program_(program), options_(options), root_(std::make_shared<Scope>()) {}
  // Macros and their scopes refer to each other.
  ~Renderer() override {
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
    } catch (const UsageError& error) {  // only here is the place known
      refuse_at(program_.file, place_, error.what());
    }
    return out;
  }

  void charge(std::size_t bytes) override {
    bytes_ += static_cast<std::int64_t>(bytes);
    if (bytes_ > options_.most_bytes)
      wrong("the template makes more than ", options_.most_bytes, " bytes of text and lists");
  }
  Value filter(std::string_view name, const Value& value, const Arguments& arguments) override {
    const FilterFunction found = find_filter(name);
    if (!found) wrong("the filter '", printable(name.substr(0, 40)), "' is not supported");
    step();
    return found(*this, value, arguments);
  }
  bool test(std::string_view name, const Value& value, const Arguments& arguments) override {
    const TestFunction found = find_test(name);
    if (!found) wrong("the test '", printable(name.substr(0, 40)), "' is not supported");
    step();
    return found(*this, value, arguments);
  }
  std::string time(const std::string& format) override {
    if (!options_.now)
      wrong("strftime_now() writes the current date, so the data would change from day to day");
    std::array<char, 512> buffer;
    const std::size_t size =
        std::strftime(buffer.data(), buffer.size(), format.c_str(), options_.now);
    return std::string(buffer.data(), size);
  }

  /// What a body writes, with its own variables.
  Text written(const Body& body, const ScopePtr& scope) {
    Text text;
    Text* const before = std::exchange(out_, &text);
    run(body, scope);
    out_ = before;
    return text;
  }

  Text written_loop(const Statement& statement, const Value& items, const ScopePtr& scope,
                    std::int64_t depth) {
    Text text;
    Text* const before = std::exchange(out_, &text);
    run_loop(statement, items, scope, depth);
    out_ = before;
    return text;
  }

  Value evaluate(const Expression& e, const ScopePtr& scope) {
    const Level level(*this);
    return evaluate_kind(e, scope);
  }

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
      renderer.step();
      if (levels_ == kMostLevels) wrong("the template calls itself too deep");
      ++levels_;
    }
    ~Level() { --levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& levels_;
  };

  void step() {
    if (++steps_ > options_.most_steps)
      wrong("the template takes more than ", options_.most_steps, " steps");
  }

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

  void write(const Value& value) {
    if (const Text* text = value.text()) return write(*text);
    write(to_text(value));
  }
  void write(const Text& text) {
    charge(text.cost());
    out_->append(text);
  }

  Flow run(const Statement& s, const ScopePtr& scope) {
    using Kind = Statement::Kind;
    place_ = s.at;
    step();
    switch (s.kind) {
      case Kind::text:
        write(*s.text);
        break;
      case Kind::print: {
        const Value value = evaluate(*s.values[0], scope);
        place_ = s.at;
        write(value);
        break;
      }
      case Kind::choose: {
        std::size_t i = 0;
        while (i < s.values.size() && !evaluate(*s.values[i], scope).truth()) ++i;
        if (i < s.bodies.size()) return run(s.bodies[i], scope);
        break;
      }
      case Kind::loop:
        run_loop(s, evaluate(*s.values[0], scope), scope, 0);
        break;
      case Kind::set:
        assign(s.targets[0], evaluate(*s.values[0], scope), *scope);
        break;
      case Kind::set_body:
        set_body(s, scope);
        break;
      case Kind::macro:
        scope->set(s.symbol, defined(s, scope));
        break;
      case Kind::call:
        call_block(s, scope);
        break;
      case Kind::filter:
        write(filtered(*s.values[0], written(s.bodies[0], inner(scope)), scope));
        break;
      case Kind::with: {
        const ScopePtr within = inner(scope);
        for (std::size_t i = 0; i < s.targets.size(); ++i)
          within->set(s.targets[i].symbol, evaluate(*s.values[i], scope));
        return run(s.bodies[0], within);
      }
      case Kind::generation: {
        Text text = written(s.bodies[0], inner(scope));
        text.mark();
        write(text);
        break;
      }
      case Kind::break_loop:
        return Flow::break_loop;
      case Kind::continue_loop:
        return Flow::continue_loop;
    }
    return Flow::normal;
  }

  void set_body(const Statement& s, const ScopePtr& scope) {
    Value value = written(s.bodies[0], inner(scope));
    if (!s.values.empty()) value = filtered(*s.values[0], std::move(value), scope);
    assign(s.targets[0], std::move(value), *scope);
  }

  void call_block(const Statement& s, const ScopePtr& scope) {
    const Expression& call = *s.values[0];
    Arguments arguments = arguments_of(call.arguments, scope);
    arguments.named.emplace_back("caller", defined(s, scope));
    write(call_value(call, evaluate(*call.parts[0], scope), arguments));
  }

  static ScopePtr inner(const ScopePtr& scope) { return std::make_shared<Scope>(Scope{scope}); }

  Value defined(const Statement& s, const ScopePtr& scope) {
    if (defining_.empty() || defining_.back() != scope) defining_.push_back(scope);
    charge(512);  // of its scope, too
    return CallablePtr(std::make_shared<const Macro>(*this, s, scope));
  }

  /// Applies the filters of a filter block to what the block writes.
  Value filtered(const Expression& filter, Value value, const ScopePtr& scope) {
    if (filter.parts[0]) value = filtered(*filter.parts[0], std::move(value), scope);
    const Arguments arguments = arguments_of(filter.arguments, scope);
    place_ = filter.at;
    return filter.filter(*this, value, arguments);
  }

  void assign(const Target& target, Value value, Scope& scope) {
    place_ = target.at;
    if (!target.parts.empty()) {
      const std::vector<Value> all = elements(value);
      charge(all.size() * sizeof(Value));
      if (all.size() != target.parts.size())
        wrong("wanted ", target.parts.size(), " values to unpack, got ", all.size());
      for (std::size_t i = 0; i < all.size(); ++i) assign(target.parts[i], all[i], scope);
    } else if (target.member.empty()) {
      scope.set(target.symbol, std::move(value));
    } else {
      const Value* found = scope.find(target.symbol);
      if (!found || !found->space())
        wrong("only members of a namespace() can be set, and '",
              program_.symbols[static_cast<std::size_t>(target.symbol)], "' is none");
      found->space()->set(target.member, std::move(value));
    }
  }

  /// The elements for which the condition of the loop holds.
  std::vector<Value> chosen(const Statement& s, std::vector<Value> all, const ScopePtr& scope) {
    if (s.values.size() < 2) return all;
    std::erase_if(all, [&](const Value& each) {
      const ScopePtr within = inner(scope);
      assign(s.targets[0], each, *within);
      return !evaluate(*s.values[1], within).truth();
    });
    return all;
  }

  void run_loop(const Statement& s, const Value& items, const ScopePtr& scope, std::int64_t depth) {
    place_ = s.at;
    const auto loop = std::make_shared<Loop>(*this, s, scope, depth);
    loop->items = chosen(s, elements(items), scope);
    charge(loop->items.size() * sizeof(Value));
    ScopePtr within;
    for (; loop->index < loop->items.size(); ++loop->index) {
      if (!within || within.use_count() > 1) within = inner(scope);
      within->variables.clear();
      within->set(loop_symbol_, CallablePtr(loop));
      assign(s.targets[0], loop->items[loop->index], *within);
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
      if (!rest.dict()) wrong("'**' needs a dict, not a ", rest.type_name());
      for (const auto& [key, value] : rest.dict()->items())
        out.named.emplace_back(need_text(key, "'**'").bytes(), value);
    }
    charge((out.positional.size() + out.named.size()) * sizeof(Value));
    return out;
  }

  Value call_value(const Expression& e, const Value& function, const Arguments& arguments) {
    place_ = e.at;
    if (const auto* undefined = function.as<Undefined>())
      wrong(undefined->why ? *undefined->why : "an undefined value cannot be called");
    if (!function.callable()) wrong("a ", function.type_name(), " cannot be called");
    Value result = function.callable()->call(*this, arguments);
    place_ = e.at;
    return result;
  }

  Value compared(const Expression& e, const ScopePtr& scope) {
    Value left = evaluate(*e.parts[0], scope);
    for (std::size_t i = 0; i < e.signs.size(); ++i) {
      Value right = evaluate(*e.parts[i + 1], scope);
      place_ = e.at;
      charge(left.text() ? left.text()->size() : 0);
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
      place_ = e.at;
      dict.set(std::move(key), std::move(value));
    }
    charge(e.parts.size() * sizeof(Value));
    return dict;
  }

  Value evaluate_kind(const Expression& e, const ScopePtr& scope) {
    using Kind = Expression::Kind;
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
        place_ = e.at;
        charge(list.items.size() * sizeof(Value));
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

  /// The operations that can fail by their operands: they set the place after evaluating those.
  Value evaluate_operation(const Expression& e, const ScopePtr& scope) {
    using Kind = Expression::Kind;
    Value first = e.parts[0] ? evaluate(*e.parts[0], scope) : Value();
    if (e.kind == Kind::join) return joined(e, std::move(first), scope);
    if (e.kind == Kind::call) return call_value(e, first, arguments_of(e.arguments, scope));
    if (e.kind == Kind::filter || e.kind == Kind::test) {
      const Arguments arguments = arguments_of(e.arguments, scope);
      place_ = e.at;
      if (e.kind == Kind::filter) return e.filter(*this, first, arguments);
      return e.test(*this, first, arguments);
    }
    std::array<Value, 3> others{None{}, None{}, None{}};
    for (std::size_t i = 1; i < e.parts.size(); ++i)
      if (e.parts[i]) others[i - 1] = evaluate(*e.parts[i], scope);
    place_ = e.at;
    switch (e.kind) {
      case Kind::member:
        return member_of(first, e.text);
      case Kind::item:
        return item_of(first, others[0]);
      case Kind::slice:
        charge(first.text() ? first.text()->size() : sizeof(Value));
        return slice_of(first, others[0], others[1], others[2]);
      case Kind::minus:
        return negated(first);
      case Kind::plus:
        return first.as<double>() ? first : Value(need_integer(first, "'+'"));
      default:
        return e.text == "+" ? add(*this, first, others[0])
                             : arithmetic(*this, e.text, first, others[0]);
    }
  }

  Value joined(const Expression& e, Value first, const ScopePtr& scope) {
    Text out;
    for (std::size_t i = 0; i < e.parts.size(); ++i) {
      const Text part = to_text(i == 0 ? first : evaluate(*e.parts[i], scope));
      place_ = e.at;
      charge(part.cost());
      out.append(part);
    }
    return out;
  }

  const Program& program_;
  const RenderOptions& options_;
  const int loop_symbol_ = symbol_of("loop");
  ScopePtr root_;
  std::vector<ScopePtr> defining_;  // of macros
  Text* out_ = nullptr;
  Place place_;
  std::int64_t steps_ = 0, bytes_ = 0;
  int levels_ = 0;
};

Value Macro::call(Session&, const Arguments& arguments) const {
  const auto scope = std::make_shared<Scope>(Scope{scope_});
  bind(arguments, *scope);
  const std::size_t required = definition_.parameters.size() - definition_.defaults.size();
  for (std::size_t i = 0; i < definition_.parameters.size(); ++i) {
    const auto& [symbol, name] = definition_.parameters[i];
    if (std::ranges::find(scope->variables, symbol, [](const auto& v) { return v.first; }) !=
        scope->variables.end())
      continue;
    scope->set(symbol, i >= required
                           ? renderer_.evaluate(*definition_.defaults[i - required], scope)
                           : Value::undefined(concat("parameter '", name, "' was not provided")));
  }
  return renderer_.written(definition_.bodies[0], scope);
}

void Macro::bind(const Arguments& arguments, Scope& scope) const {
  List more{.is_tuple = true};
  Dict named;
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < definition_.parameters.size())
      scope.set(definition_.parameters[i].first, arguments.positional[i]);
    else
      more.items.push_back(arguments.positional[i]);
  }
  const int caller = renderer_.symbol_of("caller"), varargs = renderer_.symbol_of("varargs"),
            kwargs = renderer_.symbol_of("kwargs");
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(definition_.parameters, name,
                                         [](const auto& parameter) { return parameter.second; });
    if (found != definition_.parameters.end())
      scope.set(found->first, value);
    else if (name == "caller")
      scope.set(caller, value);
    else if (kwargs >= 0)
      named.set(name, value);
    else
      wrong(definition_.name, "() has no parameter '", printable(name.substr(0, 40)), "'");
  }
  if (!more.items.empty() && varargs < 0)
    wrong(definition_.name, "() takes at most ", definition_.parameters.size(), " arguments, got ",
          arguments.positional.size());
  if (varargs >= 0) scope.set(varargs, std::move(more));
  if (kwargs >= 0) scope.set(kwargs, std::move(named));
}

Value Loop::call(Session&, const Arguments& arguments) const {
  if (!statement_.recursive) wrong("loop() needs '{% for ... recursive %}'");
  const Parameters in("loop()", arguments, {"iterable"});
  return renderer_.written_loop(statement_, in.need(0), scope_, depth_ + 1);
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
  if (name == "depth") return depth_ + 1;
  if (name == "depth0") return depth_;
  if (name == "previtem")
    return index > 0 ? items[index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < size ? items[index + 1] : Value::undefined("there is no next item");
  if (name == "cycle" || name == "changed")
    return CallablePtr(std::make_shared<const LoopMethod>(shared_from_this(), name == "changed"));
  return Value::undefined(concat("loop has no attribute '", name, "'"));
}

}  // namespace

Text render(const Program& program, const Variables& variables, const RenderOptions& options) {
  return Renderer(program, options).render(variables);
}

}  // namespace axonn::jinja
