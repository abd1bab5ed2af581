#pragma once

#include <string>

#include "axonn/data/text/jinja/jinja_value.h"

namespace axonn::jinja {

/// str(): a text as it is, None as "None", lists and dicts as Python shows them.
Text to_text(const Value& value);

/// repr(): a text in quotes, other values as to_text() has them.
Text value_repr(const Value& value);

/// The options of json.dumps().
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::string indent = {};  ///< of one level; if has_indent
  bool has_indent = false;
  std::string item_separator = ", ", key_separator = ": ";
};
Text to_json(const Value& value, const JsonStyle& style);

}  // namespace axonn::jinja
