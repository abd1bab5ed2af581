#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// A chat template that has a name of its own.
struct NamedTemplate {
  std::string_view name;
  std::string_view text;  ///< in Jinja
  std::vector<std::string> needed_tokens;
};

/// nullptr if there is none.
const NamedTemplate* find_named_template(std::string_view name);

}  // namespace axonn
