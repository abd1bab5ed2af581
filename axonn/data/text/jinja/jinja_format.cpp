#include "axonn/data/text/jinja/jinja_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

namespace {

constexpr int kMostWidth = 10'000;

/// How one value is written.
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool prefixed = false, grouped = false;
  int width = 0, precision = -1;
  char type = 0;
};

bool is_one_of(char c, std::string_view characters) {
  return characters.find(c) != std::string_view::npos;
}

/// Takes a number from the front; -1 if there is none.
int take_number(std::string_view& rest) {
  int number = -1;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
    number = std::max(number, 0) * 10 + (rest[0] - '0');
    rest.remove_prefix(1);
    if (number > kMostWidth) refuse("a width of more than ", kMostWidth, " in a format");
  }
  return number;
}

std::string digits_of(std::uint64_t number, unsigned base) {
  std::string digits;
  do {
    digits += "0123456789abcdef"[number % base];
    number /= base;
  } while (number != 0);
  std::ranges::reverse(digits);
  return digits;
}

std::string with_commas(std::string digits) {
  for (std::size_t at = std::min(digits.find_first_of(".e"), digits.size()); at > 3; at -= 3)
    digits.insert(at - 3, ",");
  return digits;
}

/// A number without its sign; `negative` is set.
std::string written_number(const Value& value, const Spec& spec, bool& negative) {
  const bool real = value.as<double>() || is_one_of(spec.type, "eEfFgG%");
  if (!real) {
    const std::int64_t number = need_integer(value, "format()");
    negative = number < 0;
    const auto size =
        negative ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
    const unsigned base = is_one_of(spec.type, "xX") ? 16
                          : spec.type == 'o'         ? 8
                          : spec.type == 'b'         ? 2
                                                     : 10;
    std::string digits = digits_of(size, base);
    if (spec.prefixed && base != 10)
      digits = std::string("0") + (base == 16 ? 'x' : spec.type) + digits;
    if (spec.type == 'X')
      std::ranges::transform(digits, digits.begin(), [](char c) {
        return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
      });
    return digits;
  }
  double number = value.as<double>() ? *value.as<double>()
                                     : static_cast<double>(need_integer(value, "format()"));
  negative = std::signbit(number);
  number = std::abs(number);
  if (spec.type == 0 && spec.precision < 0) return to_text(number).bytes();
  if (spec.type == '%') number *= 100;
  const char type = spec.type == '%' ? 'f' : spec.type == 0 ? 'g' : spec.type;
  const std::array<char, 6> form{'%', '.', '*', type, 0};
  std::array<char, 512> out{};
  const int precision = std::min(spec.precision < 0 ? 6 : spec.precision, 100);
  std::snprintf(out.data(), out.size(), form.data(), precision, number);
  std::string digits = out.data();
  if (spec.type == 0 && digits.find_first_of(".en") == digits.npos) digits += ".0";
  return spec.type == '%' ? digits + '%' : digits;
}

Text padded(const Text& text, const Spec& spec, char align) {
  const std::int64_t missing = spec.width - code_points(text.bytes());
  if (missing <= 0) return text;
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  Text out;
  for (std::int64_t i = 0; i < left; ++i) out.append(spec.fill, {});
  out.append(text);
  for (std::int64_t i = left; i < missing; ++i) out.append(spec.fill, {});
  return out;
}

Text formatted(const Value& value, const Spec& spec) {
  const bool number = value.is_number() && spec.type != 's' && !(value.as<bool>() && !spec.type);
  if (!number) {
    if (spec.type != 0 && spec.type != 's')
      refuse("the format '", std::string(1, spec.type), "' needs a number, not a ",
             value.type_name());
    Text text = to_text(value);
    if (spec.precision >= 0) text = text.slice(0, byte_of_character(text.bytes(), spec.precision));
    return padded(text, spec, spec.align ? spec.align : '<');
  }
  bool negative = false;
  std::string digits = written_number(value, spec, negative);
  if (spec.grouped) digits = with_commas(digits);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.align == '=')
    while (std::ssize(sign) + std::ssize(digits) < spec.width) digits.insert(0, spec.fill);
  return padded(Text(sign + digits), spec, spec.align ? spec.align : '>');
}

/// Reads what stands behind the ':' of a replacement field.
Spec read_spec(std::string_view rest) {
  Spec spec;
  const std::string_view first = rest.empty() ? rest : first_character(rest);
  if (first.size() < rest.size() && is_one_of(rest[first.size()], "<>^=")) {
    spec.fill = first;
    spec.align = rest[first.size()];
    rest.remove_prefix(first.size() + 1);
  } else if (!rest.empty() && is_one_of(rest[0], "<>^=")) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  const auto take = [&](std::string_view characters) {
    if (rest.empty() || !is_one_of(rest[0], characters)) return '\0';
    const char c = rest[0];
    rest.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.prefixed = take("#") != 0;
  if (take("0") && !spec.align) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = std::max(take_number(rest), 0);
  spec.grouped = take(",") != 0;
  if (take(".")) spec.precision = std::max(take_number(rest), 0);
  spec.type = take("sdxXobeEfFgG%");
  if (!rest.empty()) refuse("the format '", printable(rest.substr(0, 40)), "' is not supported");
  return spec;
}

/// Takes the flags, width and precision behind a '%'.
Spec take_percent_spec(std::string_view& rest) {
  Spec spec;
  for (; !rest.empty() && is_one_of(rest[0], "-+ 0#"); rest.remove_prefix(1)) {
    if (rest[0] == '-') spec.align = '<';
    if (rest[0] == '0' && !spec.align) spec.align = '=';
    if (rest[0] == '+' || (rest[0] == ' ' && spec.sign != '+')) spec.sign = rest[0];
    spec.prefixed = spec.prefixed || rest[0] == '#';
  }
  if (spec.align == '=') spec.fill = "0";
  spec.width = std::max(take_number(rest), 0);
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    spec.precision = std::max(take_number(rest), 0);
  }
  if (rest.empty() || !is_one_of(rest[0], "%srdiuxXoeEfFgG"))
    refuse("the format '%", printable(rest.substr(0, 10)), "' is not supported");
  spec.type = rest[0] == 'i' || rest[0] == 'u' ? 'd' : rest[0];
  rest.remove_prefix(1);
  return spec;
}

Text percent_formatted(Value value, Spec spec) {
  if (spec.type == 'r') value = value_repr(value);
  if (spec.type == 'r' || spec.type == 's') {
    value = to_text(value);
    spec.type = 's';
    if (spec.align != '<') spec.align = '>';
    spec.fill = " ";
  } else if (value.as<double>() && is_one_of(spec.type, "dxXo")) {
    value = static_cast<std::int64_t>(*value.as<double>());
  }
  return formatted(value, spec);
}

/// The argument that a replacement field names, or the next one.
const Value& argument_of(std::string_view name, const Arguments& arguments, std::size_t& used) {
  std::string_view rest = name;
  const int index = name.empty() ? static_cast<int>(used++) : take_number(rest);
  if (rest.empty() && index >= 0 && index < std::ssize(arguments.positional))
    return arguments.positional[static_cast<std::size_t>(index)];
  const auto found = std::ranges::find(
      arguments.named, name, [](const auto& named) { return std::string_view(named.first); });
  if (found == arguments.named.end())
    refuse("format(): no argument '", printable(name.substr(0, 40)), "'");
  return found->second;
}

/// A field without its brackets.
Text filled_field(std::string_view field, const Arguments& arguments, std::size_t& used) {
  if (field.find('{') != field.npos) refuse("format(): fields within fields are not supported");
  const std::size_t name_end = std::min(field.find_first_of("!:"), field.size());
  Value value = argument_of(field.substr(0, name_end), arguments, used);
  field.remove_prefix(name_end);
  if (field.starts_with('!')) {
    const char kind = field.size() > 1 ? field[1] : ' ';
    if (kind != 'r' && kind != 's') refuse("format(): the conversion is not supported");
    value = kind == 'r' ? value_repr(value) : to_text(value);
    field.remove_prefix(2);
  }
  return formatted(value, read_spec(field.substr(std::min<std::size_t>(1, field.size()))));
}

}  // namespace

Text percent_format(const Text& format, const Value& values) {
  const List* tuple = values.list() && values.list()->is_tuple ? values.list() : nullptr;
  std::size_t used = 0;
  const auto next = [&]() -> Value {
    if (!tuple && used++ == 0) return values;
    if (!tuple || used >= tuple->items.size()) refuse("not enough arguments for format string");
    return tuple->items[used++];
  };
  Text out;
  for (std::string_view rest = format.bytes(); !rest.empty();) {
    const std::size_t plain = std::min(rest.find('%'), rest.size());
    out.append(format.slice(rest.substr(0, plain)));
    rest.remove_prefix(plain);
    if (rest.empty()) break;
    rest.remove_prefix(1);
    Value named;
    if (rest.starts_with('(')) {
      const std::size_t end = rest.find(')');
      const Value* found = end == rest.npos || !values.dict()
                               ? nullptr
                               : values.dict()->find(rest.substr(1, end - 1));
      if (!found) refuse("the format has no value for '", printable(rest.substr(0, 40)), "'");
      named = *found;
      used = 1;
      rest.remove_prefix(end + 1);
    }
    const Spec spec = take_percent_spec(rest);
    if (spec.type == '%')
      out.append("%", {});
    else
      out.append(percent_formatted(named.is_undefined() ? next() : named, spec));
  }
  if (tuple ? used < tuple->items.size() : (used == 0 && !values.dict()))
    refuse("not all arguments converted during string formatting");
  return out;
}

Text brace_format(const Text& format, const Arguments& arguments) {
  Text out;
  std::size_t used = 0;
  for (std::string_view rest = format.bytes(); !rest.empty();) {
    const std::size_t plain = std::min(rest.find_first_of("{}"), rest.size());
    out.append(format.slice(rest.substr(0, plain)));
    rest.remove_prefix(plain);
    if (rest.empty()) break;
    if (rest.size() > 1 && rest[0] == rest[1]) {
      out.append(format.slice(rest.substr(0, 1)));
      rest.remove_prefix(2);
      continue;
    }
    const std::size_t end = rest.find('}');
    if (rest[0] == '}' || end == rest.npos) refuse("format(): a single '", rest[0], "'");
    out.append(filled_field(rest.substr(1, end - 1), arguments, used));
    rest.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace axonn::jinja
