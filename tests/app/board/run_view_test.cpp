#include "axonn/app/board/run_view.h"

#include <array>
#include <ctime>
#include <filesystem>

#include <gmock/gmock.h>
#include <unistd.h>

#include "axonn/run/records/run_end.h"

#include "tests/app/board/made_up_run.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// What the lock of a run says whose process runs on this host.
std::string lock_of(int process) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return concat("process ", process, " on ", host.data(), ", since 2026-11-21 17:40:02 UTC\n");
}

class RunViewTest : public testing::Test {
 protected:
  RunPhase read(std::time_t later = 0) {
    view_.read(1, std::time(nullptr) + later);
    return view_.state();
  }
  void log(const std::string& line) {
    append(run_ + "/logs/rank-0.log", "2026-11-22T02:58:14.751Z " + line + "\n");
  }

  test::TemporaryPath folder_;
  std::string run_ = folder_ / "run";
  RunView view_{run_, "run"};
};

TEST_F(RunViewTest, WaitsForARunAndFollowsItToItsEnd) {
  EXPECT_EQ(read(), RunPhase::waiting);
  EXPECT_THAT(view_.reason(), HasSubstr("does not exist yet"));
  make_folders(run_);
  EXPECT_EQ(read(), RunPhase::waiting);
  EXPECT_THAT(view_.reason(), HasSubstr("holds no run yet"));
  make_run(run_, 0, 10);
  EXPECT_EQ(read(), RunPhase::starting);
  EXPECT_EQ(view_.steps(), 10);
  make_run(run_, 9, 10);
  EXPECT_EQ(read(), RunPhase::running);
  EXPECT_NEAR(view_.seconds_left(), 0.1, 1e-9);
  EXPECT_EQ(read(3600), RunPhase::stalled);
  EXPECT_NEAR(view_.seconds_since_line(std::time(nullptr) + 3600), 3600, 60);
  append(run_ + "/metrics.jsonl", step_line(10));
  EXPECT_EQ(read(3600), RunPhase::ended);
}

TEST_F(RunViewTest, TellsARunThatFailedFromOneThatStopped) {
  make_run(run_, 5, 10);
  append(run_ + "/lock", lock_of(getpid()));
  EXPECT_EQ(read(), RunPhase::running);
  write_file_atomically(run_ + "/lock", lock_of(0x7ffffff0));  // no such process
  EXPECT_EQ(read(), RunPhase::failed);
  EXPECT_THAT(view_.reason(), HasSubstr("rank-0.log"));
  make_folders(run_ + "/nonfinite-step-6");
  read();
  EXPECT_THAT(view_.reason(), HasSubstr("step 6 was not finite; axonn replay"));
  note_run_end(run_, RunEnd::failed, "cannot write\nthe file");
  note_run_end(run_, RunEnd::stopped, "later");
  EXPECT_EQ(read(), RunPhase::failed);
  EXPECT_THAT(view_.reason(), testing::MatchesRegex("20.* UTC: cannot write the file"));
  write_file_atomically(run_ + "/lock", "process 1 on another-host, since a while\n");
  EXPECT_EQ(read(), RunPhase::running) << "it resumed, on a host that is not known";
  note_run_end(run_, RunEnd::stopped, "by a signal");
  EXPECT_EQ(read(), RunPhase::stopped);
  EXPECT_EQ(view_.reason(), "by a signal");
}

TEST_F(RunViewTest, OfARunWithoutItsLastCheckpointIsNoRunThatEnded) {
  make_run(run_, 10, 10);
  append(run_ + "/lock", lock_of(getpid()));
  EXPECT_EQ(read(), RunPhase::running) << "it writes its last checkpoint";
  note_run_end(run_, RunEnd::failed, "no room");
  EXPECT_EQ(read(), RunPhase::failed);
  write_file_atomically(run_ + "/lock", lock_of(getpid()));
  note_run_end(run_, RunEnd::finished, "all steps are done");
  EXPECT_EQ(read(), RunPhase::ended);
}

TEST_F(RunViewTest, ShowsWarningsTheSlowestRankAndCheckpoints) {
  make_run(run_, 5, 10);
  for (int i = 0; i < 30; ++i) log(concat("warning number ", i));
  log("warning slowest: rank 3 computes 1.41 times as long as the mean");
  log("info saved something");
  append(run_ + "/logs/rank-0.log", "cut short");
  for (const char* name : {"step-5", "step-10", "latest", "step-5.tmp-0123456789abcdef"})
    make_folders(run_ + "/checkpoints/" + name);
  read();
  EXPECT_EQ(view_.warnings().size(), 20U);
  EXPECT_EQ(view_.warnings().back(), "2026-11-22T02:58:14.751Z number 29");
  EXPECT_THAT(view_.slowest(), HasSubstr("rank 3"));
  EXPECT_THAT(view_.checkpoints(), ElementsAre(10, 5));
}

TEST(RunConfig, HasTheKeysThatAreSet) {
  const auto config = parse_run_config(
      "# a note\n[training]\nsteps = 50\ngoldfish.k = 0\n# tune = 1  # no effect\r\n\n[data]\n"
      "text = [\"a=b\"]");
  EXPECT_THAT(config, ElementsAre(testing::Pair("data.text", "[\"a=b\"]"),
                                  testing::Pair("training.goldfish.k", "0"),
                                  testing::Pair("training.steps", "50")));
}

TEST(RunConfig, HasTheStepsThatEpochsGive) {
  const auto config = parse_run_config(
      "[other]\n# steps = 3  # no effect\n[training]\n# steps = 50  # no effect: epochs\n"
      "epochs = 2.5\n");
  EXPECT_THAT(config, ElementsAre(testing::Pair("training.epochs", "2.5"),
                                  testing::Pair("training.steps", "50")));
}

TEST_F(RunViewTest, NoticesAChangedConfig) {
  make_run(run_, 1, 10);
  read();
  EXPECT_EQ(view_.config_version(), 1);
  read();
  EXPECT_EQ(view_.config_version(), 1);
  write_file_atomically(run_ + "/config.toml", "[training]\nsteps = 20\n");
  read();
  EXPECT_EQ(view_.config_version(), 2);
  EXPECT_EQ(view_.steps(), 20);
}

}  // namespace
