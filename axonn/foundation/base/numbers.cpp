#include "axonn/foundation/base/numbers.h"

#include <charconv>
#include <cmath>
#include <string>

namespace axonn {

namespace {

/// Removes each '_' between two digits, and a leading '+'. Any other '_' stays, so parsing fails.
std::string without_separators(std::string_view text) {
  const auto digit = [&](std::size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '_' || i == 0 || !digit(i - 1) || !digit(i + 1)) plain += text[i];
  return plain.starts_with('+') && !plain.starts_with("+-") ? plain.substr(1) : plain;
}

template <typename Number>
std::optional<Number> parse_whole(std::string_view text) {
  const std::string plain = without_separators(text);
  Number value{};
  const char* end = plain.data() + plain.size();
  const auto [stop, error] = std::from_chars(plain.data(), end, value);
  if (plain.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_whole<std::int64_t>(text);
}

std::optional<double> parse_real(std::string_view text) { return parse_whole<double>(text); }

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  if (const auto plain = parse_integer(text)) return plain;
  constexpr std::string_view kPrefixes = "KMGT";
  const std::size_t unit = text.find_first_not_of("0123456789._");
  if (unit == std::string_view::npos) return std::nullopt;
  const auto count = parse_real(text.substr(0, unit));
  std::string_view name = text.substr(unit);
  while (name.starts_with(' ')) name.remove_prefix(1);
  if (!count || !name.ends_with('B')) return std::nullopt;
  name.remove_suffix(1);
  const bool binary = name.size() == 2 && name[1] == 'i';
  const std::size_t power = name.empty() ? 0 : kPrefixes.find(name[0] == 'k' ? 'K' : name[0]) + 1;
  if (name.size() > (binary ? 2u : 1u) || (!name.empty() && power == 0)) return std::nullopt;
  const double bytes = *count * std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power));
  if (bytes >= 0x1p63) return std::nullopt;
  return std::llround(bytes);
}

}  // namespace axonn
