#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/cli/command.h"
#include "axonn/cli/flags.h"
#include "axonn/options/options_text.h"

namespace axonn {

namespace {

std::string overview(const OptionList& list) {
  std::string text =
      "axonn trains large language models on any grid of ranks.\n\n"
      "Usage: axonn COMMAND ...\n\nCommands:\n";
  for (const Command& command : commands())
    text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  text += "\nSections of a configuration (axonn help SECTION, axonn help KEY):\n";
  for (const auto& section : list.sections())
    text += fmt::format("  {:<22} {}\n", section.name, section.help);
  return text +
         "\nFirst steps:\n"
         "  axonn train configs/tiny.toml              train a small model, in seconds\n"
         "  axonn train configs/tiny.toml --parallelism.x 2\n"
         "                                             the same on two ranks\n"
         "  axonn train --help                         the arguments of train\n"
         "  axonn help training.micro_batch            the meaning of a key\n"
         "  axonn info                                 what this build and machine have\n";
}

}  // namespace

int run_help(const Arguments& arguments) {
  CLI::App app("Explains a command, a section or a key.", "axonn help");
  app.footer(
      "Examples:\n"
      "  axonn help train          the arguments of a command\n"
      "  axonn help optimizer      the keys of a section\n"
      "  axonn help lr             a key, in every section that has it\n"
      "  axonn help training.seed  a key");
  std::string word;
  bool markdown = false;
  app.add_option("WORD", word, "a command, a section or a key");
  app.add_flag("--markdown", markdown, "print the reference of all keys (docs/configuration.md)");
  if (!parse_flags(app, arguments)) return 0;

  Config config = LoadedConfig{}.config;
  OptionList list;
  list_options(config, list);
  if (markdown) {
    std::cout << config_reference(config);
    return 0;
  }
  if (word.empty()) {
    std::cout << overview(list);
    return 0;
  }
  const auto command = std::ranges::find(commands(), word, &Command::name);
  const bool is_command = command != commands().end();
  if (is_command) command->run({"--help"});
  // `data` is a command and a section.
  if (!is_command || list.find(word)) std::cout << help_for(list, word);
  return 0;
}

}  // namespace axonn
