#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace axonn {

/// Writes a real number as TOML: with the fewest digits that read back to the same bits, and always
/// with a decimal point or an exponent.
std::string toml_number(double value);

/// Writes a string as TOML: quoted, with special characters escaped.
std::string toml_string(std::string_view text);

/// Parse the whole text as a number. '_' is allowed between digits, as in TOML. Empty if the text
/// is not a number.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);

/// Parses true, false, on, off, yes, no, 1 or 0.
std::optional<bool> parse_bool(std::string_view text);

/// Parses a number of bytes: "1500", "64KiB", "1.5 GB". Units with an i are powers of 1024, units
/// without are powers of 1000.
std::optional<std::int64_t> parse_bytes(std::string_view text);

}  // namespace axonn
