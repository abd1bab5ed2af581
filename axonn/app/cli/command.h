#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/foundation/base/exit_codes.h"

namespace axonn {

using Arguments = std::vector<std::string>;

/// `axonn NAME ...`. run() gets the arguments after the name and returns the exit code. It throws
/// UsageError for usage errors and Error for failures.
struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const Arguments&);
};

/// All commands, in the order in which help lists them.
std::span<const Command> commands();

/// Finds the command and runs it. This is the whole program except for catching exceptions.
int run_axonn(const Arguments& arguments);

int run_train(const Arguments& arguments);
int run_finetune(const Arguments& arguments);
int run_prefer(const Arguments& arguments);
int run_reinforce(const Arguments& arguments);
int run_distill(const Arguments& arguments);
int run_forget(const Arguments& arguments);
int run_hash(const Arguments& arguments);
int run_replay(const Arguments& arguments);
int run_supervise(const Arguments& arguments);
int run_check(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_plan(const Arguments& arguments);
/// `axonn plan --published`.
int run_published_plans(const Arguments& arguments);
int run_probe(const Arguments& arguments);
int run_tune(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_eval(const Arguments& arguments);
int run_serve(const Arguments& arguments);
int run_board(const Arguments& arguments);
int run_memorize(const Arguments& arguments);
int run_convert(const Arguments& arguments);
int run_data(const Arguments& arguments);
int run_export(const Arguments& arguments);
int run_worker(const Arguments& arguments);
int run_info(const Arguments& arguments);
int run_help(const Arguments& arguments);

}  // namespace axonn
