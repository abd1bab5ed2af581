#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/foundation/base/check.h"

namespace axonn::jinja {

/// A location in a template, from 1 on; the column counts bytes.
struct Location {
  int line = 1, column = 1;
};

/// Throws UsageError that begins with "FILE:LINE:COLUMN: ".
template <typename... Parts>
[[noreturn]] void refuse_at(const std::string& file, Location at, const Parts&... parts) {
  refuse(file, ':', at.line, ':', at.column, ": ", parts...);
}

struct Token {
  enum class Kind {
    data,  ///< text between tags
    open_print,
    close_print,
    open_block,
    close_block,
    name,
    string,  ///< text is its value
    integer,
    real,
    sign,  ///< an operator or a bracket
    end,
  };
  Kind kind;
  Location at;
  std::string text;  ///< as written; of a string, its value
};

/// Cuts a template into tokens as Jinja does with trim_blocks and lstrip_blocks, which chat
/// templates are written for. Throws UsageError with the location if the text is not UTF-8, for a
/// tag or string that does not end, and for a character that belongs to no token.
std::vector<Token> tokenize(std::string_view source, const std::string& file);

}  // namespace axonn::jinja
