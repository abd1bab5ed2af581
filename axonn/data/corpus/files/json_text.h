#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// Appends text in UTF-8 as a JSON string. Bytes that are not UTF-8 stay as they are.
void append_json_text(std::string_view text, std::string& to);

}  // namespace axonn
