#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/text/jinja/jinja_value.h"

namespace axonn {

/// Reads the members of a JSON object by name and remembers which names were asked for, so that a
/// reader can tell what it leaves out. A member that is null counts as absent. Holds a reference to
/// the object.
class Members {
 public:
  explicit Members(const jinja::Dict& object) : object_(object) {}

  /// The member; null if there is none. The name counts as read.
  const jinja::Value* find(std::string_view name) {
    read_.emplace_back(name);
    return peek(name);
  }
  /// The same; the name does not count as read.
  const jinja::Value* peek(std::string_view name) const {
    const jinja::Value* found = object_.find(name);
    return found && !found->is_none() ? found : nullptr;
  }

  /// The names of the members that are not null and were never asked for, in their order.
  std::vector<std::string> unread() const {
    std::vector<std::string> names;
    for (const auto& [key, value] : object_.items()) {
      const std::string& name = key.text()->bytes();
      if (!value.is_none() && std::ranges::find(read_, name) == read_.end()) names.push_back(name);
    }
    return names;
  }

  const jinja::Dict& object() const { return object_; }

 private:
  const jinja::Dict& object_;
  std::vector<std::string> read_;
};

}  // namespace axonn
