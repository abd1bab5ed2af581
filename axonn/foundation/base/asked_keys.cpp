#include "axonn/foundation/base/asked_keys.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"

namespace axonn {

bool says_nothing(const nlohmann::json& value) {
  return value == false || value == "" || (value.is_structured() && value.empty());
}

namespace {

bool has_structures(const nlohmann::json& value) {
  return value.is_array() &&
         std::ranges::any_of(value, [](const auto& element) { return element.is_structured(); });
}

}  // namespace

std::vector<AskedKeys::Unread> AskedKeys::unread(const nlohmann::json& file) const {
  std::vector<Unread> found;
  add_unread(file, "", found);
  return found;
}

void AskedKeys::add_unread(const nlohmann::json& value, const std::string& path,
                           std::vector<Unread>& found) const {
  if (value.is_array()) {
    std::size_t index = 0;
    for (const nlohmann::json& element : value) {
      if (element.is_object() || has_structures(element))  // not for each of many pairs of texts
        add_unread(element, concat(path, '[', index, ']'), found);
      ++index;
    }
  }
  if (!opened_.contains(&value)) return;
  for (const auto& [key, member] : value.items()) {
    const std::string name = path.empty() ? key : concat(path, '.', key);
    if (member.is_null()) continue;
    if (asked_.contains(&member))
      add_unread(member, name, found);
    else
      found.push_back({name, &member});
  }
}

}  // namespace axonn
