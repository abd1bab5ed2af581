// Signals to a running `axonn train`: it saves, exits with 75 and resumes when run again.
#include <filesystem>

#include <gmock/gmock.h>
#include <signal.h>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

const std::vector<std::string> kEndless = {"--training.steps", "100000000", "--checkpoint.resume",
                                           "auto"};

/// The number of the last step in metrics.jsonl; 0 if there is none.
std::int64_t last_step(const SmallRun& run) {
  const auto lines = run.metrics();
  return lines.empty() ? 0 : std::stoll(lines.back().substr(std::string("{\"step\": ").size()));
}

/// Expects every step exactly once, in order.
void expect_no_gap(const SmallRun& run) {
  const auto lines = run.metrics();
  for (std::size_t i = 0; i < lines.size(); ++i)
    ASSERT_THAT(lines[i], testing::StartsWith("{\"step\": " + std::to_string(i + 1) + ","));
}

/// Runs a few steps, sends the signal, and expects a saved checkpoint and exit code 75.
void expect_stop(const SmallRun& run, int signal, int ranks,
                 const std::vector<std::string>& arguments) {
  Program program(run.train(arguments), {.ranks = ranks});
  ASSERT_TRUE(program.prints("  loss ")) << program.finish(0).err;
  ::kill(program.pid(), signal);
  const Finished finished = program.finish();
  EXPECT_EQ(finished.code, kStoppedEarly) << finished.out << finished.err;
  EXPECT_THAT(finished.errors(), IsEmpty());
  EXPECT_THAT(finished.out, HasSubstr("stopped by a signal after step "));
  const std::string step = "step-" + std::to_string(last_step(run));
  EXPECT_TRUE(std::filesystem::exists(run.out() + "/checkpoints/" + step));
  EXPECT_THAT(finished.out, HasSubstr(step));
  expect_no_gap(run);
}

}  // namespace

TEST(Signals, TermIntUsr1AndHupEachSaveACheckpointThatTheNextRunResumes) {
  const SmallRun run;
  std::int64_t before = 0;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    std::vector<std::string> arguments = kEndless;
    arguments.insert(arguments.end(), {"--parallelism.x", "2"});
    expect_stop(run, signal, 0, arguments);
    EXPECT_GT(last_step(run), before);
    before = last_step(run);
  }
}

TEST(Signals, WhileARunWritesAnotherIsRefusedWithItsProcessAndAKillReleasesTheFolder) {
  const SmallRun run;
  Program first(run.train(kEndless));
  ASSERT_TRUE(first.prints("  loss ")) << first.finish(0).err;
  const Finished second = run_program(run.train({"--checkpoint.resume", "auto"}));
  EXPECT_EQ(second.code, kUsageError) << second.out;
  EXPECT_THAT(second.errors(),
              testing::ElementsAre(HasSubstr("another run writes to " + run.out() + ": process " +
                                             std::to_string(first.pid()) + " on ")));
  ::kill(first.pid(), SIGKILL);
  EXPECT_EQ(first.finish().code, 128 + SIGKILL);
  const Finished third = run_program(run.train({"--checkpoint.resume", "auto"}));
  EXPECT_EQ(third.code, 0) << third.err;
}

TEST(Signals, Usr1ToMpirunReachesTheRanksWhichStopAfterTheSameStep) {
  if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
  const SmallRun run;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::string> arguments = kEndless;
    arguments.insert(arguments.end(), {"--parallelism.z", "2"});
    expect_stop(run, SIGUSR1, 2, arguments);
  }
}
