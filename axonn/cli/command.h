#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

using Arguments = std::vector<std::string>;

/// Exit codes of the program, besides 0: done.
inline constexpr int kFailed = 1;         ///< or, for check, disagreed
inline constexpr int kAskedWrongly = 2;   ///< a key, value, file or grid that will not do
inline constexpr int kStoppedEarly = 75;  ///< by a signal, with a checkpoint saved; requeue it

/// `axonn NAME ...`. run() gets what follows the name and returns the exit code.
/// Errors: run() throws UsageError for what was asked wrongly, Error for what failed.
struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const Arguments&);
};

/// All commands, in the order in which help lists them.
std::span<const Command> commands();

/// The whole program but for catching: finds the command and runs it.
int run_axonn(const Arguments& arguments);

int run_train(const Arguments& arguments);
int run_check(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_plan(const Arguments& arguments);
int run_probe(const Arguments& arguments);
int run_tune(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_eval(const Arguments& arguments);
int run_memorize(const Arguments& arguments);
int run_convert(const Arguments& arguments);
int run_data(const Arguments& arguments);
int run_info(const Arguments& arguments);
int run_help(const Arguments& arguments);

}  // namespace axonn
