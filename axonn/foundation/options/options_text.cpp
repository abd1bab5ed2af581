#include "axonn/foundation/options/options_text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

namespace axonn {

namespace {

std::string location_of(const std::string& file, const toml::source_region& region) {
  return concat(file, ':', region.begin.line, ':', region.begin.column);
}

/// Converts an array of integers, of numbers or of strings. Refuses any other array.
Option::Value list_of(const Option& option, const toml::array& array, const std::string& location) {
  if (!array.empty() && array.is_homogeneous<std::int64_t>()) {
    std::vector<std::int64_t> numbers;
    for (const toml::node& item : array) numbers.push_back(item.as_integer()->get());
    return numbers;
  }
  if (!array.empty() && std::ranges::all_of(array, &toml::node::is_number)) {
    std::vector<double> numbers;
    for (const toml::node& item : array) numbers.push_back(*item.value<double>());
    return numbers;
  }
  std::vector<std::string> values;
  for (const toml::node& item : array) {
    const auto* text = item.as_string();
    if (!text) option.refuse_value("a list with an element that is not a string", location);
    values.push_back(text->get());
  }
  return values;
}

void set_from(const Option& option, const toml::node& node, const std::string& location) {
  if (const auto* text = node.as_string()) return option.set(text->get(), location);
  if (const auto* integer = node.as_integer()) return option.set(integer->get(), location);
  if (const auto* real = node.as_floating_point()) return option.set(real->get(), location);
  if (const auto* boolean = node.as_boolean()) return option.set(boolean->get(), location);
  if (const auto* array = node.as_array())
    return option.set(list_of(option, *array, location), location);
  option.refuse_value(node.is_table() ? "a table" : "a date or a time", location);
}

void read_entries(const OptionList::Section& section, const toml::node& node,
                  const std::string& file, UnknownSections unknown);

/// Sets options from the keys of a section, and adds entries of repeated sections inside it.
struct KeyReader {
  const OptionList& list;
  const std::string& file;
  Origins& origins;
  UnknownSections unknown = UnknownSections::refuse;

  /// Reads one table: the section's own (empty prefix), or a table inside it (prefix "name.").
  void read(const std::string& section, const toml::table& keys,
            const std::string& prefix = {}) const {
    for (const auto& [key, value] : keys) {
      const std::string at = location_of(file, key.source()),
                        name = prefix + std::string(key.str());
      const Option* option = list.find(section, name);
      const toml::table* table = value.as_table();
      const auto* inner = list.find(concat(section, '.', name));
      if (inner && inner->entries) {
        read_entries(*inner, value, file, unknown);
        continue;
      }
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

/// Adds an entry for each table [[section]]. The origins of their values are not recorded.
void read_entries(const OptionList::Section& section, const toml::node& node,
                  const std::string& file, UnknownSections unknown) {
  const toml::array* entries = node.as_array();
  if (!entries || !entries->is_homogeneous<toml::table>())
    refuse("[", section.name, "] is a repeated section (", location_of(file, node.source()),
           "); write each as [[", section.name, "]], with its keys below");
  for (const toml::node& keys : *entries)
    section.entries->add([&](const OptionList& list) {
      Origins unused;
      KeyReader{list, file, unused, unknown}.read(section.name, *keys.as_table());
    });
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
  std::string location;  ///< the flag as the user wrote it, without the value
  std::optional<std::string> value;
};

std::optional<Flag> as_flag(const std::string& argument) {
  if (!argument.starts_with("--")) return std::nullopt;
  const std::size_t equals = argument.find('=');
  std::string key = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos) return std::nullopt;
  Flag flag{.section = {}, .name = {}, .location = "--" + key, .value = {}};
  std::ranges::replace(key, '-', '_');
  flag.section = key.substr(0, dot);
  flag.name = key.substr(dot + 1);
  if (equals != std::string::npos) flag.value = argument.substr(equals + 1);
  return flag;
}

/// Comments are aligned in one column, except on lines longer than this.
constexpr std::size_t kWidestValue = 40;

std::string default_of(const Option& option) {
  return option.info().required ? "must be set" : option.default_text();
}

/// The help text, with the unit in brackets if there is one.
std::string meaning_of(const Option& option) {
  const OptionInfo& info = option.info();
  return info.unit.empty() ? std::string(info.help) : fmt::format("{} ({})", info.help, info.unit);
}

/// Meaning, accepted values, default, and how to write it.
std::string help_of(const Option& option) {
  std::string text = fmt::format(
      "[{}] {}\n  {}\n\n  takes      {}\n  default    {}\n  in a file  [{}]\n"
      "             {} = {}\n  as a flag  --{} VALUE\n",
      option.section(), option.name(), meaning_of(option), option.wants(), default_of(option),
      option.section(), option.name(), option.info().required ? "..." : option.text(),
      option.key());
  if (!option.info().also.empty()) text += fmt::format("  known as   {}\n", option.info().also);
  return text;
}

/// Two lines for each option.
std::string help_of(const OptionList::Section& section) {
  std::size_t width = 0;
  for (const Option& option : section.options) width = std::max(width, option.name().size());
  std::string text = fmt::format("[{}]  {}\n", section.name, section.help);
  for (const Option& option : section.options)
    text += fmt::format("  {:<{}}  {}\n  {:<{}}  {}; default {}\n", option.name(), width,
                        meaning_of(option), "", width, option.wants(), default_of(option));
  return text;
}

/// Help on a section, with [[name]] in place of [name] if it is repeated.
std::string help_of_any(const OptionList::Section& section) {
  std::string text;
  if (!section.entries) return help_of(section);
  section.entries->sample([&](const OptionList& list) {
    OptionList::Section entry = list.sections().front();
    entry.name = '[' + section.name + ']';
    entry.help = section.help;
    text = help_of(entry);
  });
  return text;
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
    refuse(location_of(name, error.source()), ": not valid TOML: ", error.description());
  }
  for (const auto& [section, node] : root) {
    const std::string location = location_of(name, section.source());
    const auto* known = list.find(section.str());
    if (known && known->entries) {
      read_entries(*known, node, name, unknown);
      continue;
    }
    const toml::table* keys = node.as_table();
    const bool is_section = keys || node.is_array_of_tables();
    if (!known && is_section && unknown != UnknownSections::refuse) continue;
    if (!known && is_section) refuse_section(list, section.str(), location);
    if (!keys) {
      if (known)
        refuse("[", section.str(), "] is a section (", location, "); write it as [", section.str(),
               "], with its keys below");
      if (!list.remedy_for(section.str()).empty()) refuse_key(list, "", section.str(), location);
      const auto guesses = guess_key(list, "", section.str());
      refuse(
          "'", section.str(), "' is outside any section (", location, ')',
          guesses.empty() ? "; put keys below a line such as [training]" : did_you_mean(guesses));
    }
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
    const auto* section = list.find(flag->section);
    if (section && section->entries)
      refuse(flag->location, ": [[", flag->section, "]] has no flags; write its entries in a file");
    if (!option) refuse_key(list, flag->section, flag->name, flag->location);
    const bool value_follows = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (!flag->value && value_follows) flag->value = arguments[++i];
    if (!flag->value && option->is_bool()) flag->value = "true";
    if (!flag->value) option->refuse_value("nothing", flag->location);
    if (option->is_list() && given.contains(option->key()))
      option->append_text(*flag->value, flag->location);
    else
      option->set_text(*flag->value, flag->location);
    given.insert(option->key());
    origins.set(option->key(), flag->location);
  }
  return others;
}

namespace {

/// The entries of a repeated section as TOML, without the keys that have their defaults.
std::string entries_to_toml(const OptionList::Section& section) {
  std::map<std::string, std::string> defaults;
  section.entries->sample([&](const OptionList& list) {
    for (const Option& option : list.sections().front().options)
      defaults.emplace(option.name(), option.text());
  });
  std::string text;
  section.entries->each([&](const OptionList& list) {
    text += fmt::format("{}[[{}]]\n", text.empty() ? "" : "\n", section.name);
    for (const Option& option : list.sections().front().options)
      if (option.text() != defaults.at(option.name()))
        text += fmt::format("{} = {}\n", option.name(), option.text());
  });
  return text;
}

}  // namespace

std::string to_toml(const OptionList& list, const std::function<TomlNote(const Option&)>& note) {
  std::string text;
  for (const auto& section : list.sections()) {
    if (section.entries) {
      const std::string entries = entries_to_toml(section);
      text += (text.empty() || entries.empty() ? "" : "\n") + entries;
      continue;
    }
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    std::vector<std::pair<std::string, TomlNote>> lines;
    std::size_t width = 0;
    for (const Option& option : section.options) {
      TomlNote said = note(option);
      lines.emplace_back(
          fmt::format("{}{} = {}", said.disabled ? "# " : "", option.name(), option.text()), said);
      width = std::max(width, std::min(lines.back().first.size(), kWidestValue));
    }
    for (const auto& [line, said] : lines)
      text += said.comment.empty() ? line + '\n'
                                   : fmt::format("{:<{}}  # {}\n", line, width, said.comment);
  }
  return text;
}

std::string to_toml(const OptionList& list, const Origins& origins) {
  return to_toml(list, [&](const Option& option) {
    return TomlNote{.comment = origins.of(option.key()), .disabled = false};
  });
}

namespace {

std::string to_json(const std::vector<Option>& options) {
  std::string text = "{";
  for (const Option& option : options)
    text += fmt::format("{}\"{}\": {}", text.size() > 1 ? ", " : "", option.name(), option.text());
  return text + '}';
}

std::string table_of(const std::vector<Option>& options) {
  const auto cell = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
      text.insert(at, 1, '\\');
    return text;
  };
  std::string text = "| key | takes | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const Option& option : options)
    text +=
        fmt::format("| `{}` | {} | {} | {} |\n", option.name(), cell(option.wants()),
                    option.info().required ? default_of(option) : '`' + default_of(option) + '`',
                    cell(meaning_of(option)));
  return text;
}

}  // namespace

std::string to_json(const OptionList& list) {
  std::string text = "{";
  for (const auto& section : list.sections()) {
    std::string values;
    if (section.entries)
      section.entries->each([&](const OptionList& entry) {
        values += (values.empty() ? "" : ", ") + to_json(entry.sections().front().options);
      });
    text += fmt::format("{}\"{}\": {}", text.size() > 1 ? ", " : "", section.name,
                        section.entries ? '[' + values + ']' : to_json(section.options));
  }
  return text + '}';
}

std::string to_markdown(const OptionList& list) {
  std::string text;
  for (const auto& section : list.sections()) {
    std::string table;
    if (section.entries)
      section.entries->sample(
          [&](const OptionList& entry) { table = table_of(entry.sections().front().options); });
    else
      table = table_of(section.options);
    const std::string header = '[' + section.name + ']';
    text += fmt::format("{}## {}\n\n{}.\n\n{}", text.empty() ? "" : "\n",
                        section.entries ? '[' + header + ']' : header, section.help, table);
  }
  return text;
}

/// "see also: training.micro_batch, training.global_batch": the keys whose names have the word
/// among others, in a line; "" if there are none.
std::string keys_with_word(const OptionList& list, const std::string& word) {
  std::string keys;
  for (const auto& section : list.sections())
    for (const Option& option : section.options)
      if (option.name() != word &&
          concat('_', option.name(), '_').find(concat('_', word, '_')) != std::string::npos)
        keys += (keys.empty() ? "see also: " : ", ") + option.key();
  return keys.empty() ? "" : keys + '\n';
}

std::string help_for(const OptionList& list, std::string_view word) {
  while (word.starts_with('-')) word.remove_prefix(1);
  std::string name(word);
  std::ranges::replace(name, '-', '_');
  if (const auto* section = list.find(name)) return help_of_any(*section);
  const std::size_t dot = name.find('.');
  if (dot != std::string::npos) {
    const std::string in = name.substr(0, dot), key = name.substr(dot + 1);
    const Option* option = list.find(in, key);
    if (!option) refuse_key(list, in, key, concat("help ", word));
    return help_of(*option);
  }
  std::string text;
  const auto add_help = [&](const auto& is_meant) {
    for (const auto& section : list.sections())
      for (const Option& option : section.options)
        if (is_meant(option)) text += (text.empty() ? "" : "\n") + help_of(option);
  };
  add_help([&](const Option& option) { return option.name() == name; });
  if (text.empty()) add_help([&](const Option& option) { return option.also_called(name); });
  const std::string others = keys_with_word(list, name);
  if (!text.empty()) return text + (others.empty() ? "" : "\n" + others);
  if (const std::string_view remedy = list.remedy_for(name); !remedy.empty())
    return concat(name, ": ", remedy, '\n');
  if (!others.empty()) return others;
  std::vector<std::string> guesses = guess_key(list, "", name), sections;
  for (const auto& section : list.sections()) sections.push_back(section.name);
  for (std::string& guess : nearest(name, sections)) guesses.push_back(std::move(guess));
  refuse("no key or section is called '", word, "'",
         guesses.empty() ? "; the sections are " + join(sections) : did_you_mean(guesses));
}

}  // namespace axonn
