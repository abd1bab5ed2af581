#include "axonn/options/options_print.h"

#include <algorithm>

#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/options/options.h"

namespace axonn {

namespace {

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

}  // namespace

std::string to_toml(const OptionList& list, const std::function<TomlNote(const Option&)>& note) {
  std::string text;
  for (const auto& section : list.sections()) {
    if (section.entry) continue;
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

std::string to_json(const OptionList& list) {
  std::string text = "{";
  for (const auto& section : list.sections()) {
    if (section.entry) continue;
    text += fmt::format("{}\"{}\": {{", text.size() > 1 ? ", " : "", section.name);
    for (const Option& option : section.options)
      text +=
          fmt::format("{}\"{}\": {}", text.back() == '{' ? "" : ", ", option.name(), option.text());
    text += '}';
  }
  return text + '}';
}

std::string to_markdown(const OptionList& list) {
  const auto cell = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
      text.insert(at, 1, '\\');
    return text;
  };
  std::string text;
  for (const auto& section : list.sections()) {
    if (section.entry) continue;
    text += fmt::format(
        "{}## [{}]\n\n{}.\n\n| key | takes | default | meaning |\n"
        "| --- | --- | --- | --- |\n",
        text.empty() ? "" : "\n", section.name, section.help);
    for (const Option& option : section.options)
      text +=
          fmt::format("| `{}` | {} | {} | {} |\n", option.name(), cell(option.wants()),
                      option.info().required ? default_of(option) : '`' + default_of(option) + '`',
                      cell(meaning_of(option)));
  }
  return text;
}

std::string help_for(const OptionList& list, std::string_view word) {
  while (word.starts_with('-')) word.remove_prefix(1);
  std::string name(word);
  std::ranges::replace(name, '-', '_');
  if (const auto* section = list.find(name)) return help_of(*section);
  const std::size_t dot = name.find('.');
  if (dot != std::string::npos) {
    const std::string in = name.substr(0, dot), key = name.substr(dot + 1);
    const Option* option = list.find(in, key);
    if (!option) refuse_key(list, in, key, concat("help ", word));
    return help_of(*option);
  }
  std::string text;
  for (const auto& section : list.sections())
    if (const Option* option = list.find(section.name, name))
      text += (text.empty() ? "" : "\n") + help_of(*option);
  if (!text.empty()) return text;
  std::vector<std::string> guesses = guess_key(list, "", name), sections;
  for (const auto& section : list.sections()) sections.push_back(section.name);
  for (std::string& guess : nearest(name, sections)) guesses.push_back(std::move(guess));
  refuse("no key or section is called '", word, "'",
         guesses.empty() ? "; the sections are " + join(sections) : did_you_mean(guesses));
}

}  // namespace axonn
