// Every command that runs a model prepares the run in the same way: the machine of
// parallelism.machine chooses collectives, and activation_checkpoint.budget holds.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/app/cli/runs.h"
#include "tests/support/disk_folder.h"

using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;

namespace {

/// A command that takes a config, with what it needs to end soon.
struct ACommand {
  std::string name;
  std::vector<std::string> more = {};
};

void PrintTo(const ACommand& command, std::ostream* out) { *out << command.name; }

class EveryCommand : public testing::TestWithParam<ACommand> {
 protected:
  Finished run_with(const std::string& key, const std::string& value) const {
    const SmallRun run;
    std::vector<std::string> all{GetParam().name, run.config(), "--output.dir",
                                 run / "other",   key,          value};
    all.insert(all.end(), GetParam().more.begin(), GetParam().more.end());
    return run_program(all);
  }
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(
    Prepare, EveryCommand,
    testing::Values(ACommand{"train"}, ACommand{"bench"}, ACommand{"tune"},
                    ACommand{"check", {"--grids", "1,1,1,1 2,1,1,1", "--steps", "1"}},
                    ACommand{"memorize",
                             {"--training.seq_len", "128", "--training.goldfish.k", "2"}}),
    [](const auto& one) { return one.param.name; });

TEST_P(EveryCommand, LooksUpTheMachineWhoseLinksChooseCollectives) {
  const Finished done = run_with("--parallelism.machine", "nowhere");
  EXPECT_EQ(done.code, 2) << done.out;
  EXPECT_THAT(done.err, HasSubstr("there is no machine 'nowhere'"));
}

TEST_P(EveryCommand, RefusesABudgetThatNoRecomputationMeets) {
  const Finished done = run_with("--activation_checkpoint.budget", "1000");
  EXPECT_EQ(done.code, 2) << done.out;
  EXPECT_THAT(done.err, AllOf(HasSubstr("[activation_checkpoint] budget = 1000"),
                              HasSubstr("set budget to at least")));
}

TEST(ModelCommands, LookUpTheMachineOfTheirFlag) {
  const SmallRun run;
  ASSERT_EQ(run_program(run.train()).code, 0);
  const Finished done =
      run_program({"generate", "--model", run.out(), "--prompt", "a", "--machine", "nowhere"});
  EXPECT_EQ(done.code, 2) << done.out;
  EXPECT_THAT(done.err, HasSubstr("there is no machine 'nowhere'"));
}

namespace {

/// memory_bytes of the last line of a run's metrics: its arena's peak.
std::int64_t peak_of(const SmallRun& run) {
  return nlohmann::json::parse(run.metrics().back()).at("memory_bytes").get<std::int64_t>();
}

}  // namespace

// Arenas of two ranks, which differ in nothing, and the copies of their checkpoints.
TEST(Fit, ChoosesSettingsWithWhichTheRunTakesNoMoreMemory) {
  const std::vector<std::string> more{"--training.seq_len", "128", "--model.layers", "3",
                                      "--parallelism.z",    "2"};
  const SmallRun whole;
  ASSERT_EQ(run_program(whole.train(more)).code, 0);
  const std::int64_t copy = 3 * 4 * 16'016;  // of f32 weights and two moments of all ranks
  const std::int64_t limit = 2 * peak_of(whole) * 2 / 3 + copy;
  const auto expect_fits = [&](const std::string& key, const std::string& setting,
                               const std::vector<std::string>& closed) {
    const SmallRun run;
    std::vector<std::string> flags = more;
    flags.insert(flags.end(), closed.begin(), closed.end());
    flags.insert(flags.end(), {"--fit", std::to_string(limit)});
    const Finished done = run_program(run.train(flags));
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.err, AllOf(HasSubstr("--fit "), HasSubstr(" sets --" + key)));
    EXPECT_LE(2 * peak_of(run) + copy, limit);
    EXPECT_THAT(axonn::test::slurp(run.out() + "/config.toml"), HasSubstr(setting));
    // The dry run compares with the limit.
    flags.insert(flags.end(), {"--dry-run", "--output.dir", run / "other"});
    const Finished dry = run_program(run.train(flags));
    EXPECT_EQ(dry.code, 0) << dry.err;
    EXPECT_THAT(dry.out, HasSubstr("--fit, for this machine"));
  };
  expect_fits("activation_checkpoint.budget", "values = [\"", {});
  expect_fits("training.micro_batch 1", "micro_batch = 1",
              {"--activation_checkpoint.mode", "none"});
}

TEST(Fit, TakesTheDiskOfOffloadDirAndNamesItIfThereIsNone) {
  if (!axonn::test::has_disk()) GTEST_SKIP() << axonn::test::kNoDisk;
  const std::vector<std::string> more{
      "--model.hidden", "64", "--activation_checkpoint.mode", "none", "--optimizer.moments", "f32"};
  const SmallRun whole;
  ASSERT_EQ(run_program(whole.train(more)).code, 0);
  const std::string limit = std::to_string(peak_of(whole));  // without the copy of a checkpoint
  const SmallRun run, refused;
  std::vector<std::string> flags = more;
  flags.insert(flags.end(), {"--fit", limit});
  const Finished none = run_program(refused.train(flags));
  EXPECT_EQ(none.code, 2) << none.out;
  EXPECT_THAT(
      none.err,
      HasSubstr("set --offload.dir DIR, a folder on a disk of this node (then it would be "));
  // Moments of fewer bytes would change values, which a disk does not.
  const SmallRun smaller;
  const Finished changed =
      run_program(smaller.train({"--model.hidden", "64", "--activation_checkpoint.mode", "none",
                                 "--fit", std::to_string(peak_of(whole) * 3 / 2)}));
  ASSERT_EQ(changed.code, 0) << changed.err;
  EXPECT_THAT(changed.err, AllOf(HasSubstr(" --optimizer.moments "),
                                 HasSubstr("no value would change with --offload.dir DIR")));
  flags.insert(flags.end(), {"--offload.dir", axonn::test::disk_folder()});
  const Finished done = run_program(run.train(flags));
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("--fit "), HasSubstr(" sets ")));
  EXPECT_LE(peak_of(run), std::stoll(limit));
  const auto loss_of = [](const SmallRun& one) {
    return nlohmann::json::parse(one.metrics().back()).at("loss").get<double>();
  };
  EXPECT_EQ(loss_of(run), loss_of(whole));
}

TEST(Fit, LeavesARunThatFitsAsItIs) {
  const SmallRun run;
  const Finished done = run_program(run.train({"--fit", "1GiB"}));
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("--fit 1.00GiB"), HasSubstr("which fits")));
}

TEST(Fit, RefusesWhatNothingMakesFitAndNamesTheKeysInTheWay) {
  const SmallRun run;
  const Finished done =
      run_program(run.train({"--fit", "10KB", "--training.micro_batch", "2", "--model.layers", "2",
                             "--activation_checkpoint.mode", "none"}));
  EXPECT_EQ(done.code, 2) << done.out;
  EXPECT_THAT(done.err, HasSubstr("leave training.micro_batch, [activation_checkpoint] open"));
  const Finished automatic =
      run_program(run.train({"--fit", "1GiB", "--parallelism.grid", "auto"}));
  EXPECT_EQ(automatic.code, 2);
  EXPECT_THAT(automatic.err, HasSubstr("--fit needs a grid"));
}
