#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/data/storage/checkpoint/state_hash.h"

namespace axonn {

namespace {

constexpr const char* kHashExamples =
    R"(Prints SHA-256 of what a checkpoint holds: of the weights (master), of each part of the
optimizer's state, and of all of them (state). The grid that wrote the checkpoint, its files and its
config do not count, so equal hashes mean equal bits. Of two checkpoints it also says whether, and
where, they differ.

Examples:
  axonn hash out/run/checkpoints
      the newest checkpoint of a run
  axonn hash out/a/checkpoints/step-200 out/b/checkpoints/step-200
      whether two runs have the same bits

Exit codes: 0 done, or equal; 1 different; 2 usage error.)";

void print(const CheckpointReader& reader, const StateHash& hash) {
  std::cout << fmt::format("{}: step {}\n", reader.folder(), hash.step);
  for (const auto& [kind, value] : hash.kinds)
    std::cout << fmt::format("  {:<12} {}\n", kind, value);
  std::cout << fmt::format("  {:<12} {}\n", "state", hash.state);
}

void print(const StateDifference& difference) {
  const auto& [kind, values, different, zeros, largest] = difference;
  if (different == 0)
    std::cout << fmt::format("  {:<12} equal to the bit\n", kind);
  else
    std::cout << fmt::format(
        "  {:<12} {} of {} values differ, {} of these only in the sign of zero; by {:.3g} at "
        "most\n",
        kind, different, values, zeros, largest);
}

}  // namespace

int run_hash(const Arguments& arguments) {
  CLI::App app("Prints hashes of a checkpoint's weights and optimizer, or compares two.",
               "axonn hash");
  app.footer(kHashExamples);
  std::vector<std::string> paths;
  app.add_option("CHECKPOINT", paths,
                 "a checkpoint, or a run's folder for its newest one; one or two")
      ->required()
      ->expected(1, 2);
  if (!parse_flags(app, arguments)) return 0;
  const CheckpointReader first(paths.front());
  const StateHash hash = hash_of_state(first);
  print(first, hash);
  if (paths.size() == 1) return 0;
  const CheckpointReader second(paths.back());
  const StateHash other = hash_of_state(second);
  print(second, other);
  std::cout << "difference:\n";
  for (const StateDifference& difference : differences(first, second)) print(difference);
  return hash.kinds == other.kinds ? 0 : kFailed;
}

}  // namespace axonn
