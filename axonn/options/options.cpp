#include "axonn/options/options.h"

#include <algorithm>
#include <cmath>

#include "axonn/base/check.h"
#include "axonn/options/options_suggest.h"
#include "axonn/options/options_text.h"

namespace axonn {

namespace {

template <typename... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overload(Fs...) -> Overload<Fs...>;  // needed: clang 14 does not deduce the arguments

template <typename Number>
constexpr bool is_integer = std::is_same_v<Number, int> || std::is_same_v<Number, std::int64_t>;

/// The range in words: " of at least 1", " above 0 and below 1". Integers have no decimal point.
std::string range_text(const OptionInfo& info) {
  const auto number = [](double value) {
    return value == std::floor(value) && std::abs(value) < 1e15
               ? std::to_string(static_cast<std::int64_t>(value))
               : toml_number(value);
  };
  if (std::isfinite(info.min) && std::isfinite(info.max))
    return " from " + number(info.min) + " to " + number(info.max);
  std::vector<std::string> parts;
  if (std::isfinite(info.min)) parts.push_back("of at least " + number(info.min));
  if (std::isfinite(info.above)) parts.push_back("above " + number(info.above));
  if (std::isfinite(info.max)) parts.push_back("of at most " + number(info.max));
  if (std::isfinite(info.below)) parts.push_back("below " + number(info.below));
  return parts.empty() ? "" : ' ' + join(parts, " and ");
}

/// "[4, 16, 64]".
std::string integers_text(const std::vector<std::int64_t>& list) {
  std::vector<std::string> parts;
  for (const std::int64_t number : list) parts.push_back(std::to_string(number));
  return '[' + join(parts) + ']';
}

std::string got_text(const Option::Value& value) {
  return std::visit(
      Overload{[](bool b) { return std::string(b ? "true" : "false"); },
               [](std::int64_t i) { return std::to_string(i); },
               [](double d) { return toml_number(d); },
               [](const std::string& s) { return "the string " + toml_string(s); },
               [](const std::vector<std::string>&) { return std::string("a list"); },
               [](const std::vector<std::int64_t>& list) { return integers_text(list); }},
      value);
}

/// The value as a list of integers: a list, a single integer, or an empty list of unknown type.
/// Empty for any other value.
std::optional<std::vector<std::int64_t>> integers_in(const Option::Value& value) {
  if (const auto* one = std::get_if<std::int64_t>(&value)) return std::vector{*one};
  if (const auto* many = std::get_if<std::vector<std::int64_t>>(&value)) return *many;
  const auto* words = std::get_if<std::vector<std::string>>(&value);
  if (words && words->empty()) return std::vector<std::int64_t>();
  return std::nullopt;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

Option::Option(std::string_view section, std::string_view name, Target target, OptionInfo info)
    : section_(section), name_(name), target_(std::move(target)), info_(info), default_(text()) {}

std::string Option::text() const {
  const auto list_text = [](const std::vector<std::string>& list) {
    std::vector<std::string> quoted;
    for (const std::string& item : list) quoted.push_back(toml_string(item));
    return '[' + join(quoted) + ']';
  };
  return std::visit(
      Overload{[](const int* i) { return std::to_string(*i); },
               [](const std::int64_t* i) { return std::to_string(*i); },
               [](const double* d) { return toml_number(*d); },
               [](const bool* b) { return std::string(*b ? "true" : "false"); },
               [](const std::string* s) { return toml_string(*s); },
               [&](const std::vector<std::string>* list) { return list_text(*list); },
               [](const std::vector<std::int64_t>* list) { return integers_text(*list); },
               [](const Choice& choice) { return toml_string(choice.names[choice.get()]); }},
      target_);
}

std::string Option::wants() const {
  const std::string range = range_text(info_),
                    integer = info_.unit == "bytes" ? "a size in bytes" : "an integer";
  return std::visit(
      Overload{[&](const int*) { return integer + range; },
               [&](const std::int64_t*) { return integer + range; },
               [&](const double*) { return "a number" + range; },
               [](const bool*) { return std::string("true or false"); },
               [&](const std::string*) {
                 return std::string(info_.or_number ? "a number or a string" : "a string");
               },
               [](const std::vector<std::string>*) {
                 return std::string("a string or a list of strings");
               },
               [&](const std::vector<std::int64_t>*) {
                 return "a list of integers" + (range.empty() ? "" : ", each" + range);
               },
               [](const Choice& choice) {
                 return "one of " +
                        join(std::vector<std::string>(choice.names.begin(), choice.names.end()));
               }},
      target_);
}

void Option::refuse_value(const std::string& got, const std::string& place) const {
  refuse('[', section_, "] ", name_, " wants ", wants(), ", got ", got, " (", place, ')');
}

bool Option::in_range(double value) const {
  return std::isfinite(value) && value >= info_.min && value <= info_.max && value > info_.above &&
         value < info_.below;
}

void Option::set_choice(const Choice& choice, const std::string& name,
                        const std::string& place) const {
  const auto found = std::ranges::find(choice.names, name);
  if (found != choice.names.end())
    return choice.set(static_cast<int>(found - choice.names.begin()));
  const std::vector<std::string> names(choice.names.begin(), choice.names.end()),
      guesses = nearest(name, names);
  constexpr std::size_t kReadable = 12;  // behind a longer list the guess would be overlooked
  if (names.size() > kReadable && !guesses.empty())
    refuse('[', section_, "] ", name_, " has no choice '", name, "' (", place, ')',
           did_you_mean(guesses));
  refuse('[', section_, "] ", name_, " wants ", wants(), "; got '", name, "' (", place, ')',
         did_you_mean(guesses));
}

void Option::set(const Value& value, const std::string& place) const {
  const auto integer = [&](auto* to) {
    const auto* given = std::get_if<std::int64_t>(&value);
    const auto* size = std::get_if<std::string>(&value);
    const auto bytes = size && info_.unit == "bytes" ? parse_bytes(*size) : std::nullopt;
    const std::int64_t number = given ? *given : bytes.value_or(0);
    if ((!given && !bytes) || !in_range(static_cast<double>(number)) ||
        !std::in_range<std::remove_pointer_t<decltype(to)>>(number))
      refuse_value(got_text(value), place);
    *to = static_cast<std::remove_pointer_t<decltype(to)>>(number);
  };
  const auto real = [&](double* to) {
    const auto* whole = std::get_if<std::int64_t>(&value);
    const auto* given = std::get_if<double>(&value);
    if ((!whole && !given) || !in_range(whole ? static_cast<double>(*whole) : *given))
      refuse_value(got_text(value), place);
    *to = whole ? static_cast<double>(*whole) : *given;
  };
  const auto list = [&](std::vector<std::string>* to) {
    if (const auto* one = std::get_if<std::string>(&value))
      *to = {*one};
    else if (const auto* many = std::get_if<std::vector<std::string>>(&value))
      *to = *many;
    else
      refuse_value(got_text(value), place);
  };
  const auto integers = [&](std::vector<std::int64_t>* to) {
    const auto all = integers_in(value);
    const auto fits = [&](std::int64_t number) { return in_range(static_cast<double>(number)); };
    if (!all || !std::ranges::all_of(*all, fits)) refuse_value(got_text(value), place);
    *to = *all;
  };
  const auto text = [&](std::string* to) {
    const bool number =
        std::holds_alternative<std::int64_t>(value) || std::holds_alternative<double>(value);
    if (const auto* given = std::get_if<std::string>(&value))
      *to = *given;
    else if (info_.or_number && number)
      *to = got_text(value);
    else
      refuse_value(got_text(value), place);
  };
  const auto same_type = [&](auto* to) {
    const auto* given = std::get_if<std::remove_pointer_t<decltype(to)>>(&value);
    if (!given) refuse_value(got_text(value), place);
    *to = *given;
  };
  const auto choice = [&](const Choice& to) {
    const auto* name = std::get_if<std::string>(&value);
    if (!name) refuse_value(got_text(value), place);
    set_choice(to, *name, place);
  };
  std::visit(
      Overload{[&](int* to) { integer(to); }, [&](std::int64_t* to) { integer(to); },
               [&](double* to) { real(to); }, [&](bool* to) { same_type(to); },
               [&](std::string* to) { text(to); }, [&](std::vector<std::string>* to) { list(to); },
               [&](std::vector<std::int64_t>* to) { integers(to); }, choice},
      target_);
}

void Option::set_text(const std::string& text, const std::string& place) const {
  const auto parsed = [&](const auto& value) -> Value {
    if (!value) refuse_value('\'' + text + '\'', place);
    return *value;
  };
  const auto integer = [&] {
    return parsed(info_.unit == "bytes" ? parse_bytes(text) : parse_integer(text));
  };
  const Value value = std::visit(
      Overload{[&](const int*) { return integer(); },
               [&](const std::int64_t*) { return integer(); },
               [&](const double*) { return parsed(parse_real(text)); },
               [&](const bool*) { return parsed(parse_bool(text)); },
               [&](const std::string*) { return Value(text); },
               [&](const std::vector<std::string>*) { return Value(split(text)); },
               [&](const std::vector<std::int64_t>*) {
                 std::vector<std::int64_t> numbers;
                 for (const std::string& part : split(text))
                   numbers.push_back(std::get<std::int64_t>(parsed(parse_integer(part))));
                 return Value(std::move(numbers));
               },
               [&](const Choice&) { return Value(text); }},
      target_);
  set(value, place);
}

void Option::append_text(const std::string& text, const std::string& place) const {
  const auto append = [&](auto* list) {
    auto before = std::move(*list);
    set_text(text, place);
    list->insert(list->begin(), before.begin(), before.end());
  };
  std::visit(Overload{[&](std::vector<std::string>* list) { append(list); },
                      [&](std::vector<std::int64_t>* list) { append(list); },
                      [&](const auto&) {
                        fail(Where::here(), "append_text: option ", key(), " is not a list");
                      }},
             target_);
}

void OptionList::section(std::string_view name, std::string_view help) {
  AXONN_CHECK(!find(name), "the section [", name, "] is listed twice");
  sections_.push_back({std::string(name), std::string(help), {}, {}});
}

void OptionList::add(std::string_view name, Option::Target target, OptionInfo info) {
  AXONN_CHECK(!sections_.empty(), "the option '", name, "' is listed before any section");
  Section& last = sections_.back();
  AXONN_CHECK(!find(last.name, name), "the option ", last.name, '.', name, " is listed twice");
  last.options.emplace_back(last.name, name, std::move(target), info);
}

void OptionList::repeated(std::string_view name, std::string_view help, ListEntry entry) {
  section(name, help);
  sections_.back().entry = std::move(entry);
}

const OptionList::Section* OptionList::find(std::string_view section) const {
  const auto found = std::ranges::find(sections_, section, &Section::name);
  return found == sections_.end() ? nullptr : &*found;
}

const Option* OptionList::find(std::string_view section, std::string_view name) const {
  const Section* in = find(section);
  if (!in) return nullptr;
  const auto found =
      std::ranges::find_if(in->options, [&](const Option& o) { return o.name() == name; });
  return found == in->options.end() ? nullptr : &*found;
}

}  // namespace axonn
