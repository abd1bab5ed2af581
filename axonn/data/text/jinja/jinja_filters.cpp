#include "axonn/data/text/jinja/jinja_filters.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <type_traits>

#include <fmt/format.h>

#include "axonn/data/text/characters.h"
#include "axonn/data/text/jinja/jinja_methods.h"
#include "axonn/data/text/jinja/jinja_operators.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/utf8.h"

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
    session.charge(32 * keyed.back().first.weight());  // it is compared so often
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

/// The number that a text is, but for white space around it and a _ between digits.
template <typename Number, typename... Base>
std::optional<Number> number_in(std::string_view text, Base... base) {
  text = strip(text, Strip::both, nullptr);
  const bool plus = text.starts_with('+');
  std::string digits;
  for (std::size_t i = plus ? 1 : 0; i < text.size(); ++i) {
    const auto is_digit = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] != '_')
      digits += text[i];
    else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1))
      return {};
  }
  if (plus && digits.starts_with('-')) return {};
  Number value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, base...);
  if (end.ec == std::errc::result_out_of_range && std::is_floating_point_v<Number>)
    return static_cast<Number>(std::strtod(digits.c_str(), nullptr));
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) return {};
  return value;
}

/// int(text, base): the base may be written in front, as in 0x1f.
std::optional<std::int64_t> integer_in(std::string_view text, std::int64_t base) {
  constexpr std::pair<std::string_view, int> kBases[] = {{"0x", 16}, {"0o", 8}, {"0b", 2}};
  if (base != 0 && (base < 2 || base > 36)) refuse("int: the base must be 0 or from 2 to 36");
  text = strip(text, Strip::both, nullptr);
  const bool negative = text.starts_with('-');
  std::string digits = lower_ascii(text.substr(negative || text.starts_with('+') ? 1 : 0));
  for (const auto& [front, value] : kBases)
    if (digits.starts_with(front) && (base == 0 || base == value)) {
      digits.erase(0, digits.size() > 2 && digits[2] == '_' ? 3 : 2);
      base = value;
    }
  if (digits.starts_with('-') || digits.starts_with('+')) return {};
  return number_in<std::int64_t>((negative ? "-" : "") + digits,
                                 base == 0 ? 10 : static_cast<int>(base));
}

Value int_filter(Session&, const Value& value, const Parameters& in) {
  if (value.is_integer()) return need_integer(value, "int");
  if (value.as<LargeInteger>()) return value;
  std::optional<double> number;
  if (value.as<double>()) number = *value.as<double>();
  if (const Text* text = value.text()) {
    if (const auto whole = integer_in(text->bytes(), in.integer(1, 10))) return *whole;
    number = number_in<double>(text->bytes());
  }
  if (!number || !std::isfinite(*number)) return in[0] ? *in[0] : Value(0);
  if (std::abs(*number) >= 0x1p63) refuse("int: the number is beyond 64 bits");
  return static_cast<std::int64_t>(*number);
}

Value float_filter(Session&, const Value& value, const Parameters& in) {
  if (value.as<double>()) return value;
  if (value.is_integer()) return static_cast<double>(need_integer(value, "float"));
  const auto number = value.text() ? number_in<double>(value.text()->bytes()) : std::nullopt;
  return number ? Value(*number) : in[0] ? *in[0] : Value(0.0);
}

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

Value abs_filter(Session&, const Value& value, const Parameters&) {
  return compare(value, 0) < 0 ? negated(value) : value;
}

Value attr_filter(Session&, const Value& value, const Parameters& in) {
  const std::string& name = in.text(0).bytes();
  if (value.dict() && !member_of(value, name).callable())
    return Value::undefined("attr() sees no keys of a dict");
  return member_of(value, name);
}

/// batch(n): lists of n elements; slice(n): n lists. The last ones may be filled up.
Value batch_filter(Session&, const Value& value, const Parameters& in) {
  const std::int64_t count = need_integer(in.need(0), "batch");
  if (count < 1) refuse("batch: wanted at least 1 element");
  std::vector<Value> all = elements(value);
  List out;
  for (std::int64_t begin = 0; begin < std::ssize(all); begin += count) {
    List part;
    for (std::int64_t i = begin; i < std::min(begin + count, std::ssize(all)); ++i)
      part.items.push_back(all[static_cast<std::size_t>(i)]);
    while (in.some(1) && std::ssize(part.items) < std::min<std::int64_t>(count, kMostElements))
      part.items.push_back(*in[1]);
    out.items.emplace_back(std::move(part));
  }
  return out;
}

Value slice_filter(Session&, const Value& value, const Parameters& in) {
  const std::int64_t count = need_integer(in.need(0), "slice");
  if (count < 1 || count > 100'000) refuse("slice: wanted 1 to 100,000 lists");
  const std::vector<Value> all = elements(value);
  const std::int64_t each = std::ssize(all) / count, more = std::ssize(all) % count;
  List out;
  for (std::int64_t n = 0, at = 0; n < count; ++n) {
    List part;
    for (std::int64_t end = at + each + (n < more ? 1 : 0); at < end; ++at)
      part.items.push_back(all[static_cast<std::size_t>(at)]);
    if (in.some(1) && n >= more) part.items.push_back(*in[1]);
    out.items.emplace_back(std::move(part));
  }
  return out;
}

Value filesizeformat_filter(Session&, const Value& value, const Parameters& in) {
  const auto size = number_in<double>(to_text(value).bytes());
  if (!size) refuse("filesizeformat: this is no number");
  const bool binary = in.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (*size == 1) return "1 Byte";
  if (*size < base) return fmt::format("{} Bytes", static_cast<std::int64_t>(*size));
  double unit = base;
  std::size_t i = 0;
  for (; i < 7 && *size >= unit * base; ++i) unit *= base;
  return fmt::format("{:.1f} {}{}B", *size / unit, "kMGTPEZY"[i], binary ? "i" : "");
}

Value groupby_filter(Session& session, const Value& value, const Parameters& in) {
  const Value& path = in.need(0);
  const auto key = [&](const Value& each) {
    const Value found = attribute_of(each, path);
    const Value given = found.is_undefined() && in.some(1) ? *in[1] : found;
    return in.flag(2, false) ? given : without_case(given);
  };
  const Value all = sorted(session, elements(value), false, key);
  List out;
  for (std::size_t begin = 0, end = 0; begin < all.list()->items.size(); begin = end) {
    const auto& items = all.list()->items;
    List group;
    for (; end < items.size() && equal(key(items[end]), key(items[begin])); ++end)
      group.items.push_back(items[end]);
    const Value first = attribute_of(items[begin], path);
    out.items.emplace_back(
        List{.items = {first.is_undefined() && in.some(1) ? *in[1] : first, std::move(group)},
             .is_tuple = true});
  }
  return out;
}

/// The least element, or the first of the largest.
template <bool kMax>
Value extreme_filter(Session& session, const Value& value, const Parameters& in) {
  const std::vector<Value> all = elements(value);
  if (all.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& each) { return key_of(each, in.some(1), in.flag(0, false)); };
  const Value* best = &all[0];
  for (const Value& each : all) {
    session.charge(each.weight());
    const int order = compare(key(each), key(*best));
    if (kMax ? order > 0 : order < 0) best = &each;
  }
  return *best;
}

Value round_filter(Session&, const Value& value, const Parameters& in) {
  const std::int64_t digits = in.integer(0, 0);
  const std::string method = in[1] ? in.text(1).bytes() : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    refuse("round: the method must be common, ceil or floor");
  if (digits < -300 || digits > 300) refuse("round: at most 300 places");
  const bool whole = value.is_integer();
  const double number = whole                ? static_cast<double>(need_integer(value, "round"))
                        : value.as<double>() ? *value.as<double>()
                                             : 0;
  if (!value.is_number()) refuse("round needs a number, not a ", value.type_name());
  const double power = std::pow(10.0, static_cast<double>(digits));
  if (method != "common")
    return (method == "ceil" ? std::ceil(number * power) : std::floor(number * power)) / power;
  if (whole && digits >= 0) return need_integer(value, "round");
  if (digits >= 0) {  // as Python: the decimal that is nearest to the exact value
    const std::string text = fmt::format("{:.{}f}", number, digits);
    return std::strtod(text.c_str(), nullptr);
  }
  const double rounded = std::nearbyint(number * power) / power;
  return whole ? Value(static_cast<std::int64_t>(rounded)) : Value(rounded);
}

Value sum_filter(Session& session, const Value& value, const Parameters& in) {
  Value total = in[1] ? *in[1] : Value(0);
  for (const Value& each : elements(value)) {
    total = arithmetic("+", total, in.some(0) ? attribute_of(each, *in[0]) : each);
    session.charge(total.cost());
  }
  return total;
}

constexpr Function kFilters[] = {
    {"abs", {}, abs_filter},
    {"attr", {"name"}, attr_filter},
    {"batch", {"linecount", "fill_with"}, batch_filter},
    {"filesizeformat", {"binary"}, filesizeformat_filter},
    {"groupby", {"attribute", "default", "case_sensitive"}, groupby_filter},
    {"max", {"case_sensitive", "attribute"}, extreme_filter<true>},
    {"min", {"case_sensitive", "attribute"}, extreme_filter<false>},
    {"round", {"precision", "method"}, round_filter},
    {"slice", {"slices", "fill_with"}, slice_filter},
    {"sum", {"attribute", "start"}, sum_filter},
    {"count", {}, length_filter},
    {"d", {"default_value", "boolean"}, default_filter},
    {"default", {"default_value", "boolean"}, default_filter},
    {"dictsort", {"case_sensitive", "by", "reverse"}, dictsort_filter},
    {"first", {}, end_filter<false>},
    {"float", {"default"}, float_filter},
    {"int", {"default", "base"}, int_filter},
    {"items", {}, items_filter},
    {"join", {"d", "attribute"}, join_filter},
    {"last", {}, end_filter<true>},
    {"length", {}, length_filter},
    {"list", {}, list_filter},
    {"map", {"*"}, map_filter},
    {"reject", {"*"}, select_filter<false, false>},
    {"rejectattr", {"*"}, select_filter<false, true>},
    {"reverse", {}, reverse_filter},
    {"select", {"*"}, select_filter<true, false>},
    {"selectattr", {"*"}, select_filter<true, true>},
    {"sort", {"reverse", "case_sensitive", "attribute"}, sort_filter},
    {"unique", {"case_sensitive", "attribute"}, unique_filter},
};

bool is_iterable(const Value& value) {
  return value.text() || value.list() || value.dict() || value.is_undefined();
}
bool less(const Value& a, const Value& b) { return compare(a, b) < 0; }
bool greater(const Value& a, const Value& b) { return compare(a, b) > 0; }
bool unequal(const Value& a, const Value& b) { return !equal(a, b); }
bool at_most(const Value& a, const Value& b) { return compare(a, b) <= 0; }
bool at_least(const Value& a, const Value& b) { return compare(a, b) >= 0; }

bool divisible(const Value& a, const Value& b) { return equal(arithmetic("%", a, b), 0); }
bool same(const Value& a, const Value& b) {
  if (a.is_none() || a.as<bool>()) return a.type_name() == b.type_name() && equal(a, b);
  return a.type_name() == b.type_name() && equal(a, b) && !a.list() && !a.dict();
}
template <std::string (*kChange)(std::string_view), std::string (*kOther)(std::string_view)>
bool has_case(const Value& value) {
  const std::string text = to_text(value).bytes();
  return kChange(text) == text && kOther(text) != text;
}

constexpr Test kTests[] = {
    {"callable", [](const Value& v) { return v.callable() != nullptr; }},
    {"divisibleby", nullptr, divisible},
    {"escaped", [](const Value&) { return false; }},
    {"filter",
     [](const Value& v) { return find_filter(need_text(v, "filter").bytes()) != nullptr; }},
    {"lower", has_case<lower_case, upper_case>},
    {"sameas", nullptr, same},
    {"test", [](const Value& v) { return find_test(need_text(v, "test").bytes()) != nullptr; }},
    {"upper", has_case<upper_case, lower_case>},
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

const Function* find_filter(std::string_view name) {
  const Function* const found = find_function(kFilters, name);
  return found ? found : find_text_filter(name);
}

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
