#include "axonn/text/jinja/jinja_methods.h"

#include <algorithm>
#include <array>

#include "axonn/base/utf8.h"
#include "axonn/text/characters.h"
#include "axonn/text/jinja/jinja_print.h"

namespace axonn::jinja {

namespace {

template <Strip kWhich>
Value strip_method(Session&, const Value& self, const Parameters& in) {
  const std::string* characters = in.some(0) ? &in.text(0).bytes() : nullptr;
  return self.text()->slice(strip(self.text()->bytes(), kWhich, characters));
}

void add_part(List& parts, Text part) {
  if (parts.items.size() == kMostElements)
    refuse("a text is cut into more than ", kMostElements, " parts");
  parts.items.emplace_back(std::move(part));
}

/// split() without a separator: the words between white space.
List split_words(const Text& text, std::int64_t most) {
  List out;
  std::string_view rest = strip(text.bytes(), Strip::left, nullptr);
  while (!rest.empty()) {
    std::size_t end = 0;
    while (end < rest.size() && !is_white_space(code_point(rest.substr(end))))
      end += first_character(rest.substr(end)).size();
    if (most >= 0 && std::ssize(out.items) == most) end = rest.size();
    add_part(out, text.slice(rest.substr(0, end)));
    rest = strip(rest.substr(end), Strip::left, nullptr);
  }
  return out;
}

template <bool kFromRight>
Value split_method(Session&, const Value& self, const Parameters& in) {
  const Text& text = *self.text();
  const std::int64_t most = in.integer(1, -1);
  if (!in.some(0)) {
    if (kFromRight && most >= 0) refuse("rsplit() with maxsplit needs a separator");
    return split_words(text, most);
  }
  const std::string& separator = in.text(0).bytes();
  if (separator.empty()) refuse("split(): the separator is empty");
  List out;
  std::string_view rest = text.bytes();
  while (most < 0 || std::ssize(out.items) < most) {
    const std::size_t at = kFromRight ? rest.rfind(separator) : rest.find(separator);
    if (at == rest.npos) break;
    const std::string_view left = rest.substr(0, at), right = rest.substr(at + separator.size());
    add_part(out, text.slice(kFromRight ? right : left));
    rest = kFromRight ? left : right;
  }
  add_part(out, text.slice(rest));
  if (kFromRight) std::ranges::reverse(out.items);
  return out;
}

Value splitlines_method(Session&, const Value& self, const Parameters& in) {
  List out;
  for (std::string_view line : split_lines(self.text()->bytes(), in.flag(0, false)))
    add_part(out, self.text()->slice(line));
  return out;
}

template <bool kEnds>
Value affix_method(Session&, const Value& self, const Parameters& in) {
  const std::string& bytes = self.text()->bytes();
  const auto has = [&](const Value& affix) {
    const std::string& part = need_text(affix, "startswith() or endswith()").bytes();
    return kEnds ? bytes.ends_with(part) : bytes.starts_with(part);
  };
  if (const List* list = in.need(0).list(); list && list->is_tuple)
    return std::ranges::any_of(list->items, has);
  return has(in.need(0));
}

Value find_method(Session&, const Value& self, const Parameters& in) {
  const std::string_view bytes = self.text()->bytes();
  const std::size_t at = bytes.find(in.text(0).bytes());
  return at == bytes.npos ? Value(-1) : Value(code_points(bytes.substr(0, at)));
}

Value replace_method(Session&, const Value& self, const Parameters& in) {
  const Text &text = *self.text(), &to = in.text(1);
  const std::string& from = in.text(0).bytes();
  if (from.empty()) refuse("replace(): an empty text cannot be replaced");
  std::int64_t left = in.integer(2, -1);
  Text out;
  std::size_t done = 0;
  for (std::size_t at = text.bytes().find(from); at != std::string::npos && left != 0;
       at = text.bytes().find(from, done), --left) {
    out.append(text.slice(done, at));
    out.append(to);
    done = at + from.size();
  }
  if (done == 0) return text;
  out.append(text.slice(done, text.size()));
  return out;
}

template <std::string (*kChange)(std::string_view)>
Value case_method(Session&, const Value& self, const Parameters&) {
  return self.text()->mapped(kChange);
}

template <bool kOnce>
Value title_method(Session&, const Value& self, const Parameters&) {
  return title_case(*self.text(), kOnce);
}

Value join_method(Session&, const Value& self, const Parameters& in) {
  Text out;
  bool first = true;
  for (const Value& each : elements(in.need(0))) {
    if (!first) out.append(*self.text());
    first = false;
    out.append(need_text(each, "join()"));
  }
  return out;
}

constexpr Function kTextMethods[] = {
    {"capitalize", {}, title_method<true>},
    {"endswith", {"suffix"}, affix_method<true>},
    {"find", {"sub"}, find_method},
    {"join", {"iterable"}, join_method},
    {"lower", {}, case_method<lower_case>},
    {"lstrip", {"chars"}, strip_method<Strip::left>},
    {"replace", {"old", "new", "count"}, replace_method},
    {"rsplit", {"sep", "maxsplit"}, split_method<true>},
    {"rstrip", {"chars"}, strip_method<Strip::right>},
    {"split", {"sep", "maxsplit"}, split_method<false>},
    {"splitlines", {"keepends"}, splitlines_method},
    {"startswith", {"prefix"}, affix_method<false>},
    {"strip", {"chars"}, strip_method<Strip::both>},
    {"title", {}, title_method<false>},
    {"upper", {}, case_method<upper_case>},
};

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

constexpr Function kDictMethods[] = {
    {"get", {"key", "default"}, get_method}, {"items", {}, items_method<true, true>},
    {"keys", {}, items_method<true, false>}, {"values", {}, items_method<false, true>},
    {"clear", {"*"}, changing_method},       {"pop", {"*"}, changing_method},
    {"popitem", {"*"}, changing_method},     {"setdefault", {"*"}, changing_method},
    {"update", {"*"}, changing_method},
};

constexpr Function kListMethods[] = {
    {"append", {"*"}, changing_method},  {"clear", {"*"}, changing_method},
    {"extend", {"*"}, changing_method},  {"insert", {"*"}, changing_method},
    {"pop", {"*"}, changing_method},     {"remove", {"*"}, changing_method},
    {"reverse", {"*"}, changing_method}, Function{"sort", {"*"}, changing_method},
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

Value namespace_function(Session&, const Value&, const Parameters& in) {
  if (!in.all().positional.empty()) refuse("namespace() takes arguments with names only");
  const auto members = std::make_shared<Dict>();
  for (const auto& [name, value] : in.all().named) members->set(name, value);
  return Namespace{members};
}

Value raise_function(Session&, const Value&, const Parameters& in) {
  throw RaisedException(printable(to_text(in.need(0)).bytes().substr(0, 2000)));
}

Value time_function(Session& session, const Value&, const Parameters& in) {
  if (!session.now)
    refuse("strftime_now() writes the current date, so the data would change from day to day");
  std::array<char, 512> buffer;
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), in.text(0).bytes().c_str(), session.now);
  return std::string_view(buffer.data(), size);
}

constexpr Function kGlobals[] = {
    {"namespace", {"*"}, namespace_function},
    {"raise_exception", {"message"}, raise_function},
    {"range", {"start", "stop", "step"}, range_function},
    {"strftime_now", {"format"}, time_function},
};

}  // namespace

const Function* text_method(std::string_view name) { return find_function(kTextMethods, name); }

bool is_method(std::string_view name) {
  return text_method(name) || find_function(kDictMethods, name) ||
         find_function(kListMethods, name);
}

Value member_of(const Value& value, std::string_view name) {
  if (const auto* undefined = value.as<Undefined>())
    refuse(undefined->why ? *undefined->why : "an undefined value has no attributes");
  if (const Callable* callable = value.callable()) return callable->member(name);
  const Function* method = value.text()   ? text_method(name)
                           : value.list() ? find_function(kListMethods, name)
                           : value.dict() ? find_function(kDictMethods, name)
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
