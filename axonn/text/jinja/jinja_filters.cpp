// The filters and tests of Jinja that chat templates use, with the tojson of transformers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "axonn/text/characters.h"
#include "axonn/text/jinja/jinja_call.h"

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

/// A filter that is a method of the value's text.
template <const char* kMethod>
Value by_method(Session& session, const Value& value, const Arguments& arguments) {
  return member_of(to_text(value), kMethod).callable()->call(session, arguments);
}
constexpr char kStrip[] = "strip", kUpper[] = "upper", kLower[] = "lower",
               kCapitalize[] = "capitalize";

Value replace_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Text plain = to_text(value).as_markup(false);
  return member_of(plain, "replace").callable()->call(session, arguments);
}

/// Jinja's own title(): a letter after white space, -, (, {, [ or < is in upper case.
Value title_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters none("title", arguments, {});
  const Text text = to_text(value).as_markup(false);
  session.charge(text.size());
  bool inner = false;
  return text.mapped([&](std::string_view piece) {
    std::string out;
    while (!piece.empty()) {
      const std::string_view first = first_character(piece);
      piece.remove_prefix(first.size());
      out += inner ? lower_case(first) : upper_case(first);
      inner = strip(first, Strip::both, nullptr).empty()
                  ? false
                  : std::string_view("-({[<").find(first) == std::string_view::npos;
    }
    return out;
  });
}

Value tojson_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters in("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = in.flag(0, false), .sort_keys = in.flag(3, false)};
  if (in[1] && !in[1]->is_none()) {
    style.has_indent = true;
    style.indent = in[1]->text() ? in[1]->text()->bytes()
                                 : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                                   in.integer(1, 0), 0, 100)),
                                               ' ');
    style.item_separator = ",";
  }
  if (in[2] && !in[2]->is_none()) {
    const std::vector<Value> both = elements(*in[2]);
    if (both.size() != 2) wrong("tojson: separators must be two texts");
    style.item_separator = need_text(both[0], "tojson").bytes();
    style.key_separator = need_text(both[1], "tojson").bytes();
  }
  Text out = to_json(value, style);
  session.charge(out.size());
  return out;
}

Value default_filter(Session&, const Value& value, const Arguments& arguments) {
  const Parameters in("default", arguments, {"default_value", "boolean"});
  if (value.is_undefined() || (in.flag(1, false) && !value.truth()))
    return in[0] ? *in[0] : Value("");
  return value;
}

Value length_filter(Session&, const Value& value, const Arguments& arguments) {
  const Parameters none("length", arguments, {});
  if (const Text* text = value.text()) return count_characters(text->bytes());
  if (const Dict* dict = value.dict()) return dict->size();
  if (const List* list = value.list()) return list->items.size();
  if (value.is_undefined()) return 0;
  wrong("a ", value.type_name(), " has no length");
}

template <bool kLast>
Value end_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters none("first or last", arguments, {});
  if (const List* list = value.list(); list && !list->items.empty())
    return kLast ? list->items.back() : list->items.front();
  if (const Text* text = value.text()) session.charge(sizeof(Value) * text->size());
  const std::vector<Value> all = elements(value);
  if (all.empty()) return Value::undefined("an empty sequence has no first or last element");
  return kLast ? all.back() : all.front();
}

Value join_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters in("join", arguments, {"d", "attribute"});
  const Text between = in[0] ? to_text(*in[0]) : Text();
  Text out;
  bool first = true;
  for (const Value& each : elements(value)) {
    if (!first) out.append(between);
    first = false;
    const Text part = to_text(in[1] ? attribute_of(each, *in[1]) : each);
    session.charge(part.cost() + between.cost());
    out.append(part);
  }
  return out;
}

Value list_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters none("list", arguments, {});
  List out{.items = elements(value)};
  session.charge(out.items.size() * sizeof(Value));
  return out;
}

Value string_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters none("string", arguments, {});
  if (value.text()) return value;
  Text out = to_text(value);
  session.charge(out.size());
  return out;
}

Value safe_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters none("safe", arguments, {});
  Text out = to_text(value);
  session.charge(out.size());
  return out.as_markup();
}

Value escape_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters none("escape", arguments, {});
  Text out = to_text(value).escaped();
  session.charge(out.size());
  return out;
}

Value items_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters none("items", arguments, {});
  if (value.is_undefined()) return List{};
  if (!value.dict()) wrong("items: a ", value.type_name(), " has no items");
  return member_of(value, "items").callable()->call(session, {});
}

/// Sorts by a key of each element, which may ignore the case of texts.
template <typename Key>
std::vector<Value> sorted(Session& session, std::vector<Value> all, bool reverse, const Key& key) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& each : all) keyed.emplace_back(key(each), std::move(each));
  session.charge(keyed.size() * 16 * sizeof(Value));
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  for (std::size_t i = 0; i < keyed.size(); ++i) all[i] = std::move(keyed[i].second);
  return all;
}

Value dictsort_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters in("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = in.string(1, "key");
  if (by != "key" && by != "value") wrong("dictsort: by must be 'key' or 'value'");
  const Value items = items_filter(session, value, {});
  return List{.items =
                  sorted(session, items.list()->items, in.flag(2, false), [&](const Value& each) {
                    const Value& key = each.list()->items[by == "key" ? 0 : 1];
                    return in.flag(0, false) ? key : without_case(key);
                  })};
}

/// The key of an element for sort, unique, min and max.
Value key_of(const Value& each, const Value* attribute, bool case_sensitive) {
  const Value key = attribute && !attribute->is_none() ? attribute_of(each, *attribute) : each;
  return case_sensitive ? key : without_case(key);
}

Value sort_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters in("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  if (in[2] && in[2]->text() && in[2]->text()->bytes().find(',') != std::string::npos)
    wrong("sort by several attributes is not supported");
  return List{.items = sorted(session, elements(value), in.flag(0, false), [&](const Value& each) {
                return key_of(each, in[2], in.flag(1, false));
              })};
}

Value unique_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters in("unique", arguments, {"case_sensitive", "attribute"});
  List out;
  std::vector<Value> seen;
  for (const Value& each : elements(value)) {
    const Value key = key_of(each, in[1], in.flag(0, false));
    session.charge(seen.size() + sizeof(Value));
    if (std::ranges::any_of(seen, [&](const Value& other) { return equal(key, other); })) continue;
    seen.push_back(key);
    out.items.push_back(each);
  }
  return out;
}

template <bool kMost>
Value extreme_filter(Session&, const Value& value, const Arguments& arguments) {
  const Parameters in(kMost ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> all = elements(value);
  if (all.empty()) return Value::undefined("an empty sequence has no least or greatest element");
  const auto key = [&](const Value& each) { return key_of(each, in[1], in.flag(0, false)); };
  const Value* best = all.data();
  for (const Value& each : all)
    if (const int order = compare(key(each), key(*best)); kMost ? order > 0 : order < 0)
      best = &each;
  return *best;
}

Value sum_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters in("sum", arguments, {"attribute", "start"});
  Value total = in[1] ? *in[1] : Value(0);
  for (const Value& each : elements(value))
    total = add(session, total, in[0] && !in[0]->is_none() ? attribute_of(each, *in[0]) : each);
  return total;
}

Value reverse_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters none("reverse", arguments, {});
  session.charge(value.text() ? value.text()->size() : 1);
  return value.text() ? slice_of(value, None{}, None{}, -1)
                      : slice_of(List{.items = elements(value)}, None{}, None{}, -1);
}

Value indent_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters in("indent", arguments, {"width", "first", "blank"});
  const std::string by =
      in[0] && in[0]->text()
          ? in[0]->text()->bytes()
          : std::string(
                static_cast<std::size_t>(std::clamp<std::int64_t>(in.integer(0, 4), 0, 1000)), ' ');
  Text text = need_text(value, "indent");
  text.append("\n", {});  // as Jinja does: so the lines of a text that ends with \n have a last one
  Text out;
  bool first = true;
  for (std::string_view line : split_lines(text.bytes(), false)) {
    const bool indents = first ? in.flag(1, false) : !line.empty() || in.flag(2, false);
    if (!first) out.append("\n", {});
    first = false;
    session.charge(line.size() + by.size() + 1);
    if (indents) out.append(by, {});
    out.append(text.slice(line));
  }
  return out.as_markup(text.is_markup());
}

std::optional<double> float_in(const Text& text) {
  std::string_view digits = strip(text.bytes(), Strip::both, nullptr);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  double value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) return {};
  return value;
}

Value int_filter(Session&, const Value& value, const Arguments& arguments) {
  const Parameters in("int", arguments, {"default", "base"});
  const Value otherwise = in[0] ? *in[0] : Value(0);
  if (const auto base = in.integer(1, 10); base != 10) wrong("int with a base is not supported");
  if (value.is_integer() && !value.as<LargeInteger>()) return need_integer(value, "int");
  if (value.as<LargeInteger>()) return value;
  std::optional<double> number;
  if (value.as<double>()) number = *value.as<double>();
  if (const Text* text = value.text()) {
    std::string_view digits = strip(text->bytes(), Strip::both, nullptr);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    std::int64_t whole = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
    if (end.ec == std::errc() && end.ptr == digits.data() + digits.size()) return whole;
    number = float_in(*text);
  }
  if (!number || !std::isfinite(*number)) return otherwise;
  if (std::abs(*number) >= 0x1p63) wrong("int: the number is beyond 64 bits");
  return static_cast<std::int64_t>(*number);
}

Value float_filter(Session&, const Value& value, const Arguments& arguments) {
  const Parameters in("float", arguments, {"default"});
  if (value.as<double>()) return value;
  if (value.is_integer() && !value.as<LargeInteger>())
    return static_cast<double>(need_integer(value, "float"));
  if (const Text* text = value.text())
    if (const auto number = float_in(*text)) return *number;
  return in[0] ? *in[0] : Value(0.0);
}

Value abs_filter(Session&, const Value& value, const Arguments& arguments) {
  const Parameters none("abs", arguments, {});
  if (const auto* number = value.as<double>()) return std::abs(*number);
  return need_integer(value, "abs") < 0 ? negated(value) : value;
}

Value round_filter(Session&, const Value& value, const Arguments& arguments) {
  const Parameters in("round", arguments, {"precision", "method"});
  const std::string method = in.string(1, "common");
  const double number =
      value.as<double>() ? *value.as<double>() : static_cast<double>(need_integer(value, "round"));
  const std::int64_t precision = in.integer(0, 0);
  if (method == "common" && precision == 0 && !value.as<double>()) return value;
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(number * scale) / scale;
  if (method == "floor") return std::floor(number * scale) / scale;
  if (method != "common") wrong("round: method must be common, ceil or floor");
  if (precision == 0) return std::nearbyint(number);
  if (precision < 0 || precision > 300) wrong("round: precision must be 0 to 300");
  // As Python does: the decimal with so many digits that is nearest to the binary value.
  char buffer[700];
  const auto end = std::to_chars(std::begin(buffer), std::end(buffer), number,
                                 std::chars_format::fixed, static_cast<int>(precision));
  double rounded = number;
  if (end.ec == std::errc()) std::from_chars(std::begin(buffer), end.ptr, rounded);
  return rounded;
}

Value attr_filter(Session&, const Value& value, const Arguments& arguments) {
  const Parameters in("attr", arguments, {"name"});
  const std::string& name = need_text(in.need(0), "attr").bytes();
  if (value.dict() && !member_of(Dict{}, name).callable())
    return Value::undefined("attr finds no keys of a dict");
  return member_of(value, name);
}

/// map('filter', arguments...) and map(attribute='name', default=...).
Value map_filter(Session& session, const Value& value, const Arguments& arguments) {
  List out;
  if (!value.truth()) return out;  // as Jinja: of None, too
  const std::vector<Value> all = elements(value);
  session.charge(all.size() * sizeof(Value));
  if (arguments.positional.empty()) {
    const Parameters in("map", arguments, {"", "attribute", "default"});
    for (const Value& each : all) {
      Value found = attribute_of(each, in.need(1));
      out.items.push_back(found.is_undefined() && in[2] ? *in[2] : std::move(found));
    }
    return out;
  }
  Arguments rest = arguments;
  const std::string name = need_text(rest.positional.front(), "map").bytes();
  rest.positional.erase(rest.positional.begin());
  for (const Value& each : all) out.items.push_back(session.filter(name, each, rest));
  return out;
}

/// select, reject, selectattr and rejectattr.
template <bool kSelects, bool kByAttribute>
Value select_filter(Session& session, const Value& value, const Arguments& arguments) {
  Arguments rest = arguments;
  const auto take = [&] {
    const Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  if (kByAttribute && rest.positional.empty()) wrong("selectattr: the attribute is missing");
  const Value attribute = kByAttribute ? take() : Value();
  const bool tests = !rest.positional.empty();
  const std::string name = tests ? need_text(take(), "select").bytes() : "";
  List out;
  if (!value.truth()) return out;  // as Jinja: of None, too
  const std::vector<Value> all = elements(value);
  session.charge(all.size() * sizeof(Value));
  for (const Value& each : all) {
    const Value tested = kByAttribute ? attribute_of(each, attribute) : each;
    const bool holds = tests ? session.test(name, tested, rest) : tested.truth();
    if (holds == kSelects) out.items.push_back(each);
  }
  return out;
}

Value groupby_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters in("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const auto key = [&](const Value& each) {
    const Value found = attribute_of(each, in.need(0));
    return found.is_undefined() && in[1] ? *in[1] : found;
  };
  List groups;
  std::vector<Value> members;
  Value last;
  const auto finish = [&] {
    if (!members.empty())
      groups.items.emplace_back(
          List{.items = {last, List{.items = std::exchange(members, {})}}, .is_tuple = true});
  };
  for (const Value& each : sorted(session, elements(value), false,
                                  [&](const Value& e) { return without_case(key(e)); })) {
    if (!members.empty() && !equal(without_case(last), without_case(key(each)))) finish();
    if (members.empty()) last = key(each);
    members.push_back(each);
  }
  finish();
  return groups;
}

Value wordcount_filter(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters none("wordcount", arguments, {});
  const Text text = to_text(value);
  session.charge(text.size());
  std::int64_t words = 0;
  bool inside = false;
  for (std::string_view rest = text.bytes(); !rest.empty();) {
    const std::string_view first = first_character(rest);
    rest.remove_prefix(first.size());
    const bool letter = first == "_" || has_only(first, "isalnum");
    words += letter && !inside;
    inside = letter;
  }
  return words;
}

template <int kSign>
bool order_test(Session&, const Value& value, const Arguments& arguments) {
  const Parameters in("a comparison", arguments, {"other"});
  const int order = compare(value, in.need(0));
  return kSign > 1 ? order >= 0 : kSign == 1 ? order > 0 : kSign == -1 ? order < 0 : order <= 0;
}

template <bool kWanted>
bool equal_test(Session&, const Value& value, const Arguments& arguments) {
  return equal(value, Parameters("a comparison", arguments, {"other"}).need(0)) == kWanted;
}

/// A test without arguments.
template <bool (*kHolds)(const Value&)>
bool plain_test(Session&, const Value& value, const Arguments& arguments) {
  const Parameters none("a test", arguments, {});
  return kHolds(value);
}
bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.as<bool>() != nullptr; }
bool is_true(const Value& value) { return is_boolean(value) && value.truth(); }
bool is_false(const Value& value) { return is_boolean(value) && !value.truth(); }
bool is_integer(const Value& value) { return value.is_integer() && !is_boolean(value); }
bool is_float(const Value& value) { return value.as<double>() != nullptr; }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_text(); }
bool is_mapping(const Value& value) { return value.dict() != nullptr; }
bool is_iterable(const Value& value) {
  return value.text() || value.list() || value.dict() || value.is_undefined();
}
bool is_sequence(const Value& value) { return is_iterable(value); }
bool is_callable(const Value& value) { return value.callable() != nullptr; }
bool is_upper(const Value& value) { return has_only(to_text(value).bytes(), "isupper"); }
bool is_lower(const Value& value) { return has_only(to_text(value).bytes(), "islower"); }
bool is_odd(const Value& value) { return need_integer(value, "odd") % 2 != 0; }
bool is_even(const Value& value) { return need_integer(value, "even") % 2 == 0; }

bool divisible_test(Session& session, const Value& value, const Arguments& arguments) {
  const Parameters in("divisibleby", arguments, {"num"});
  return !arithmetic(session, "%", value, in.need(0)).truth();
}

bool in_test(Session&, const Value& value, const Arguments& arguments) {
  return contains(Parameters("in", arguments, {"seq"}).need(0), value);
}

bool sameas_test(Session&, const Value& value, const Arguments& arguments) {
  const Parameters parameters("sameas", arguments, {"other"});
  const Value& other = parameters.need(0);
  return value.type_name() == other.type_name() && equal(value, other);
}

bool filter_test(Session&, const Value& value, const Arguments& arguments) {
  const Parameters none("filter", arguments, {});
  return find_filter(need_text(value, "filter").bytes()) != nullptr;
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  static const std::map<std::string_view, FilterFunction> filters{
      {"abs", abs_filter},
      {"attr", attr_filter},
      {"capitalize", by_method<kCapitalize>},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort_filter},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"first", end_filter<false>},
      {"float", float_filter},
      {"groupby", groupby_filter},
      {"indent", indent_filter},
      {"int", int_filter},
      {"items", items_filter},
      {"join", join_filter},
      {"last", end_filter<true>},
      {"length", length_filter},
      {"list", list_filter},
      {"lower", by_method<kLower>},
      {"map", map_filter},
      {"max", extreme_filter<true>},
      {"min", extreme_filter<false>},
      {"reject", select_filter<false, false>},
      {"rejectattr", select_filter<false, true>},
      {"replace", replace_filter},
      {"reverse", reverse_filter},
      {"round", round_filter},
      {"safe", safe_filter},
      {"select", select_filter<true, false>},
      {"selectattr", select_filter<true, true>},
      {"sort", sort_filter},
      {"string", string_filter},
      {"sum", sum_filter},
      {"title", title_filter},
      {"tojson", tojson_filter},
      {"trim", by_method<kStrip>},
      {"unique", unique_filter},
      {"upper", by_method<kUpper>},
      {"wordcount", wordcount_filter},
  };
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

TestFunction find_test(std::string_view name) {
  static const std::map<std::string_view, TestFunction> tests{
      {"!=", equal_test<false>},
      {"<", order_test<-1>},
      {"<=", order_test<0>},
      {"==", equal_test<true>},
      {">", order_test<1>},
      {">=", order_test<2>},
      {"boolean", plain_test<is_boolean>},
      {"callable", plain_test<is_callable>},
      {"defined", plain_test<is_defined>},
      {"divisibleby", divisible_test},
      {"eq", equal_test<true>},
      {"equalto", equal_test<true>},
      {"even", plain_test<is_even>},
      {"false", plain_test<is_false>},
      {"filter", filter_test},
      {"float", plain_test<is_float>},
      {"ge", order_test<2>},
      {"greaterthan", order_test<1>},
      {"gt", order_test<1>},
      {"in", in_test},
      {"integer", plain_test<is_integer>},
      {"iterable", plain_test<is_iterable>},
      {"le", order_test<0>},
      {"lessthan", order_test<-1>},
      {"lower", plain_test<is_lower>},
      {"lt", order_test<-1>},
      {"mapping", plain_test<is_mapping>},
      {"ne", equal_test<false>},
      {"none", plain_test<is_none>},
      {"number", plain_test<is_number>},
      {"odd", plain_test<is_odd>},
      {"sameas", sameas_test},
      {"sequence", plain_test<is_sequence>},
      {"string", plain_test<is_string>},
      {"true", plain_test<is_true>},
      {"undefined", plain_test<is_undefined>},
      {"upper", plain_test<is_upper>},
  };
  const auto found = tests.find(name);
  return found == tests.end() ? nullptr : found->second;
}

}  // namespace axonn::jinja
