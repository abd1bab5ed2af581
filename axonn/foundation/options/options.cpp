#include "axonn/foundation/options/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/numbers.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

template <typename... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overload(Fs...) -> Overload<Fs...>;  // needed: clang 14 does not deduce the arguments

/// The range in words: " of at least 1", " above 0 and below 1". Integers have no decimal point.
std::string range_text(const OptionInfo& info) {
  const auto number = [](double value) {
    return value == std::floor(value) && std::abs(value) < 1e15
               ? std::to_string(static_cast<std::int64_t>(value))
               : toml_number(value);
  };
  if (std::isfinite(info.min) && std::isfinite(info.max))
    return " from " + number(info.min) + " to " + number(info.max) +
           (info.infinity ? ", or inf" : "");
  std::vector<std::string> parts;
  if (std::isfinite(info.min)) parts.push_back("of at least " + number(info.min));
  if (std::isfinite(info.above)) parts.push_back("above " + number(info.above));
  if (std::isfinite(info.max)) parts.push_back("of at most " + number(info.max));
  if (std::isfinite(info.below)) parts.push_back("below " + number(info.below));
  return parts.empty() ? "" : ' ' + join(parts, " and ");
}

/// A value as TOML.
template <typename T>
std::string toml_text(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return toml_number(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return toml_string(value);
  } else {
    std::vector<std::string> parts;
    for (const auto& item : value) parts.push_back(toml_text(item));
    return '[' + join(parts) + ']';
  }
}

/// A value as messages show it.
std::string got_text(const Option::Value& value) {
  return std::visit(Overload{[](const std::string& s) { return "the string " + toml_string(s); },
                             [](const std::vector<std::string>&) { return std::string("a list"); },
                             [](const auto& other) { return toml_text(other); }},
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

/// The same as numbers.
std::optional<std::vector<double>> numbers_in(const Option::Value& value) {
  if (const auto* one = std::get_if<double>(&value)) return std::vector{*one};
  if (const auto* many = std::get_if<std::vector<double>>(&value)) return *many;
  const auto whole = integers_in(value);
  if (!whole) return std::nullopt;
  return std::vector<double>(whole->begin(), whole->end());
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

/// Parses true, false, on, off, yes, no, 1 or 0.
std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true" || text == "on" || text == "yes" || text == "1") return true;
  if (text == "false" || text == "off" || text == "no" || text == "0") return false;
  return std::nullopt;
}

}  // namespace

Option::Option(std::string_view section, std::string_view name, Target target, OptionInfo info,
               UnusedReason unused)
    : section_(section),
      name_(name),
      target_(std::move(target)),
      info_(info),
      unused_(std::move(unused)),
      default_(text()) {}

std::vector<std::string> Option::strings() const {
  if (const auto* text = std::get_if<std::string*>(&target_)) return {**text};
  if (const auto* list = std::get_if<std::vector<std::string>*>(&target_)) return **list;
  return {};
}

std::string Option::text() const {
  return std::visit(Overload{[](const Choice& choice) {
                               const auto i = static_cast<std::size_t>(choice.get());
                               return i < choice.names.size() ? toml_string(choice.names[i])
                                                              : concat("value ", i);
                             },
                             [](const auto* value) { return toml_text(*value); }},
                    target_);
}

std::string Option::wants() const {
  const std::string range = range_text(info_);
  return std::visit(
      Overload{[&](const double*) { return "a number" + range; },
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
               [&](const std::vector<double>*) {
                 return "a list of numbers" + (range.empty() ? "" : ", each" + range);
               },
               [](const Choice& choice) { return "one of " + join(choice.names); },
               [&](const auto*) {
                 return (info_.unit == "bytes" ? "a size in bytes" : "an integer") + range;
               }},
      target_);
}

void Option::refuse_value(const std::string& got, const std::string& location) const {
  refuse('[', section_, "] ", name_, " wants ", wants(), ", got ", got, " (", location, ')');
}

bool Option::in_range(double value) const {
  if (info_.infinity && value == OptionInfo::kNone) return true;
  return std::isfinite(value) && value >= info_.min && value <= info_.max && value > info_.above &&
         value < info_.below;
}

void Option::check() const {
  const bool fits = std::visit(
      Overload{[&](const Choice& choice) {
                 return static_cast<std::size_t>(choice.get()) < choice.names.size();
               },
               [&](const std::vector<std::int64_t>* values) {
                 return std::ranges::all_of(*values, [&](std::int64_t value) {
                   return in_range(static_cast<double>(value));
                 });
               },
               [&](const std::vector<double>* values) {
                 return std::ranges::all_of(*values, [&](double value) { return in_range(value); });
               },
               [&](const auto* value) {
                 using T = std::remove_cvref_t<decltype(*value)>;
                 if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
                   return in_range(static_cast<double>(*value)) || (info_.required && *value == 0);
                 else
                   return true;
               }},
      target_);
  if (!fits) refuse('[', section_, "] ", name_, " wants ", wants(), ", got ", text());
}

const Spelling* Option::spelling(std::string_view other) const {
  const auto found = std::ranges::find(info_.spellings, other, &Spelling::other);
  return found == info_.spellings.end() ? nullptr : &*found;
}

void Option::set_choice(const Choice& choice, std::string name, const std::string& location) const {
  if (const Spelling* as = spelling(name)) name = as->name;
  const auto found = std::ranges::find(choice.names, name);
  if (found != choice.names.end())
    return choice.set(static_cast<int>(found - choice.names.begin()));
  const std::vector<std::string> names(choice.names.begin(), choice.names.end()),
      guesses = nearest(name, names);
  constexpr std::size_t kReadable = 12;  // behind a longer list the guess would be overlooked
  const bool many = names.size() > kReadable && !guesses.empty();
  refuse('[', section_, "] ", name_, many ? " has no choice '" : " wants " + wants() + "; got '",
         name, "' (", location, ')', did_you_mean(guesses));
}

void Option::set(const Value& value, const std::string& location) const {
  const auto* whole = std::get_if<std::int64_t>(&value);
  const auto* real = std::get_if<double>(&value);
  const auto* text = std::get_if<std::string>(&value);
  const auto need = [&](bool fits) {
    if (!fits) refuse_value(got_text(value), location);
  };
  std::visit(
      Overload{
          [&](double* to) {
            need((whole || real) && in_range(whole ? static_cast<double>(*whole) : *real));
            *to = whole ? static_cast<double>(*whole) : *real;
          },
          [&](bool* to) {
            need(std::holds_alternative<bool>(value));
            *to = std::get<bool>(value);
          },
          [&](std::string* to) {
            need(text || (info_.or_number && (whole || real)));
            *to = text ? *text : got_text(value);
          },
          [&](std::vector<std::string>* to) {
            const auto* many = std::get_if<std::vector<std::string>>(&value);
            need(text || many);
            *to = text ? std::vector{*text} : *many;
          },
          [&](std::vector<std::int64_t>* to) {
            const auto all = integers_in(value);
            need(all && std::ranges::all_of(*all, [&](std::int64_t number) {
                   return in_range(static_cast<double>(number));
                 }));
            *to = *all;
          },
          [&](std::vector<double>* to) {
            const auto all = numbers_in(value);
            need(all && std::ranges::all_of(*all, [&](double each) { return in_range(each); }));
            *to = *all;
          },
          [&](const Choice& to) {
            const auto* flag = std::get_if<bool>(&value);
            const std::string name = text ? *text : flag && *flag ? "true" : "false";
            need(text || (flag && spelling(name)));
            set_choice(to, name, location);
          },
          [&]<typename Integer>(Integer* to) {
            const auto bytes = text && info_.unit == "bytes" ? parse_bytes(*text) : std::nullopt;
            const std::int64_t number = whole ? *whole : bytes.value_or(0);
            need((whole || bytes) && in_range(static_cast<double>(number)) &&
                 std::in_range<Integer>(number));
            *to = static_cast<Integer>(number);
          }},
      target_);
}

void Option::set_text(const std::string& text, const std::string& location) const {
  if (valid_utf8_prefix(text) < text.size())
    refuse('[', section_, "] ", name_, " = ", printable(text),
           " is not UTF-8, but configs and checkpoints can hold no other names (", location,
           "); rename the file or folder, or give a path that does not name it");
  const auto parsed = [&](const auto& value) -> Value {
    if (!value) refuse_value('\'' + text + '\'', location);
    return *value;
  };
  const Value value = std::visit(
      Overload{[&](const double*) { return parsed(parse_real(text)); },
               [&](const bool*) { return parsed(parse_bool(text)); },
               [&](const std::string*) { return Value(text); },
               [&](const std::vector<std::string>*) { return Value(split(text)); },
               [&](const std::vector<std::int64_t>*) {
                 std::vector<std::int64_t> numbers;
                 for (const std::string& part : split(text))
                   numbers.push_back(std::get<std::int64_t>(parsed(parse_integer(part))));
                 return Value(std::move(numbers));
               },
               [&](const std::vector<double>*) {
                 std::vector<double> numbers;
                 for (const std::string& part : split(text))
                   numbers.push_back(std::get<double>(parsed(parse_real(part))));
                 return Value(std::move(numbers));
               },
               [&](const Choice&) { return Value(text); },
               [&](const auto*) {
                 return parsed(info_.unit == "bytes" ? parse_bytes(text) : parse_integer(text));
               }},
      target_);
  set(value, location);
}

void Option::append_text(const std::string& text, const std::string& location) const {
  const auto append = [&](auto* list) {
    auto before = std::move(*list);
    set_text(text, location);
    list->insert(list->begin(), before.begin(), before.end());
  };
  std::visit(Overload{[&](std::vector<std::string>* list) { append(list); },
                      [&](std::vector<std::int64_t>* list) { append(list); },
                      [&](std::vector<double>* list) { append(list); },
                      [&](const auto&) {
                        fail(Where::here(), "append_text: option ", key(), " is not a list");
                      }},
             target_);
}

void OptionList::section(std::string_view name, std::string_view help) {
  AXONN_CHECK(!find(name), "the section [", name, "] is listed twice");
  sections_.push_back({std::string(name), std::string(help), {}, {}});
  unused_ = {};
}

void OptionList::add(std::string_view name, Option::Target target, OptionInfo info) {
  AXONN_CHECK(!sections_.empty(), "the option '", name, "' is listed before any section");
  Section& last = sections_.back();
  AXONN_CHECK(!find(last.name, name), "the option ", last.name, '.', name, " is listed twice");
  last.options.emplace_back(last.name, name, std::move(target), info, unused_);
}

const OptionList::Section* OptionList::find(std::string_view section) const {
  const auto found = std::ranges::find(sections_, section, &Section::name);
  return found == sections_.end() ? nullptr : &*found;
}

const Option* OptionList::find(std::string_view section, std::string_view name) const {
  const Section* in = find(section);
  if (!in) return nullptr;
  const auto found = std::ranges::find(in->options, name, &Option::name);
  return found == in->options.end() ? nullptr : &*found;
}

std::string toml_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  std::string text(digits.data(), error == std::errc() ? end : digits.data());
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string toml_string(std::string_view text) {
  if (valid_utf8_prefix(text) < text.size())
    refuse(printable(text),
           " is not UTF-8, but a TOML file can hold no other text; rename the "
           "file or folder, or give a path that does not name it");
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') quoted += '\\';
    if (code < 0x20 || code == 0x7f)
      quoted += fmt::format("\\u{:04X}", code);
    else
      quoted += c;
  }
  return quoted + '"';
}

namespace {

char folded(char c) { return c == '-' ? '_' : lower_ascii(c); }

using Names = std::vector<std::string>;

/// A longer list of guesses would not help the user.
constexpr std::size_t kMostGuesses = 4;

bool is_word_of(std::string_view word, std::string_view words) {
  return !word.empty() && concat(' ', words, ' ').find(concat(' ', word, ' ')) != std::string::npos;
}

Names names_of(const OptionList::Section& section) {
  Names names;
  for (const Option& option : section.options) names.push_back(option.name());
  return names;
}

/// All options for which `matches` is true. Those of this section come first, without the section's
/// name.
template <typename Matches>
Names matching(const OptionList& list, std::string_view section, Matches matches) {
  Names here, elsewhere;
  for (const auto& in : list.sections())
    for (const Option& option : in.options)
      if (matches(option)) {
        if (in.name == section)
          here.push_back(option.name());
        else
          elsewhere.push_back('[' + in.name + "] " + option.name());
      }
  here.insert(here.end(), elsewhere.begin(), elsewhere.end());
  return here;
}

/// The largest edit distance of a guess for `word`.
int guess_limit(std::string_view word) { return std::max(1, static_cast<int>(word.size()) / 3); }

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before, above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = folded(a[i - 1]) == folded(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
          folded(a[i - 2]) == folded(b[j - 1]))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  std::vector<std::string> best;
  int least = guess_limit(word);
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    if (distance > least) continue;
    if (distance < least) best.clear();
    least = distance;
    best.push_back(candidate);
  }
  return best;
}

std::string did_you_mean(std::span<const std::string> guesses) {
  std::string text;
  for (std::size_t i = 0; i < guesses.size(); ++i) {
    text += i == 0 ? "; did you mean " : i + 1 == guesses.size() ? " or " : ", ";
    text += guesses[i].starts_with('[') ? guesses[i] : '\'' + guesses[i] + '\'';
  }
  return text.empty() ? text : text + '?';
}

std::vector<std::string> guess_key(const OptionList& list, std::string_view section,
                                   std::string_view name) {
  const auto* own = list.find(section);
  Names guesses = own ? nearest(name, names_of(*own)) : Names{};
  const bool close = !guesses.empty() && edit_distance(name, guesses.front()) <= 1;
  if (!close) guesses.clear();
  // A key of another section, or another project's name for a key, is as likely as a typo.
  for (std::string& other : matching(list, section, [&](const Option& option) {
         const bool same =
             name.size() == option.name().size() && edit_distance(name, option.name()) == 0;
         return same || option.also_called(name);
       }))
    if (std::ranges::find(guesses, other) == guesses.end()) guesses.push_back(std::move(other));
  if (guesses.empty() && own) guesses = nearest(name, names_of(*own));
  // A short word is close to too many keys. If the section is unknown, shorter words are tried too,
  // because there is no other hint.
  if (guesses.empty() && name.size() > (own ? 3 : 1))
    guesses = matching(list, section, [&](const Option& option) {
      return edit_distance(name, option.name()) <= std::max(1, guess_limit(name) / 2);
    });
  if (guesses.empty() && name.size() > 3)
    guesses = matching(list, section, [&](const Option& option) {
      return option.name().find(name) != std::string::npos;
    });
  if (guesses.size() > kMostGuesses) guesses.resize(kMostGuesses);
  return guesses;
}

void refuse_section(const OptionList& list, std::string_view section, const std::string& location) {
  Names names;
  for (const auto& known : list.sections()) names.push_back(known.name);
  Names guesses = nearest(section, names);
  for (Names* bare : {&names, &guesses})
    for (std::string& name : *bare) name = '[' + name + ']';
  refuse("there is no section [", section, "] (", location, ')',
         guesses.empty() ? "; the sections are " + join(names) : did_you_mean(guesses));
}

bool Option::also_called(std::string_view name) const { return is_word_of(name, info_.also); }

std::string_view OptionList::remedy_for(std::string_view name) const {
  const auto found = std::ranges::find_if(
      other_names_, [&](const OtherNames& other) { return is_word_of(name, other.names); });
  return found == other_names_.end() ? "" : found->remedy;
}

void refuse_key(const OptionList& list, std::string_view section, std::string_view name,
                const std::string& location) {
  if (const std::string_view remedy = list.remedy_for(name); !remedy.empty())
    refuse("there is no key '", name, "' (", location, "); ", remedy);
  const auto* own = list.find(section);
  if (!own) refuse_section(list, section, location);
  const Names guesses = guess_key(list, section, name);
  refuse('[', section, "] has no key '", name, "' (", location, ')',
         guesses.empty() ? "; its keys are " + join(names_of(*own)) : did_you_mean(guesses));
}

}  // namespace axonn
