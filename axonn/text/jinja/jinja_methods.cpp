// Methods of str, list and dict, and the functions of the environment.
#include <algorithm>
#include <map>
#include <span>

#include "axonn/base/utf8.h"
#include "axonn/text/characters.h"
#include "axonn/text/jinja/jinja_call.h"

namespace axonn::jinja {

namespace {

using TextMethod = Value (*)(Session&, const Text&, const Arguments&);

/// A text that a method puts into `text`.
Text put_into(const Text& text, const Text& part) {
  return text.is_markup() ? part.escaped() : part;
}

/// The text argument i, or nullptr if it is not given or None.
const std::string* text_or_none(const Parameters& in, std::size_t i, std::string_view function) {
  if (!in[i] || in[i]->is_none()) return nullptr;
  return &need_text(*in[i], function).bytes();
}

template <Strip kWhich>
Value strip_method(Session&, const Text& text, const Arguments& arguments) {
  const Parameters in("strip()", arguments, {"chars"});
  return text.slice(strip(text.bytes(), kWhich, text_or_none(in, 0, "strip()")));
}

/// split() without a separator: the words between white space.
List split_words(const Text& text, std::int64_t most) {
  List out;
  std::string_view rest = strip(text.bytes(), Strip::left, nullptr);
  while (!rest.empty()) {
    std::size_t end = 0;
    while (end < rest.size() && !is_white_space(code_point(rest.substr(end))))
      end += first_character(rest.substr(end)).size();
    if (most >= 0 && std::ssize(out.items) == most) {
      out.items.emplace_back(text.slice(rest));
      break;
    }
    out.items.emplace_back(text.slice(rest.substr(0, end)));
    rest = strip(rest.substr(end), Strip::left, nullptr);
  }
  return out;
}

template <bool kFromRight>
Value split_method(Session& session, const Text& text, const Arguments& arguments) {
  const Parameters in("split()", arguments, {"sep", "maxsplit"});
  const std::string* separator = text_or_none(in, 0, "split()");
  const std::int64_t most = in.integer(1, -1);
  session.charge(2 * text.size());
  if (!separator) {
    if (kFromRight && most >= 0) wrong("rsplit() with maxsplit needs a separator");
    return split_words(text, most);
  }
  if (separator->empty()) wrong("split(): the separator is empty");
  List out;
  std::string_view rest = text.bytes();
  const auto more = [&] { return most < 0 || std::ssize(out.items) < most; };
  if (!kFromRight) {
    for (std::size_t at = rest.find(*separator); at != rest.npos && more();
         at = rest.find(*separator)) {
      out.items.emplace_back(text.slice(rest.substr(0, at)));
      rest.remove_prefix(at + separator->size());
    }
    out.items.emplace_back(text.slice(rest));
  } else {
    for (std::size_t at = rest.rfind(*separator); at != rest.npos && more();
         at = rest.rfind(*separator)) {
      out.items.emplace_back(text.slice(rest.substr(at + separator->size())));
      rest = rest.substr(0, at);
    }
    out.items.emplace_back(text.slice(rest));
    std::ranges::reverse(out.items);
  }
  session.charge(out.items.size() * sizeof(Value));
  return out;
}

Value splitlines_method(Session& session, const Text& text, const Arguments& arguments) {
  const Parameters in("splitlines()", arguments, {"keepends"});
  session.charge(text.size());
  List out;
  for (std::string_view line : split_lines(text.bytes(), in.flag(0, false)))
    out.items.emplace_back(text.slice(line));
  return out;
}

template <bool kLast>
Value partition_method(Session&, const Text& text, const Arguments& arguments) {
  const Parameters in("partition()", arguments, {"sep"});
  const std::string& separator = need_text(in.need(0), "partition()").bytes();
  if (separator.empty()) wrong("partition(): the separator is empty");
  const std::size_t at = kLast ? text.bytes().rfind(separator) : text.bytes().find(separator);
  List out{.is_tuple = true};
  if (at == std::string::npos) {
    out.items = {Text(), Text(), Text()};
    out.items[kLast ? 2 : 0] = text;
  } else {
    const std::size_t end = at + separator.size();
    out.items = {text.slice(0, at), text.slice(at, end), text.slice(end, text.size())};
  }
  return out;
}

template <bool kEnds>
Value affix_method(Session&, const Text& text, const Arguments& arguments) {
  const Parameters in(kEnds ? "endswith()" : "startswith()", arguments, {"affix"});
  const auto has = [&](const Value& affix) {
    const std::string& part = need_text(affix, "startswith() or endswith()").bytes();
    return kEnds ? text.bytes().ends_with(part) : text.bytes().starts_with(part);
  };
  if (const List* list = in.need(0).list(); list && list->is_tuple)
    return std::ranges::any_of(list->items, has);
  return has(in.need(0));
}

template <bool kEnds>
Value remove_affix_method(Session&, const Text& text, const Arguments& arguments) {
  const Parameters in("removeprefix() or removesuffix()", arguments, {"affix"});
  const std::string& part = need_text(in.need(0), "removeprefix() or removesuffix()").bytes();
  if (kEnds ? !text.bytes().ends_with(part) : !text.bytes().starts_with(part)) return text;
  return kEnds ? text.slice(0, text.size() - part.size()) : text.slice(part.size(), text.size());
}

/// What find(), rfind(), index(), rindex() and count() share: the places of a part, in bytes.
template <typename F>
void for_matches(const Text& text, const std::string& part, const F& f) {
  const std::string& bytes = text.bytes();
  for (std::size_t at = bytes.find(part); at != bytes.npos;
       at = bytes.find(part, at + std::max<std::size_t>(part.size(), 1)))
    f(at);
}

template <bool kLast, bool kMustBe>
Value find_method(Session& session, const Text& text, const Arguments& arguments) {
  const Parameters in("find()", arguments, {"sub"});
  const std::string& part = need_text(in.need(0), "find()").bytes();
  session.charge(text.size());
  const std::size_t at = kLast ? text.bytes().rfind(part) : text.bytes().find(part);
  if (at == std::string::npos && kMustBe) wrong("index(): the substring is not found");
  if (at == std::string::npos) return -1;
  return count_characters(std::string_view(text.bytes()).substr(0, at));
}

Value count_method(Session& session, const Text& text, const Arguments& arguments) {
  const Parameters in("count()", arguments, {"sub"});
  const std::string& part = need_text(in.need(0), "count()").bytes();
  session.charge(text.size());
  if (part.empty()) return count_characters(text.bytes()) + 1;
  std::int64_t count = 0;
  for_matches(text, part, [&](std::size_t) { ++count; });
  return count;
}

Value replace_method(Session& session, const Text& text, const Arguments& arguments) {
  const Parameters in("replace()", arguments, {"old", "new", "count"});
  const std::string& from = need_text(in.need(0), "replace()").bytes();
  const Text to = put_into(text, need_text(in.need(1), "replace()"));
  std::int64_t left = in.integer(2, -1);
  session.charge(text.size());
  Text out;
  std::size_t done = 0;
  const auto insert = [&](std::size_t at) {
    if (left == 0) return;
    --left;
    session.charge(to.cost());
    out.append(text.slice(done, at));
    out.append(to);
    done = at + from.size();
  };
  if (from.empty()) {
    for (std::size_t at = 0; at < text.size();
         at += first_character(std::string_view(text.bytes()).substr(at)).size())
      insert(at);
    insert(text.size());
  } else {
    for_matches(text, from, insert);
  }
  if (done == 0 && out.empty()) return text;
  out.append(text.slice(done, text.size()));
  return out.as_markup(text.is_markup());
}

Value upper_method(Session& session, const Text& text, const Arguments& arguments) {
  const Parameters none("upper()", arguments, {});
  session.charge(text.size());
  return text.mapped(upper_case);
}
Value lower_method(Session& session, const Text& text, const Arguments& arguments) {
  const Parameters none("lower()", arguments, {});
  session.charge(text.size());
  return text.mapped(lower_case);
}
template <bool kOnce>
Value title_method(Session& session, const Text& text, const Arguments& arguments) {
  const Parameters none("title()", arguments, {});
  session.charge(text.size());
  return title_case(text, kOnce);
}

Value join_method(Session& session, const Text& text, const Arguments& arguments) {
  const Parameters in("join()", arguments, {"iterable"});
  Text out;
  bool first = true;
  for (const Value& each : elements(in.need(0))) {
    const Text part = put_into(text, need_text(each, "join()"));
    session.charge(text.cost() + part.cost());
    if (!first) out.append(text);
    first = false;
    out.append(part);
  }
  return out.as_markup(text.is_markup());
}

/// format() with fields "{}", "{0}" and "{name}".
Value format_method(Session& session, const Text& text, const Arguments& arguments) {
  Text out;
  const std::string_view bytes = text.bytes();
  std::size_t next = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t sign = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append(text.slice(at, sign));
    if (sign == bytes.size()) break;
    if (sign + 1 < bytes.size() && bytes[sign + 1] == bytes[sign]) {
      out.append(text.slice(sign, sign + 1));
      at = sign + 2;
      continue;
    }
    const std::size_t end = bytes.find('}', sign);
    if (bytes[sign] == '}' || end == bytes.npos) wrong("format(): a single '{' or '}'");
    const std::string_view field = bytes.substr(sign + 1, end - sign - 1);
    const bool number = field.find_first_not_of("0123456789") == field.npos && field.size() < 6;
    const Value* value = nullptr;
    if (number) {
      const std::size_t index = field.empty() ? next++ : std::stoul(std::string(field));
      if (index < arguments.positional.size()) value = &arguments.positional[index];
    } else {
      for (const auto& [name, each] : arguments.named)
        if (name == field) value = &each;
    }
    if (!value)
      wrong("format(): the field {", printable(field.substr(0, 40)),
            "} has no argument, or a form that is not supported");
    const Text shown = put_into(text, to_text(*value));
    session.charge(shown.size());
    out.append(shown);
    at = end + 1;
  }
  return out.as_markup(text.is_markup());
}

constexpr std::string_view kPredicates[] = {"isalnum", "isalpha",   "isdecimal", "isdigit",
                                            "islower", "isnumeric", "isspace",   "isupper"};

const std::map<std::string_view, TextMethod>& text_methods() {
  static const std::map<std::string_view, TextMethod> methods{
      {"capitalize", title_method<true>},
      {"count", count_method},
      {"endswith", affix_method<true>},
      {"find", find_method<false, false>},
      {"format", format_method},
      {"index", find_method<false, true>},
      {"join", join_method},
      {"lower", lower_method},
      {"lstrip", strip_method<Strip::left>},
      {"partition", partition_method<false>},
      {"removeprefix", remove_affix_method<false>},
      {"removesuffix", remove_affix_method<true>},
      {"replace", replace_method},
      {"rfind", find_method<true, false>},
      {"rindex", find_method<true, true>},
      {"rpartition", partition_method<true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<Strip::right>},
      {"split", split_method<false>},
      {"splitlines", splitlines_method},
      {"startswith", affix_method<false>},
      {"strip", strip_method<Strip::both>},
      {"title", title_method<false>},
      {"upper", upper_method},
  };
  return methods;
}

// From the second line on: what would change the value. Jinja's sandbox refuses to call these.
constexpr std::string_view kDictMethods[] = {"copy",  "get", "items",   "keys",       "values",
                                             "clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMethods[] = {"copy",   "count",   "index",  "append",
                                             "clear",  "extend",  "insert", "pop",
                                             "remove", "reverse", "sort"};
constexpr std::size_t kDictReaders = 5, kListReaders = 3;

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

Value dict_method(const Dict& dict, std::string_view name, const Arguments& arguments) {
  if (name == "get") {
    const Parameters in("get()", arguments, {"key", "default"});
    if (const Value* found = dict.find_key(in.need(0))) return *found;
    return in[1] ? *in[1] : Value(None{});
  }
  const Parameters none(name, arguments, {});
  if (name == "copy") return dict;
  List out;
  for (const auto& [key, value] : dict.items()) {
    if (name == "items")
      out.items.emplace_back(List{.items = {key, value}, .is_tuple = true});
    else
      out.items.push_back(name == "keys" ? key : value);
  }
  return out;
}

Value list_method(const List& list, std::string_view name, const Arguments& arguments) {
  if (name == "copy") return list;
  const Parameters in(name, arguments, {"value"});
  const auto same = [&](const Value& each) { return equal(each, in.need(0)); };
  if (name == "count") return static_cast<std::int64_t>(std::ranges::count_if(list.items, same));
  const auto found = std::ranges::find_if(list.items, same);
  if (found == list.items.end()) wrong("index(): the value is not in the list");
  return static_cast<std::int64_t>(found - list.items.begin());
}

class BoundMethod : public Callable {
 public:
  BoundMethod(Value object, std::string_view name) : object_(std::move(object)), name_(name) {}

  Value call(Session& session, const Arguments& arguments) const override {
    if (const Text* text = object_.text()) {
      if (is_one_of(name_, kPredicates)) return has_only(text->bytes(), name_);
      return text_methods().at(name_)(session, *text, arguments);
    }
    const bool reads = object_.dict()
                           ? is_one_of(name_, std::span(kDictMethods).first(kDictReaders))
                           : is_one_of(name_, std::span(kListMethods).first(kListReaders));
    if (!reads)
      wrong(name_, "() would change a ", object_.type_name(), ", which templates cannot do");
    if (const Dict* dict = object_.dict()) {
      session.charge(dict->size() * 2 * sizeof(Value));
      return dict_method(*dict, name_, arguments);
    }
    session.charge(object_.list()->items.size() * sizeof(Value));
    return list_method(*object_.list(), name_, arguments);
  }

 private:
  Value object_;
  std::string name_;
};

/// A function of the environment.
class GlobalFunction : public Callable {
 public:
  using Function = Value (*)(Session&, const Arguments&);
  explicit GlobalFunction(Function function) : function_(function) {}
  Value call(Session& session, const Arguments& arguments) const override {
    return function_(session, arguments);
  }

 private:
  Function function_;
};

Value range_function(Session& session, const Arguments& arguments) {
  constexpr std::int64_t kMost = 100'000;  // as in Jinja's sandbox
  const Parameters in("range()", arguments, {"start", "stop", "step"});
  std::int64_t begin = need_integer(in.need(0), "range()"), end = in.integer(1, 0);
  const std::int64_t step = in.integer(2, 1);
  if (!in[1]) end = std::exchange(begin, 0);
  if (step == 0) wrong("range(): the step is 0");
  List out;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(out.items) == kMost) wrong("range() has more than ", kMost, " elements");
    out.items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  session.charge(out.items.size() * sizeof(Value));
  return out;
}

Dict dict_of(const Arguments& arguments, std::string_view function) {
  Dict out;
  if (arguments.positional.size() > 1) wrong(function, " takes one argument without a name");
  for (const Value& first : arguments.positional) {
    if (!first.dict()) wrong(function, " needs a dict, not a ", first.type_name());
    out = *first.dict();
  }
  for (const auto& [name, value] : arguments.named) out.set(name, value);
  return out;
}

}  // namespace

bool is_method(std::string_view name) {
  return text_methods().contains(name) || is_one_of(name, kPredicates) ||
         is_one_of(name, kDictMethods) || is_one_of(name, kListMethods) || name == "cycle" ||
         name == "changed";
}

Value Callable::member(std::string_view name) const {
  return Value::undefined(concat("a function has no attribute '", name, "'"));
}

Value member_of(const Value& value, std::string_view name) {
  if (const auto* undefined = value.as<Undefined>())
    wrong(undefined->why ? *undefined->why : "an undefined value has no attributes");
  if (const Callable* callable = value.callable()) return callable->member(name);
  const bool has = value.text()   ? text_methods().contains(name) || is_one_of(name, kPredicates)
                   : value.list() ? is_one_of(name, kListMethods)
                                  : value.dict() && is_one_of(name, kDictMethods);
  if (has) return CallablePtr(std::make_shared<const BoundMethod>(value, name));
  const Dict* members = value.space() ? value.space() : value.dict();
  if (const Value* found = members ? members->find(name) : nullptr) return *found;
  std::string why = "a ";  // no concat(): templates ask for many members that may be absent
  why.append(value.type_name()).append(" has no attribute '").append(name) += '\'';
  return Value::undefined(std::move(why));
}

std::vector<std::pair<std::string_view, Value>> global_functions() {
  const auto function = [](GlobalFunction::Function f) {
    return Value(CallablePtr(std::make_shared<const GlobalFunction>(f)));
  };
  return {{"range", function(range_function)},
          {"dict", function([](Session&, const Arguments& arguments) -> Value {
             return dict_of(arguments, "dict()");
           })},
          {"namespace", function([](Session&, const Arguments& arguments) -> Value {
             return Namespace{std::make_shared<Dict>(dict_of(arguments, "namespace()"))};
           })},
          {"raise_exception", function([](Session&, const Arguments& arguments) -> Value {
             const Parameters in("raise_exception()", arguments, {"message"});
             throw RaisedException(printable(to_text(in.need(0)).bytes().substr(0, 2000)));
           })},
          {"strftime_now", function([](Session& session, const Arguments& arguments) -> Value {
             const Parameters in("strftime_now()", arguments, {"format"});
             return session.time(need_text(in.need(0), "strftime_now()").bytes());
           })}};
}

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names)
    : function_(function), names_(names), found_(names.size()) {
  if (arguments.positional.size() > names.size())
    wrong(function, " takes at most ", names.size(), " arguments, got ",
          arguments.positional.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    found_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::ranges::find(names_, name);
    if (at == names_.end()) wrong(function, " has no parameter '", name, "'");
    const Value*& slot = found_[static_cast<std::size_t>(at - names_.begin())];
    if (slot) wrong(function, ": the argument '", name, "' is given twice");
    slot = &value;
  }
}

const Value& Parameters::need(std::size_t i) const {
  if (!found_[i]) wrong(function_, ": the argument '", names_[i], "' is missing");
  return *found_[i];
}

bool Parameters::flag(std::size_t i, bool otherwise) const {
  return found_[i] ? found_[i]->truth() : otherwise;
}

std::int64_t Parameters::integer(std::size_t i, std::int64_t otherwise) const {
  return found_[i] ? need_integer(*found_[i], function_) : otherwise;
}

std::string Parameters::string(std::size_t i, std::string_view otherwise) const {
  return found_[i] ? need_text(*found_[i], function_).bytes() : std::string(otherwise);
}

}  // namespace axonn::jinja
