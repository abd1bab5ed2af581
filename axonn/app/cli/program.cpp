#include "axonn/app/cli/program.h"

#include <algorithm>
#include <array>
#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/config_flags.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/help_files.h"
#include "axonn/app/cli/info.h"
#include "axonn/app/cli/standard_output.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/options/options.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/run/load/launch.h"

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

std::span<const Command> commands() {
  static constexpr std::array kCommands = {
      Command{"train", "trains a model, on one rank or on a grid of ranks", run_train},
      Command{"finetune", "fine-tunes a model on a file of conversations or text", run_finetune},
      Command{"prefer", "trains a model on pairs of answers, of which one was preferred",
              run_prefer},
      Command{"reinforce", "trains a model on its own answers, which have rewards", run_reinforce},
      Command{"distill", "trains a model to have the distributions of a teacher", run_distill},
      Command{"board", "shows runs on a web page while they train", run_board},
      Command{"forget", "makes a run forget documents, to the bit", run_forget},
      Command{"hash", "prints hashes of a checkpoint's weights and optimizer, or compares two",
              run_hash},
      Command{"replay", "repeats a training step whose loss was NaN or infinite", run_replay},
      Command{"supervise", "starts a job again after each failure, without the nodes at fault",
              run_supervise},
      Command{"check", "runs the same training on several grids and compares the results",
              run_check},
      Command{"bench", "times training steps: tokens/s, flops, exposed communication, memory",
              run_bench},
      Command{"plan", "predicts the fastest grids on a machine, their speed and memory", run_plan},
      Command{"probe", "measures this machine and writes a machine file for plan", run_probe},
      Command{"tune", "times the ways to compute a step's matrix products and keeps the fastest",
              run_tune},
      Command{"generate", "generates text with a model", run_generate},
      Command{"serve", "answers requests for completions and chats over HTTP", run_serve},
      Command{"eval", "evaluates a model: loss and perplexity on a text, or multiple choice",
              run_eval},
      Command{"memorize", "studies what models memorize, or audits one model", run_memorize},
      Command{"convert",
              "converts checkpoints and Hugging Face folders, also to GGUF; merges adapters",
              run_convert},
      Command{"data", "makes token files and shows their contents", run_data},
      Command{"export", "writes the series of runs as CSV or for TensorBoard", run_export},
      Command{"worker", "answers calls of the Python package on standard input", run_worker},
      Command{"info", "shows what this build and this machine have, or how a run stands", run_info},
      Command{"help", "explains a command, a section or a key", run_help},
  };
  return kCommands;
}

int run_help(const Arguments& arguments) {
  CLI::App app("Explains a command, a section or a key.", "axonn help");
  app.footer(
      "Examples:\n"
      "  axonn help train          the arguments of a command\n"
      "  axonn help optimizer      the keys of a section\n"
      "  axonn help lr             a key, in every section that has it\n"
      "  axonn help training.seed  a key");
  std::string word;
  bool markdown = false, man = false;
  std::string shell;
  app.add_option("WORD", word, "a command, a section or a key");
  app.add_flag("--markdown", markdown, "print the reference of all keys (docs/configuration.md)");
  app.add_flag("--man", man, "print the man page, axonn.1");
  app.add_option("--completion", shell, "print the completions of a shell")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  if (!parse_flags(app, arguments)) return 0;

  Config config = LoadedConfig{}.config;
  OptionList list;
  list_options(config, list);
  if (man) std::cout << man_page();
  if (!shell.empty()) std::cout << shell_completion(shell, list);
  if (man || !shell.empty()) return 0;
  if (markdown || word.empty()) {
    std::cout << (markdown ? config_reference(config) : for_terminal(overview(list)));
    return 0;
  }
  const auto command = std::ranges::find(commands(), word, &Command::name);
  const bool is_command = command != commands().end();
  if (is_command) command->run({"--help"});
  // `data` is a command and a section.
  if (!is_command || list.find(word)) std::cout << for_terminal(help_for(list, word));
  return 0;
}

int run_axonn(const Arguments& arguments) {
  if (arguments.empty()) return run_help({});
  const std::string& name = arguments.front();
  const Arguments rest(arguments.begin() + 1, arguments.end());
  if (name == "--version" || name == "-V" || name == "version") {
    std::cout << "axonn " << build_info().version << '\n';
    return 0;
  }
  if (name == "--help" || name == "-h") return run_help(rest);
  const auto found = std::ranges::find(commands(), name, &Command::name);
  if (found != commands().end()) return found->run(rest);
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  const auto guesses = nearest(name, names);
  refuse("there is no command '", name, "'",
         guesses.empty() ? "; the commands are " + join(names) : did_you_mean(guesses));
}

int run_program(int argc, char** argv) {
  keep_to_nodes_with_processors();
  StandardOutput output;
  const auto report = [](const std::exception& error, int code) {
    std::cout.exceptions(std::ios::goodbit);  // std::cerr flushes it
    std::cout.flush();
    end_launched(std::current_exception());
    std::cerr << "error: " << error.what() << std::endl;
    return code;
  };
  try {
    const int code = run_axonn(Arguments(argv + (argc > 0 ? 1 : 0), argv + argc));
    output.finish();
    return code;
  } catch (const UsageError& error) {
    return report(error, kUsageError);
  } catch (const std::exception& error) {
    return report(error, kFailed);
  }
}

}  // namespace axonn
