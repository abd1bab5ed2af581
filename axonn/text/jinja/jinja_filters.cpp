#include "axonn/text/jinja/jinja_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "axonn/base/utf8.h"
#include "axonn/text/characters.h"
#include "axonn/text/jinja/jinja_methods.h"
#include "axonn/text/jinja/jinja_operators.h"
#include "axonn/text/jinja/jinja_print.h"

namespace axonn::jinja {

namespace {

/// The value at a path such as "function.name" or 0, for filters with attribute=.
Value attribute_of(const Value& value, const Value& path) {
  if (!path.text()) return item_of(value, path);
  Value at = value;
  const std::string& names = path.text()->bytes();
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find('.', begin), names.size());
    const std::string part = names.substr(begin, end - begin);
    const bool index = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    at = item_of(at,
                 index && part.size() < 18 ? Value(std::int64_t{std::stoll(part)}) : Value(part));
    begin = end + 1;
  }
  return at;
}

Value without_case(const Value& value) {
  return value.text() ? Value(value.text()->mapped(lower_case)) : value;
}

constexpr char kStrip[] = "strip", kUpper[] = "upper", kLower[] = "lower",
               kCapitalize[] = "capitalize", kReplace[] = "replace";

/// A filter that is a method of the value's text.
template <const char* kMethod>
Value by_method(Session& session, const Value& value, const Parameters& in) {
  return text_method(kMethod)->run(session, to_text(value), in);
}

/// Jinja's own title(): a letter after white space, -, (, {, [ or < is in upper case.
Value title_filter(Session&, const Value& value, const Parameters&) {
  bool inner = false;
  return to_text(value).mapped([&](std::string_view piece) {
    std::string out;
    while (!piece.empty()) {
      const std::string_view first = first_character(piece);
      piece.remove_prefix(first.size());
      out += inner ? lower_case(first) : upper_case(first);
      inner = !strip(first, Strip::both, nullptr).empty() &&
              std::string_view("-({[<").find(first) == std::string_view::npos;
    }
    return out;
  });
}

/// An indentation that is given as a text or as a number of spaces.
std::string indentation(const Parameters& in, std::size_t i, std::int64_t otherwise) {
  if (in[i] && in[i]->text()) return in[i]->text()->bytes();
  const auto width = std::clamp<std::int64_t>(in.integer(i, otherwise), 0, 100);
  return std::string(static_cast<std::size_t>(width), ' ');
}

Value tojson_filter(Session&, const Value& value, const Parameters& in) {
  JsonStyle style{.ensure_ascii = in.flag(0, false), .sort_keys = in.flag(3, false)};
  if (in.some(1)) {
    style.has_indent = true;
    style.indent = indentation(in, 1, 0);
    style.item_separator = ",";
  }
  if (in.some(2)) {
    const std::vector<Value> both = elements(*in[2]);
    if (both.size() != 2) refuse("tojson: separators must be two texts");
    style.item_separator = need_text(both[0], "tojson").bytes();
    style.key_separator = need_text(both[1], "tojson").bytes();
  }
  return to_json(value, style);
}

Value default_filter(Session&, const Value& value, const Parameters& in) {
  if (value.is_undefined() || (in.flag(1, false) && !value.truth()))
    return in[0] ? *in[0] : Value("");
  return value;
}

Value length_filter(Session&, const Value& value, const Parameters&) {
  if (const Text* text = value.text()) return code_points(text->bytes());
  if (const Dict* dict = value.dict()) return dict->size();
  if (const List* list = value.list()) return list->items.size();
  if (value.is_undefined()) return 0;
  refuse("a ", value.type_name(), " has no length");
}

template <bool kLast>
Value end_filter(Session&, const Value& value, const Parameters&) {
  const std::vector<Value> all = elements(value);
  if (all.empty()) return Value::undefined("an empty sequence has no first or last element");
  return kLast ? all.back() : all.front();
}

Value join_filter(Session&, const Value& value, const Parameters& in) {
  const Text between = in[0] ? to_text(*in[0]) : Text();
  Text out;
  bool first = true;
  for (const Value& each : elements(value)) {
    if (!first) out.append(between);
    first = false;
    out.append(to_text(in[1] ? attribute_of(each, *in[1]) : each));
  }
  return out;
}

Value list_filter(Session&, const Value& value, const Parameters&) {
  return List{.items = elements(value)};
}

Value string_filter(Session&, const Value& value, const Parameters&) { return to_text(value); }

Value items_filter(Session& session, const Value& value, const Parameters&) {
  if (value.is_undefined()) return List{};
  if (!value.dict()) refuse("items: a ", value.type_name(), " has no items");
  return member_of(value, "items").callable()->call(session, {});
}

/// Sorts by a key of each element, which may ignore the case of texts.
template <typename Key>
Value sorted(Session& session, std::vector<Value> all, bool reverse, const Key& key) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& each : all) {
    keyed.emplace_back(key(each), std::move(each));
    session.charge(32 * keyed.back().first.cost());  // it is compared so often
  }
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  for (std::size_t i = 0; i < keyed.size(); ++i) all[i] = std::move(keyed[i].second);
  return List{.items = std::move(all)};
}

/// The key of an element for sort and unique.
Value key_of(const Value& each, const Value* attribute, bool case_sensitive) {
  const Value key = attribute ? attribute_of(each, *attribute) : each;
  return case_sensitive ? key : without_case(key);
}

Value dictsort_filter(Session& session, const Value& value, const Parameters& in) {
  const bool by_value = in[1] && in.text(1).bytes() == "value";
  if (in[1] && !by_value && in.text(1).bytes() != "key")
    refuse("dictsort: by must be 'key' or 'value'");
  const Value items = items_filter(session, value, in);
  return sorted(session, items.list()->items, in.flag(2, false), [&](const Value& each) {
    return key_of(each.list()->items[by_value], nullptr, in.flag(0, false));
  });
}

Value sort_filter(Session& session, const Value& value, const Parameters& in) {
  if (in.some(2) && in[2]->text() && in.text(2).bytes().find(',') != std::string::npos)
    refuse("sort by several attributes is not supported");
  return sorted(session, elements(value), in.flag(0, false),
                [&](const Value& each) { return key_of(each, in.some(2), in.flag(1, false)); });
}

Value unique_filter(Session& session, const Value& value, const Parameters& in) {
  List out;
  std::vector<Value> seen;
  for (const Value& each : elements(value)) {
    Value key = key_of(each, in.some(1), in.flag(0, false));
    session.charge(seen.size() * (16 + key.weight()));
    if (std::ranges::any_of(seen, [&](const Value& other) { return equal(key, other); })) continue;
    seen.push_back(std::move(key));
    out.items.push_back(each);
  }
  return out;
}

Value reverse_filter(Session&, const Value& value, const Parameters&) {
  return slice_of(value.text() ? value : Value(List{.items = elements(value)}), None{}, None{}, -1);
}

Value indent_filter(Session&, const Value& value, const Parameters& in) {
  const std::string by = indentation(in, 0, 4);
  Text text = need_text(value, "indent");
  text.append("\n", {});  // as Jinja does: so the lines of a text that ends with \n have a last one
  Text out;
  bool first = true;
  for (std::string_view line : split_lines(text.bytes(), false)) {
    const bool indents = first ? in.flag(1, false) : !line.empty() || in.flag(2, false);
    if (!first) out.append("\n", {});
    first = false;
    if (indents) out.append(by, {});
    out.append(text.slice(line));
  }
  return out;
}

/// The number that a text is, but for white space around it.
template <typename Number>
std::optional<Number> number_in(const Text& text) {
  std::string_view digits = strip(text.bytes(), Strip::both, nullptr);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  Number value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) return {};
  return value;
}

Value int_filter(Session&, const Value& value, const Parameters& in) {
  if (in.integer(1, 10) != 10) refuse("int with a base is not supported");
  if (value.is_integer()) return need_integer(value, "int");
  if (value.as<LargeInteger>()) return value;
  std::optional<double> number;
  if (value.as<double>()) number = *value.as<double>();
  if (const Text* text = value.text()) {
    if (const auto whole = number_in<std::int64_t>(*text)) return *whole;
    number = number_in<double>(*text);
  }
  if (!number || !std::isfinite(*number)) return in[0] ? *in[0] : Value(0);
  if (std::abs(*number) >= 0x1p63) refuse("int: the number is beyond 64 bits");
  return static_cast<std::int64_t>(*number);
}

Value float_filter(Session&, const Value& value, const Parameters& in) {
  if (value.as<double>()) return value;
  if (value.is_integer()) return static_cast<double>(need_integer(value, "float"));
  const auto number = value.text() ? number_in<double>(*value.text()) : std::nullopt;
  return number ? Value(*number) : in[0] ? *in[0] : Value(0.0);
}

Value safe_filter(Session&, const Value& value, const Parameters&) { return to_text(value); }

/// The elements that a filter such as map takes: none of a value that is false, as None.
std::vector<Value> elements_or_none(const Value& value) {
  return value.truth() ? elements(value) : std::vector<Value>();
}

/// Removes the first positional argument. Throws if there is none.
Value take_first(Arguments& arguments, std::string_view function) {
  if (arguments.positional.empty()) refuse(function, ": an argument is missing");
  const Value first = arguments.positional.front();
  arguments.positional.erase(arguments.positional.begin());
  return first;
}

/// map('filter', arguments...) and map(attribute='name', default=...).
Value map_filter(Session& session, const Value& value, const Parameters& in) {
  Arguments rest = in.all();
  const Function* filter = nullptr;
  if (!rest.positional.empty()) {
    const Value name = take_first(rest, "map");
    filter = find_filter(need_text(name, "map").bytes());
    if (!filter) refuse("map: the filter '", name.text()->bytes(), "' is not supported");
  }
  constexpr Function kByAttribute{"map", {"attribute", "default"}, nullptr};
  List out;
  for (const Value& each : elements_or_none(value)) {
    if (filter) {
      out.items.push_back(call_function(*filter, session, each, rest));
      continue;
    }
    const Parameters by(kByAttribute, rest);
    Value found = attribute_of(each, by.need(0));
    out.items.push_back(found.is_undefined() && by[1] ? *by[1] : std::move(found));
  }
  return out;
}

/// select, reject, selectattr and rejectattr.
template <bool kSelects, bool kByAttribute>
Value select_filter(Session& session, const Value& value, const Parameters& in) {
  Arguments rest = in.all();
  const Value attribute = kByAttribute ? take_first(rest, "selectattr") : Value();
  const Test* test = nullptr;
  if (!rest.positional.empty()) {
    const Value name = take_first(rest, "select");
    test = find_test(need_text(name, "select").bytes());
    if (!test) refuse("select: the test '", name.text()->bytes(), "' is not supported");
  }
  List out;
  for (const Value& each : elements_or_none(value)) {
    const Value tested = kByAttribute ? attribute_of(each, attribute) : each;
    if ((test ? call_test(*test, session, tested, rest) : tested.truth()) == kSelects)
      out.items.push_back(each);
  }
  return out;
}

constexpr Function kFilters[] = {
    {"capitalize", {}, by_method<kCapitalize>},
    {"count", {}, length_filter},
    {"d", {"default_value", "boolean"}, default_filter},
    {"default", {"default_value", "boolean"}, default_filter},
    {"dictsort", {"case_sensitive", "by", "reverse"}, dictsort_filter},
    {"first", {}, end_filter<false>},
    {"float", {"default"}, float_filter},
    {"indent", {"width", "first", "blank"}, indent_filter},
    {"int", {"default", "base"}, int_filter},
    {"items", {}, items_filter},
    {"join", {"d", "attribute"}, join_filter},
    {"last", {}, end_filter<true>},
    {"length", {}, length_filter},
    {"list", {}, list_filter},
    {"lower", {}, by_method<kLower>},
    {"map", {"*"}, map_filter},
    {"reject", {"*"}, select_filter<false, false>},
    {"rejectattr", {"*"}, select_filter<false, true>},
    {"replace", {"old", "new", "count"}, by_method<kReplace>},
    {"reverse", {}, reverse_filter},
    {"safe", {}, safe_filter},
    {"select", {"*"}, select_filter<true, false>},
    {"selectattr", {"*"}, select_filter<true, true>},
    {"sort", {"reverse", "case_sensitive", "attribute"}, sort_filter},
    {"string", {}, string_filter},
    {"title", {}, title_filter},
    {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, tojson_filter},
    {"trim", {"chars"}, by_method<kStrip>},
    {"unique", {"case_sensitive", "attribute"}, unique_filter},
    {"upper", {}, by_method<kUpper>},
};

bool is_iterable(const Value& value) {
  return value.text() || value.list() || value.dict() || value.is_undefined();
}
bool less(const Value& a, const Value& b) { return compare(a, b) < 0; }
bool greater(const Value& a, const Value& b) { return compare(a, b) > 0; }
bool unequal(const Value& a, const Value& b) { return !equal(a, b); }
bool at_most(const Value& a, const Value& b) { return compare(a, b) <= 0; }
bool at_least(const Value& a, const Value& b) { return compare(a, b) >= 0; }

constexpr Test kTests[] = {
    {"boolean", [](const Value& v) { return v.as<bool>() != nullptr; }},
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"even", [](const Value& v) { return need_integer(v, "even") % 2 == 0; }},
    {"false", [](const Value& v) { return v.as<bool>() && !v.truth(); }},
    {"float", [](const Value& v) { return v.as<double>() != nullptr; }},
    {"integer", [](const Value& v) { return v.as<std::int64_t>() || v.as<LargeInteger>(); }},
    {"iterable", is_iterable},
    {"mapping", [](const Value& v) { return v.dict() != nullptr; }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"number", [](const Value& v) { return v.is_number() || v.as<LargeInteger>(); }},
    {"odd", [](const Value& v) { return need_integer(v, "odd") % 2 != 0; }},
    {"sequence", is_iterable},
    {"string", [](const Value& v) { return v.is_text(); }},
    {"true", [](const Value& v) { return v.as<bool>() && v.truth(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"!=", nullptr, unequal},
    {"<", nullptr, less},
    {"<=", nullptr, at_most},
    {"==", nullptr, equal},
    {">", nullptr, greater},
    {">=", nullptr, at_least},
    {"eq", nullptr, equal},
    {"equalto", nullptr, equal},
    {"ge", nullptr, at_least},
    {"greaterthan", nullptr, greater},
    {"gt", nullptr, greater},
    {"in", nullptr, [](const Value& v, const Value& other) { return contains(other, v); }},
    {"le", nullptr, at_most},
    {"lessthan", nullptr, less},
    {"lt", nullptr, less},
    {"ne", nullptr, unequal},
};

}  // namespace

const Function* find_filter(std::string_view name) { return find_function(kFilters, name); }

const Test* find_test(std::string_view name) {
  const auto* const found = std::ranges::find(kTests, name, &Test::name);
  return found == std::end(kTests) ? nullptr : found;
}

bool call_test(const Test& test, Session& session, const Value& value, const Arguments& arguments) {
  const std::size_t wanted = test.holds_with ? 1 : 0;
  if (arguments.positional.size() != wanted || !arguments.named.empty())
    refuse("the test '", test.name, "' takes ", wanted, " arguments");
  session.charge(wanted > 0 ? arguments.positional[0].weight() : 0);
  return wanted > 0 ? test.holds_with(value, arguments.positional[0]) : test.holds(value);
}

}  // namespace axonn::jinja
