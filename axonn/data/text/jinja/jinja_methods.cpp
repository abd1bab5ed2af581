#include "axonn/data/text/jinja/jinja_methods.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>

#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

namespace {

Value get_method(Session&, const Value& self, const Parameters& in) {
  if (const Value* found = self.dict()->find_key(in.need(0))) return *found;
  return in[1] ? *in[1] : Value(None{});
}

/// items(), keys() and values().
template <bool kKeys, bool kValues>
Value items_method(Session&, const Value& self, const Parameters&) {
  List out;
  for (const auto& [key, value] : self.dict()->items()) {
    if (kKeys && kValues)
      out.items.emplace_back(List{.items = {key, value}, .is_tuple = true});
    else
      out.items.push_back(kKeys ? key : value);
  }
  return out;
}

Value changing_method(Session&, const Value& self, const Parameters& in) {
  refuse(in.function(), "() would change a ", self.type_name(), ", which templates cannot do");
}

Value copy_method(Session&, const Value& self, const Parameters&) { return self; }

Value list_count_method(Session&, const Value& self, const Parameters& in) {
  return std::ranges::count_if(self.list()->items,
                               [&](const Value& each) { return equal(each, in.need(0)); });
}

Value list_index_method(Session&, const Value& self, const Parameters& in) {
  const auto& items = self.list()->items;
  const auto size = std::ssize(items);
  const auto index = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t at = in.integer(i, otherwise);
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  for (std::int64_t i = index(1, 0); i < index(2, size); ++i)
    if (equal(items[static_cast<std::size_t>(i)], in.need(0))) return i;
  refuse("index(): the item is not in the list");
}

Value bit_length_method(Session&, const Value& self, const Parameters&) {
  const std::int64_t number = need_integer(self, "bit_length()");
  const auto size = static_cast<std::uint64_t>(number);
  return static_cast<int>(std::bit_width(number < 0 ? 0 - size : size));
}

Value is_integer_method(Session&, const Value& self, const Parameters&) {
  return !self.as<double>() || std::trunc(*self.as<double>()) == *self.as<double>();
}

constexpr Function kNumberMethods[] = {
    {"bit_length", {}, bit_length_method},
    {"is_integer", {}, is_integer_method},
};

constexpr Function kDictMethods[] = {
    {"copy", {}, copy_method},
    {"get", {"key", "default"}, get_method},
    {"items", {}, items_method<true, true>},
    {"keys", {}, items_method<true, false>},
    {"values", {}, items_method<false, true>},
    {"clear", {"*"}, changing_method},
    {"pop", {"*"}, changing_method},
    {"popitem", {"*"}, changing_method},
    {"setdefault", {"*"}, changing_method},
    {"update", {"*"}, changing_method},
};

constexpr Function kListMethods[] = {
    {"copy", {}, copy_method},
    {"count", {"value"}, list_count_method},
    {"index", {"value", "start", "stop"}, list_index_method},
    {"append", {"*"}, changing_method},
    {"clear", {"*"}, changing_method},
    {"extend", {"*"}, changing_method},
    {"insert", {"*"}, changing_method},
    {"pop", {"*"}, changing_method},
    {"remove", {"*"}, changing_method},
    {"reverse", {"*"}, changing_method},
    Function{"sort", {"*"}, changing_method},
};

/// A method of a value, or a function of the environment.
class BoundFunction : public Callable {
 public:
  BoundFunction(const Function& function, Value self)
      : function_(function), self_(std::move(self)) {}
  Value call(Session& session, const Arguments& arguments) const override {
    return call_function(function_, session, self_, arguments);
  }

 private:
  const Function& function_;
  Value self_;
};

Value range_function(Session&, const Value&, const Parameters& in) {
  constexpr std::int64_t kMost = 100'000;  // as in Jinja's sandbox
  std::int64_t begin = need_integer(in.need(0), "range()"), end = in.integer(1, 0);
  const std::int64_t step = in.integer(2, 1);
  if (!in[1]) end = std::exchange(begin, 0);
  if (step == 0) refuse("range(): the step is 0");
  List out;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(out.items) == kMost) refuse("range() has more than ", kMost, " elements");
    out.items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return out;
}

/// dict(): of a dict or of pairs, and of the arguments with names.
Value dict_function(Session&, const Value&, const Parameters& in) {
  Dict made;
  const auto& positional = in.all().positional;
  if (positional.size() > 1) refuse(in.function(), "() takes at most one argument without a name");
  if (!positional.empty() && positional[0].dict()) {
    made = *positional[0].dict();
  } else if (!positional.empty()) {
    for (const Value& each : elements(positional[0])) {
      const std::vector<Value> pair = elements(each);
      if (pair.size() != 2) refuse(in.function(), "(): wanted pairs of a key and a value");
      made.set(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : in.all().named) made.set(name, value);
  return made;
}

Value namespace_function(Session& session, const Value& self, const Parameters& in) {
  const Value made = dict_function(session, self, in);
  for (const auto& [name, value] : made.dict()->items())
    if (name.text()) check_namespace_member(name.text()->bytes());
  return Namespace{std::make_shared<Dict>(*made.dict())};
}

/// cycler(): next() gives its items in turn.
class Cycler : public Callable, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  Value call(Session&, const Arguments&) const override { refuse("a cycler cannot be called"); }
  Value member(std::string_view name) const override {
    if (name == "current") return items_[at_];
    if (name != "next" && name != "reset") return Callable::member(name);
    return CallablePtr(std::make_shared<const Step>(shared_from_this(), name == "next"));
  }

 private:
  class Step : public Callable {
   public:
    Step(std::shared_ptr<const Cycler> cycler, bool next)
        : cycler_(std::move(cycler)), next_(next) {}
    Value call(Session&, const Arguments&) const override {
      const std::size_t at =
          std::exchange(cycler_->at_, next_ ? (cycler_->at_ + 1) % cycler_->items_.size() : 0);
      return next_ ? cycler_->items_[at] : Value(None{});
    }

   private:
    std::shared_ptr<const Cycler> cycler_;
    bool next_;
  };

  std::vector<Value> items_;
  mutable std::size_t at_ = 0;
};

Value cycler_function(Session&, const Value&, const Parameters& in) {
  if (in.all().positional.empty()) refuse("cycler() needs items");
  return CallablePtr(std::make_shared<const Cycler>(in.all().positional));
}

/// joiner(): gives nothing when it is first called, then its separator.
class Joiner : public Callable {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  Value call(Session&, const Arguments&) const override {
    return std::exchange(used_, true) ? separator_ : Value("");
  }

 private:
  Value separator_;
  mutable bool used_ = false;
};

Value joiner_function(Session&, const Value&, const Parameters& in) {
  return CallablePtr(std::make_shared<const Joiner>(in[0] ? *in[0] : Value(", ")));
}

Value raise_function(Session&, const Value&, const Parameters& in) {
  throw RaisedException(printable(to_text(in.need(0)).bytes().substr(0, 2000)));
}

Value time_function(Session& session, const Value&, const Parameters& in) {
  if (!session.now)
    refuse("strftime_now() writes the current date, so the data would change from day to day");
  std::string format;  // as Python reads it for a time without a zone
  std::string_view rest = in.text(0).bytes();
  for (; !rest.empty(); rest.remove_prefix(rest.starts_with('%') && rest.size() > 1 ? 2 : 1)) {
    const std::string_view directive = rest.substr(0, rest.starts_with('%') ? 2 : 1);
    if (directive == "%f") refuse("strftime_now() with %f is not supported");
    if (directive != "%Z" && directive != "%z") format += directive;
  }
  std::array<char, 512> buffer;
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), session.now);
  return std::string_view(buffer.data(), size);
}

constexpr Function kGlobals[] = {
    {"cycler", {"*"}, cycler_function},
    {"dict", {"*"}, dict_function},
    {"joiner", {"sep"}, joiner_function},
    {"namespace", {"*"}, namespace_function},
    {"raise_exception", {"message"}, raise_function},
    {"range", {"start", "stop", "step"}, range_function},
    {"strftime_now", {"format"}, time_function},
};

}  // namespace

void check_namespace_member(std::string_view name) {
  if (name.starts_with('_'))
    refuse("a namespace cannot have the member '", printable(name.substr(0, 40)),
           "', which begins with _; rename it");
}

Value member_of(const Value& value, std::string_view name) {
  if (const auto* undefined = value.as<Undefined>())
    refuse(undefined->why ? *undefined->why : "an undefined value has no attributes");
  if (const Callable* callable = value.callable()) return callable->member(name);
  const Function* method = value.text()        ? text_method(name)
                           : value.list()      ? find_function(kListMethods, name)
                           : value.dict()      ? find_function(kDictMethods, name)
                           : value.is_number() ? find_function(kNumberMethods, name)
                                               : nullptr;
  if (method) return CallablePtr(std::make_shared<const BoundFunction>(*method, value));
  const Dict* members = value.space() ? value.space() : value.dict();
  if (const Value* found = members ? members->find(name) : nullptr) return *found;
  std::string why = "a ";  // no concat(): templates ask for many members that may be absent
  why.append(value.type_name()).append(" has no attribute '").append(name) += '\'';
  return Value::undefined(std::move(why));
}

std::vector<std::pair<std::string_view, Value>> global_functions() {
  std::vector<std::pair<std::string_view, Value>> all;
  for (const Function& function : kGlobals)
    all.emplace_back(function.name,
                     CallablePtr(std::make_shared<const BoundFunction>(function, Value())));
  return all;
}

}  // namespace axonn::jinja
