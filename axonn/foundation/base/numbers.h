#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace axonn {

/// Parse the whole text as a number. '_' is allowed between digits, as in TOML. Empty if the text
/// is not a number.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);

/// Parses a number of bytes: "1500", "64KiB", "1.5 GB". Units with an i are powers of 1024, units
/// without are powers of 1000.
std::optional<std::int64_t> parse_bytes(std::string_view text);

}  // namespace axonn
