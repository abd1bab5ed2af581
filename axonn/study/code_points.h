#pragma once

#include <string>
#include <string_view>

#include "axonn/base/utf8.h"

namespace axonn {

/// Approximate columns of a text on a terminal: East Asian characters and pictographs take two,
/// combining marks none.
int columns_of(std::u32string_view points);

/// Cuts a text that is wider than `columns`: keeps its front and appends `sign` (ASCII), or with
/// Keep::end keeps its end and prepends `sign`.
enum class Keep { front, end };
std::string shortened(std::string_view text, int columns, Keep keep = Keep::front,
                      std::string_view sign = "...");

}  // namespace axonn
