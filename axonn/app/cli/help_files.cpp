#include "axonn/app/cli/help_files.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/info.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// What a command prints with these arguments.
std::string printed_by(const Command& command, const Arguments& arguments) {
  std::ostringstream text;
  std::streambuf* const before = std::cout.rdbuf(text.rdbuf());
  try {
    command.run(arguments);
  } catch (...) {
    std::cout.rdbuf(before);
    throw;
  }
  std::cout.rdbuf(before);
  return text.str();
}

/// A command with the words that may follow it.
struct CommandWords {
  std::string name, summary;
  std::vector<std::string> flags;
};

/// The flags with which lines of a help text begin, and the words that its commands have:
/// "  -h,--help  ..." has --help.
std::vector<std::string> flags_in(const std::string& help) {
  std::set<std::string> found;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == line.npos || begin > 6 || line[begin] != '-') continue;
    const std::size_t flag = line.find("--", begin),
                      end = std::min(line.find_first_of(" ,:=[", flag), line.size());
    if (flag < end && flag <= begin + 3) found.insert(line.substr(flag, end - flag));
  }
  return {found.begin(), found.end()};
}

/// `axonn data` and the like have commands of their own: the first words of lines, up to an empty
/// one.
std::vector<std::string> own_commands(const std::string& name, const std::string& help) {
  std::vector<std::string> found;
  if (!help.starts_with("axonn " + name + " COMMAND")) return found;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() && !found.empty()) break;  // examples follow
    if (line.size() > 2 && line.starts_with("  ") && line[2] != ' ')
      found.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return found;
}

std::vector<CommandWords> words_of_commands(const OptionList& list) {
  std::vector<std::string> keys;
  for (const OptionList::Section& section : list.sections())
    for (const Option& option : section.options) keys.push_back("--" + option.key());
  std::vector<CommandWords> all;
  for (const Command& command : commands()) {
    const std::string name(command.name), help = printed_by(command, {"--help"});
    CommandWords words{name, std::string(command.summary), flags_in(help)};
    for (const std::string& own : own_commands(name, help)) {
      const std::vector<std::string> further = flags_in(printed_by(command, {own, "--help"}));
      words.flags.insert(words.flags.end(), further.begin(), further.end());
      words.flags.push_back(own);
    }
    const bool tunes = name == "finetune" || name == "prefer" || name == "distill";
    if (tunes || help.find("--config FILE") != help.npos)
      words.flags.insert(words.flags.end(), keys.begin(), keys.end());
    if (name == "help") {
      for (const Command& other : commands()) words.flags.emplace_back(other.name);
      for (const OptionList::Section& section : list.sections())
        words.flags.push_back(section.name);
      for (const std::string& key : keys) words.flags.push_back(key.substr(2));
    }
    std::ranges::sort(words.flags);
    words.flags.erase(std::unique(words.flags.begin(), words.flags.end()), words.flags.end());
    all.push_back(std::move(words));
  }
  return all;
}

std::string bash_completion(const std::vector<CommandWords>& all) {
  std::string names, cases;
  for (const CommandWords& one : all) {
    names += one.name + ' ';
    cases += fmt::format("      {}) words='{}' ;;\n", one.name, join(one.flags, " "));
  }
  return fmt::format(R"(# Completions of axonn for bash, written by `axonn help --completion bash`.
_axonn() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words=
  if [[ $COMP_CWORD -eq 1 ]]; then
    words='{}--help --version'
  else
    case ${{COMP_WORDS[1]}} in
{}    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  # Nothing is typed, or no word fits: names of files, such as CONFIG.
  if [[ $COMP_CWORD -gt 1 && ${{COMP_WORDS[1]}} != help && $current != -* ]]; then
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _axonn axonn
)",
                     names, cases);
}

std::string zsh_completion(const std::vector<CommandWords>& all) {
  std::string names, cases;
  for (const CommandWords& one : all) {
    std::string summary = one.summary;
    std::erase_if(summary, [](char c) { return c == '\''; });
    std::ranges::replace(summary, ':', ',');
    names += fmt::format("    '{}:{}'\n", one.name, summary);
    cases += fmt::format("    {}) choices=({}) ;;\n", one.name, join(one.flags, " "));
  }
  return fmt::format(R"(#compdef axonn
# Completions of axonn for zsh, written by `axonn help --completion zsh`.
_axonn() {{
  local -a names choices
  names=(
{})
  if (( CURRENT == 2 )); then
    _describe command names
    return
  fi
  case $words[2] in
{}  esac
  if [[ $words[CURRENT] == -* || $words[2] == help ]]; then
    compadd -a choices
  else
    compadd -- ${{choices:#-*}}
    _files
  fi
}}
_axonn "$@"
)",
                     names, cases);
}

std::string fish_completion(const std::vector<CommandWords>& all) {
  std::string text =
      "# Completions of axonn for fish, written by `axonn help --completion fish`.\n";
  for (const CommandWords& one : all) {
    std::string summary = one.summary;
    std::erase_if(summary, [](char c) { return c == '\''; });
    text += fmt::format("complete -c axonn -f -n __fish_use_subcommand -a {} -d '{}'\n", one.name,
                        summary);
    text += fmt::format("complete -c axonn -n '__fish_seen_subcommand_from {}' -a '{}'\n", one.name,
                        join(one.flags, " "));
  }
  return text;
}

/// Text that roff shows as it is: no line begins a request, and no hyphen becomes a dash.
std::string roff(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('.') || line.starts_with('\'')) out += "\\&";
    for (const char c : line)
      out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
    out += '\n';
  }
  return out;
}

}  // namespace

std::string shell_completion(std::string_view shell, const OptionList& list) {
  const std::vector<CommandWords> all = words_of_commands(list);
  if (shell == "zsh") return zsh_completion(all);
  return shell == "fish" ? fish_completion(all) : bash_completion(all);
}

std::string man_page() {
  std::string text =
      fmt::format(".TH AXONN 1 \"\" \"axonn {}\"\n.SH NAME\n", build_info().version) +
      "axonn \\- trains large language models on any grid of ranks\n"
      ".SH SYNOPSIS\n.B axonn\nCOMMAND ...\n.SH COMMANDS\n";
  for (const Command& command : commands())
    text += fmt::format(".TP\n.B {}\n{}", command.name, roff(std::string(command.summary)));
  for (const Command& command : commands()) {
    if (command.name == "help") continue;  // which describes this page
    text += fmt::format(".SH axonn {}\n.nf\n", command.name) +
            roff(printed_by(command, {"--help"})) + ".fi\n";
  }
  return text +
         ".SH CONFIGURATION\n.B axonn help\nlists the sections of a configuration, and\n"
         ".B axonn help KEY\nexplains a key.\n";
}

}  // namespace axonn
