#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// The characters of a text; a byte that is not UTF-8 is U+FFFD.
std::u32string code_points(std::string_view text);

std::string to_utf8(std::u32string_view points);

/// Columns that a text takes on a terminal, about: East Asian characters and pictographs take two,
/// combining marks none.
int columns_of(std::u32string_view points);

/// The text if it fits into so many columns; else its front and `sign`, an ASCII text, or with
/// `end` the sign and its end.
enum class Keep { front, end };
std::string shortened(std::string_view text, int columns, Keep keep = Keep::front,
                      std::string_view sign = "...");

}  // namespace axonn
