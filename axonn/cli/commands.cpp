#include <algorithm>
#include <array>
#include <iostream>

#include "axonn/base/check.h"
#include "axonn/cli/build_info.h"
#include "axonn/cli/command.h"
#include "axonn/options/options.h"

namespace axonn {

std::span<const Command> commands() {
  static constexpr std::array kCommands = {
      Command{"train", "trains a model, on one rank or on a grid of ranks", run_train},
      Command{"check", "runs the same training on several grids and compares the results",
              run_check},
      Command{"bench", "times training steps: tokens/s, flops, exposed communication, memory",
              run_bench},
      Command{"plan", "predicts the fastest grids on a machine, their speed and memory", run_plan},
      Command{"probe", "measures this machine and writes a machine file for plan", run_probe},
      Command{"tune", "times the ways to compute a step's matrix products and keeps the fastest",
              run_tune},
      Command{"generate", "generates text with a model", run_generate},
      Command{"eval", "evaluates a model: loss and perplexity on a text, or multiple choice",
              run_eval},
      Command{"memorize", "studies what models memorize, or audits one model", run_memorize},
      Command{"convert", "converts between checkpoints and Hugging Face folders; merges adapters",
              run_convert},
      Command{"data", "makes token files and shows their contents", run_data},
      Command{"info", "shows what this build and this machine have", run_info},
      Command{"help", "explains a command, a section or a key", run_help},
  };
  return kCommands;
}

int run_axonn(const Arguments& arguments) {
  if (arguments.empty()) return run_help({});
  const std::string& name = arguments.front();
  const Arguments rest(arguments.begin() + 1, arguments.end());
  if (name == "--version") {
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

}  // namespace axonn
