#include "axonn/options/options_read.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <toml++/toml.h>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/options/options.h"

namespace axonn {

namespace {

std::string place_of(const std::string& file, const toml::source_region& region) {
  return concat(file, ':', region.begin.line, ':', region.begin.column);
}

/// Converts an array of integers or of strings. Refuses any other array.
Option::Value list_of(const Option& option, const toml::array& array, const std::string& place) {
  if (!array.empty() && array.is_homogeneous<std::int64_t>()) {
    std::vector<std::int64_t> numbers;
    for (const toml::node& item : array) numbers.push_back(item.as_integer()->get());
    return numbers;
  }
  std::vector<std::string> values;
  for (const toml::node& item : array) {
    const auto* text = item.as_string();
    if (!text) option.refuse_value("a list with an element that is not a string", place);
    values.push_back(text->get());
  }
  return values;
}

void set_from(const Option& option, const toml::node& node, const std::string& place) {
  if (const auto* text = node.as_string()) return option.set(text->get(), place);
  if (const auto* integer = node.as_integer()) return option.set(integer->get(), place);
  if (const auto* real = node.as_floating_point()) return option.set(real->get(), place);
  if (const auto* boolean = node.as_boolean()) return option.set(boolean->get(), place);
  if (const auto* array = node.as_array()) return option.set(list_of(option, *array, place), place);
  option.refuse_value(node.is_table() ? "a table" : "a date or a time", place);
}

/// Sets options from the keys of a section.
struct KeyReader {
  const OptionList& list;
  const std::string& file;
  Origins& origins;
  UnknownSections unknown = UnknownSections::refuse;

  /// Reads one table: the section's own (empty prefix), or a table inside it (prefix "name.").
  void read(const std::string& section, const toml::table& keys,
            const std::string& prefix = {}) const {
    for (const auto& [key, value] : keys) {
      const std::string at = place_of(file, key.source()), name = prefix + std::string(key.str());
      const Option* option = list.find(section, name);
      const toml::table* table = value.as_table();
      if (!option && table && !table->empty()) {
        read(section, *table, name + '.');
        continue;
      }
      if (!option && unknown == UnknownSections::skip_keys) continue;
      if (!option) refuse_key(list, section, name, at);
      set_from(*option, value, at);
      origins.set(option->key(), at);
    }
  }
};

/// Reads all tables [[section]]. The origins of their values are not recorded.
void read_entries(const OptionList::Section& section, const toml::node& node,
                  const std::string& file) {
  const toml::array* entries = node.as_array();
  if (!entries || !entries->is_homogeneous<toml::table>())
    refuse("[", section.name, "] is a repeated section (", place_of(file, node.source()),
           "); write each as [[", section.name, "]], with its keys below");
  for (const toml::node& keys : *entries) {
    OptionList list;
    section.entry(list);
    Origins unused;
    KeyReader{list, file, unused}.read(section.name, *keys.as_table());
  }
}

/// The TOML files in the folder of `path`, with the same folder prefix as `path`.
std::vector<std::string> neighbours(const std::filesystem::path& path) {
  std::vector<std::string> files;
  std::error_code none;  // ignored: an unreadable folder gives no guesses
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (entry.path().extension() == ".toml")
      files.push_back(std::filesystem::path(path).replace_filename(entry.path().filename()));
  return files;
}

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

void read_toml(const OptionList& list, const std::string& path, Origins& origins) {
  if (is_folder(path)) refuse("cannot read '", path, "': it is a folder, not a TOML file");
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const std::string reason = std::strerror(errno);
    refuse("cannot read '", path, "': ", reason, did_you_mean(nearest(path, neighbours(path))));
  }
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) refuse("cannot read '", path, "': ", std::strerror(errno));
  read_toml_text(list, text, path, origins);
}

void read_toml_text(const OptionList& list, std::string_view text, const std::string& name,
                    Origins& origins, UnknownSections unknown) {
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    refuse(place_of(name, error.source()), ": not valid TOML: ", error.description());
  }
  for (const auto& [section, node] : root) {
    const std::string place = place_of(name, section.source());
    const auto* known = list.find(section.str());
    if (known && known->entry) {
      read_entries(*known, node, name);
      continue;
    }
    const toml::table* keys = node.as_table();
    if (!known && keys && unknown != UnknownSections::refuse) continue;
    if (!keys) {
      if (known)
        refuse("[", section.str(), "] is a section (", place, "); write it as [", section.str(),
               "], with its keys below");
      const auto guesses = guess_key(list, "", section.str());
      refuse(
          "'", section.str(), "' is outside any section (", place, ')',
          guesses.empty() ? "; put keys below a line such as [training]" : did_you_mean(guesses));
    }
    if (!known) refuse_section(list, section.str(), place);
    KeyReader{list, name, origins, unknown}.read(std::string(section.str()), *keys);
  }
}

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
