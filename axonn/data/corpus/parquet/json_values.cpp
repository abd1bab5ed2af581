#include "axonn/data/corpus/parquet/json_values.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "axonn/data/corpus/files/json_text.h"
#include "axonn/data/corpus/parquet/bytes.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::parquet {

namespace {

constexpr std::int64_t kSecondsADay = 86'400;

template <typename T>
T number_in(std::string_view value) {
  T number{};
  if (value.size() < sizeof number) throw Damage{"a value of another width than its type"};
  std::memcpy(&number, value.data(), sizeof number);
  return number;
}

template <typename... Args>
void print(std::string& to, fmt::format_string<Args...> form, Args&&... args) {
  fmt::format_to(std::back_inserter(to), form, std::forward<Args>(args)...);
}

template <typename T>
void append_real(T number, std::string& to) {
  if (std::isfinite(number))
    print(to, "{}", number);
  else
    to += "null";
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

void append_date(std::int64_t days, std::string& to) {
  const std::int64_t most = 365 * 30'000;
  if (days < -most || days > most) throw Damage{"a date beyond 30,000 years"};
  const std::chrono::year_month_day date{
      std::chrono::sys_days{std::chrono::days{static_cast<int>(days)}}};
  print(to, "{:04}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
        static_cast<unsigned>(date.day()));
}

/// A time of day, in units of which a second has so many; a fraction has the digits that it needs.
void append_time(std::int64_t units, std::int64_t per_second, std::string& to) {
  const std::int64_t seconds = units / per_second;
  print(to, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
  std::int64_t fraction = units % per_second;
  if (fraction == 0) return;
  std::string digits = fmt::format("{}", per_second + fraction).substr(1);
  digits.erase(digits.find_last_not_of('0') + 1);
  print(to, ".{}", digits);
}

void append_timestamp(std::int64_t units, std::int64_t per_second, std::string& to) {
  const std::int64_t a_day = kSecondsADay * per_second, days = floor_divide(units, a_day);
  append_date(days, to);
  to += 'T';
  append_time(units - days * a_day, per_second, to);
}

/// The old form of timestamps: nanoseconds of the day, then the day by the Julian calendar.
void append_i96(std::string_view value, std::string& to) {
  constexpr std::int64_t kDaysTo1970 = 2'440'588;
  append_date(number_in<std::uint32_t>(value.substr(8)) - kDaysTo1970, to);
  to += 'T';
  append_time(number_in<std::int64_t>(value), 1'000'000'000, to);
}

/// Digits of a whole number in big-endian two's complement.
std::string digits_of(std::string_view bytes) {
  std::string number(bytes);
  const bool negative = !number.empty() && (number[0] & 0x80);
  if (negative) {
    bool carry = true;
    for (auto byte = number.rbegin(); byte != number.rend(); ++byte) {
      *byte = static_cast<char>(~*byte + (carry ? 1 : 0));
      carry = carry && *byte == 0;
    }
  }
  std::string digits;  // the last one first
  while (std::ranges::any_of(number, [](char byte) { return byte != 0; })) {
    int rest = 0;
    for (char& byte : number) {
      const int part = rest * 256 + static_cast<unsigned char>(byte);
      byte = static_cast<char>(part / 10);
      rest = part % 10;
    }
    digits += static_cast<char>('0' + rest);
  }
  if (digits.empty()) digits = "0";
  if (negative) digits += '-';
  std::ranges::reverse(digits);
  return digits;
}

void append_decimal(const Node& column, std::string_view value, std::string& to) {
  constexpr std::size_t kMostBytes = 64;
  if (value.size() > kMostBytes || column.scale < 0 || column.scale > 200)
    throw Damage{"an impossible decimal"};
  std::string digits =
      column.type == Physical::i32   ? fmt::format("{}", number_in<std::int32_t>(value))
      : column.type == Physical::i64 ? fmt::format("{}", number_in<std::int64_t>(value))
                                     : digits_of(value);
  const bool negative = digits[0] == '-';
  if (negative) digits.erase(0, 1);
  const auto scale = static_cast<std::size_t>(column.scale);
  if (digits.size() <= scale) digits.insert(0, scale + 1 - digits.size(), '0');
  if (scale > 0) digits.insert(digits.size() - scale, 1, '.');
  to += (negative ? "-" : "") + digits;
}

void append_f16(std::string_view value, std::string& to) {
  const auto bits = number_in<std::uint16_t>(value);
  const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  const double magnitude = exponent == 0x1f ? std::numeric_limits<double>::infinity()
                           : exponent == 0  ? std::ldexp(fraction, -24)
                                            : std::ldexp(fraction + 1024, exponent - 25);
  append_real(bits & 0x8000 ? -magnitude : magnitude, to);
}

void append_uuid(std::string_view value, std::string& to) {
  to += '"';
  for (std::size_t i = 0; i < value.size(); ++i)
    print(to, "{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
          static_cast<unsigned char>(value[i]));
  to += '"';
}

void append_bytes(std::string_view value, std::string& to) {
  if (valid_utf8_prefix(value) == value.size())
    append_json_text(value, to);
  else
    print(to, "{{\"bytes\": {}}}", value.size());
}

std::int64_t integer_in(const Node& column, std::string_view value) {
  return column.type == Physical::i32 ? number_in<std::int32_t>(value)
                                      : number_in<std::int64_t>(value);
}

/// Dates and times.
void append_moment(const Node& column, std::string_view value, std::string& to) {
  const std::int64_t number = integer_in(column, value);
  to += '"';
  if (column.meaning == Meaning::date)
    append_date(number, to);
  else if (column.meaning == Meaning::time)
    append_time(std::max<std::int64_t>(number, 0), column.per_second, to);
  else
    append_timestamp(number, column.per_second, to);
  to += '"';
}

bool is_integer(const Node& column) {
  return column.type == Physical::i32 || column.type == Physical::i64;
}

void append_plain(const Node& column, std::string_view value, std::string& to) {
  switch (column.type) {
    case Physical::boolean:
      to += value[0] ? "true" : "false";
      return;
    case Physical::i32:
      print(to, "{}", number_in<std::int32_t>(value));
      return;
    case Physical::i64:
      print(to, "{}", number_in<std::int64_t>(value));
      return;
    case Physical::f32:
      append_real(number_in<float>(value), to);
      return;
    case Physical::f64:
      append_real(number_in<double>(value), to);
      return;
    case Physical::bytes:
    case Physical::fixed:
      append_bytes(value, to);
      return;
    case Physical::i96:
      to += '"';
      append_i96(value, to);
      to += '"';
      return;
  }
}

}  // namespace

void append_json_value(const Node& column, std::string_view value, std::string& to) {
  const bool bytes = column.type == Physical::bytes || column.type == Physical::fixed;
  switch (column.meaning) {
    case Meaning::text:
      if (bytes) return append_json_text(value, to);
      break;
    case Meaning::decimal:
      return append_decimal(column, value, to);
    case Meaning::date:
      if (is_integer(column)) return append_moment(column, value, to);
      break;
    case Meaning::time:
    case Meaning::timestamp:
      if (is_integer(column) && column.per_second > 0) return append_moment(column, value, to);
      break;
    case Meaning::unsigned_integer:
      if (column.type == Physical::i32) return print(to, "{}", number_in<std::uint32_t>(value));
      if (column.type == Physical::i64) return print(to, "{}", number_in<std::uint64_t>(value));
      break;
    case Meaning::uuid:
      if (bytes && value.size() == 16) return append_uuid(value, to);
      break;
    case Meaning::f16:
      return append_f16(value, to);
    default:
      break;
  }
  append_plain(column, value, to);
}

}  // namespace axonn::parquet
