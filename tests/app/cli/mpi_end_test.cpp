// Failures under mpirun: each ends in time, with a message and a nonzero exit code.
#include <gmock/gmock.h>
#include <signal.h>

#include "axonn/app/cli/command.h"
#include "axonn/ranks/comm/mpi/mpi.h"
#include "axonn/run/records/run_end.h"

#include "tests/app/cli/runs.h"
#include "tests/app/cli/token_bytes.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

namespace {

const std::vector<std::string> kEndlessOnTwo = {"--training.steps",
                                                "100000000",
                                                "--parallelism.x",
                                                "2",
                                                "--checkpoint.every",
                                                "0",
                                                "--parallelism.timeout_seconds",
                                                "5",
                                                "--checkpoint.resume",
                                                "auto"};

/// A run that resumes from a good checkpoint and runs on two ranks until it is ended.
class MpiEnd : public testing::Test {
 protected:
  void SetUp() override {
    if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
    ASSERT_EQ(run_program(run_.train()).code, 0);
    good_ = run_.checkpoints();
  }
  void TearDown() override { EXPECT_EQ(run_.checkpoints(), good_); }

  const SmallRun run_;
  std::map<std::string, std::string> good_;
};

}  // namespace

TEST_F(MpiEnd, AKilledRankEndsTheOthersAndMpirunNamesTheSignal) {
  if (!mpi_version().starts_with("Open MPI")) GTEST_SKIP() << "a message of Open MPI's launcher";
  Program program(run_.train(kEndlessOnTwo), {.ranks = 2});
  ASSERT_TRUE(program.prints("  loss "));
  ::kill(program.pid_of_rank(1), SIGKILL);
  const Finished finished = program.finish();
  EXPECT_EQ(finished.code, 128 + SIGKILL) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("rank 1"));
  EXPECT_THAT(finished.err, HasSubstr("signal 9"));
}

TEST_F(MpiEnd, AStoppedRankIsNamedByTheWatchdogAfterTheTimeout) {
  Program program(run_.train(kEndlessOnTwo), {.ranks = 2});
  ASSERT_TRUE(program.prints("  loss "));
  const pid_t stopped = program.pid_of_rank(1);
  ::kill(stopped, SIGSTOP);
  const Finished finished = program.finish();
  EXPECT_EQ(finished.code, kFailed) << finished.err;
  EXPECT_THAT(finished.errors(),
              ElementsAre(AllOf(HasSubstr("rank 0"), HasSubstr("1"), HasSubstr("gave no answer"))));
  EXPECT_EQ(read_run_process(run_.out()).end, RunEnd::failed);
  EXPECT_THAT(read_run_process(run_.out()).why, HasSubstr("gave no answer"));
}

TEST_F(MpiEnd, ARankThatThrowsAloneIsNamedAndEndsTheOthers) {
  // Token 59 is in sequence 8 of step 1, which only z 1 reads, and that is rank 1 alone.
  std::vector<std::uint16_t> tokens(12 * 8 + 1, 97);
  tokens[59] = 999;
  test::spill(run_ / "tokens.bin", token_file_bytes(tokens));
  const Finished finished = run_program(
      run_.train({"--data.synthetic", "0", "--data.tokens", run_ / "tokens.bin", "--data.shuffle",
                  "false", "--data.validation", "0", "--parallelism.z", "2",
                  "--training.global_batch", "12", "--output.overwrite"}),
      {.ranks = 2});
  EXPECT_EQ(finished.code, kUsageError) << finished.err;
  EXPECT_THAT(finished.errors(),
              ElementsAre(MatchesRegex("error: rank 1: token 59 of .*tokens.bin is 999, .*")));
  EXPECT_EQ(read_run_process(run_.out()).end, RunEnd::failed);
  EXPECT_THAT(read_run_process(run_.out()).why, HasSubstr("tokens.bin is 999"));
  const Finished info = run_program({"info", run_.out()});
  EXPECT_THAT(info.out, MatchesRegex("(.|\n)*\nstate +failed: 20[^\n]*tokens.bin is 999(.|\n)*"));
}
