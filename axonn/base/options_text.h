#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace axonn {

/// A number as TOML writes it: the fewest digits that are read back to the same bits; a real
/// always has a point or an exponent.
std::string toml_number(double value);

/// A string as TOML writes it, quoted, with what must be escaped escaped.
std::string toml_string(std::string_view text);

/// The whole text as a number, with '_' allowed between digits as in TOML; nothing if it is none.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);

/// true, false, on, off, yes, no, 1, 0.
std::optional<bool> parse_bool(std::string_view text);

/// "1500", "64KiB", "1.5 GB": a number of bytes, in powers of 1024 with an i and of 1000 without.
std::optional<std::int64_t> parse_bytes(std::string_view text);

}  // namespace axonn
