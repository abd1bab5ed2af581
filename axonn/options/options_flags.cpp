#include <algorithm>
#include <set>

#include "axonn/options/options.h"

namespace axonn {

namespace {

/// A flag --section.key, with its value if one follows a '='.
struct Flag {
  std::string section, name;
  std::string place;  ///< the flag as the user wrote it, without the value
  std::optional<std::string> value;
};

std::optional<Flag> as_flag(const std::string& argument) {
  if (!argument.starts_with("--")) return std::nullopt;
  const std::size_t equals = argument.find('=');
  std::string key = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos) return std::nullopt;
  Flag flag{.section = {}, .name = {}, .place = "--" + key, .value = {}};
  std::ranges::replace(key, '-', '_');
  flag.section = key.substr(0, dot);
  flag.name = key.substr(dot + 1);
  if (equals != std::string::npos) flag.value = argument.substr(equals + 1);
  return flag;
}

}  // namespace

std::vector<std::string> read_flags(const OptionList& list, std::span<const std::string> arguments,
                                    Origins& origins) {
  std::vector<std::string> others;
  std::set<std::string> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::optional<Flag> flag = as_flag(arguments[i]);
    if (!flag) {
      others.push_back(arguments[i]);
      continue;
    }
    const Option* option = list.find(flag->section, flag->name);
    if (!option) refuse_key(list, flag->section, flag->name, flag->place);
    const bool value_follows = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (!flag->value && value_follows) flag->value = arguments[++i];
    if (!flag->value && option->is_bool()) flag->value = "true";
    if (!flag->value) option->refuse_value("nothing", flag->place);
    if (option->is_list() && given.contains(option->key()))
      option->append_text(*flag->value, flag->place);
    else
      option->set_text(*flag->value, flag->place);
    given.insert(option->key());
    origins.set(option->key(), flag->place);
  }
  return others;
}

}  // namespace axonn
