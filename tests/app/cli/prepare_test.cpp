// Every command that runs a model prepares the run in the same way: the machine of
// parallelism.machine chooses collectives, and activation_checkpoint.budget holds.
#include <gmock/gmock.h>

#include "tests/app/cli/runs.h"

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
