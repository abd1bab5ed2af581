#include "axonn/app/supervise/supervisor.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"

#include "tests/support/temporary_path.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// Commands of a shell in the place of jobs.
class SupervisorTest : public testing::Test {
 protected:
  /// $1 is the number of the start, $2 its nodes, and $run the run's folder, to which `step N` adds
  /// a step.
  SupervisorOptions options(const std::string& script) const {
    const std::string run = folder_ / "run";
    std::filesystem::create_directory(run);
    return {.command = {"/bin/sh", "-c",
                        "run=" + run +
                            R"(; step() { echo "{\"step\": $1, \"time\": 1, \"loss\": 2}" )"
                            ">> $run/metrics.jsonl; }; " +
                            script,
                        "job", "{start}", "{nodes}"},
            .run = run,
            .most_wait = 0.01,
            .log = folder_ / "log.jsonl"};
  }
  int run(const SupervisorOptions& options) {
    return supervise(options, stop_, [this](const std::string& line) { said_ += line + '\n'; });
  }
  std::vector<nlohmann::json> starts() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(folder_ / "log.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  template <typename T>
  std::vector<T> column(const char* key) const {
    std::vector<T> values;
    for (const auto& start : starts()) values.push_back(start[key].get<T>());
    return values;
  }

  test::TemporaryPath folder_;
  std::atomic<bool> stop_ = false;
  std::string said_;
};

}  // namespace

TEST_F(SupervisorTest, StartsAgainUntilTheJobIsDone) {
  EXPECT_EQ(run(options("step $1; [ $1 = 5 ] || kill -9 $$")), 0);
  EXPECT_THAT(column<int>("code"), ElementsAre(137, 137, 137, 137, 0));
  EXPECT_THAT(column<int>("steps"), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(said_, HasSubstr("start 2 ended with signal 9 after"));
}

TEST_F(SupervisorTest, GivesUpOnceNoStartComesFurther) {
  EXPECT_EQ(run(options("[ $1 = 1 ] && step 7; exit 1")), 1);
  EXPECT_THAT(column<int>("code"), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(said_, HasSubstr("after 3 starts without a new step it gives up"));
}

TEST_F(SupervisorTest, DoesNotRepeatWhatWasRefusedOrStopped) {
  for (const int code : {2, 75}) {
    EXPECT_EQ(run(options("exit " + std::to_string(code))), code);
    EXPECT_EQ(starts().size(), code == 2 ? 1U : 2U);
  }
  EXPECT_THAT(said_, HasSubstr("another start would end likewise"));
}

TEST_F(SupervisorTest, EndsAStartThatHangsAlsoOneThatIgnoresIt) {
  SupervisorOptions wanted = options(
      "step $1; case $1 in 1) trap 'exit 75' TERM;; 2) trap '' TERM;; *) exit 0;; esac; "
      "while :; do sleep 0.05; done");
  wanted.hang = 0.4;
  EXPECT_EQ(run(wanted), 0);
  EXPECT_THAT(column<int>("code"), ElementsAre(1, 137, 0));
  EXPECT_THAT(column<int>("steps"), ElementsAre(1, 2, 3));
  EXPECT_THAT(said_, HasSubstr("start 1 ended with exit code 1"));
  EXPECT_THAT(said_, HasSubstr("at step 2: no new step for 0.4 s"));
}

TEST_F(SupervisorTest, PassesAStopOnAndWaitsForTheCheckpoint) {
  std::thread later([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    stop_ = true;
  });
  EXPECT_EQ(run(options("trap 'sleep 0.2; step 3; exit 75' USR1; while :; do sleep 0.05; done")),
            75);
  later.join();
  EXPECT_THAT(column<int>("steps"), ElementsAre(3));
}

TEST_F(SupervisorTest, LeavesOutNodesThatFailTheProbeOrHaveNoEnd) {
  SupervisorOptions wanted = options("step $1; [ $1 = 3 ]");
  wanted.nodes = {"a", "b", "c", "d"};
  wanted.spares = 1;
  wanted.least = 2;
  wanted.probe = "case {node} in b) exit 1;; d) sleep 60;; esac";
  wanted.probe_seconds = 0.5;
  EXPECT_EQ(run(wanted), 0);
  EXPECT_THAT(
      column<std::vector<std::string>>("nodes"),
      ElementsAre(ElementsAre("a", "b", "c"), ElementsAre("a", "c"), ElementsAre("a", "c")));
  EXPECT_THAT(said_, HasSubstr("further starts do without b, d"));
}

TEST_F(SupervisorTest, LeavesOutANodeThatTheRunNamesTwice) {
  SupervisorOptions wanted = options(
      "step $1; case $2 in *b*) printf \"process $1 on h, since 2026\\nfailed, 2026-11-21 18:02:11 "
      "UTC: rank 3 on b hangs\\n\" > $run/lock; exit 1;; esac");
  wanted.nodes = {"a", "b"};
  wanted.least = 1;
  EXPECT_EQ(run(wanted), 0);
  EXPECT_THAT(column<std::vector<std::string>>("nodes"),
              ElementsAre(ElementsAre("a", "b"), ElementsAre("a", "b"), ElementsAre("a")));
  EXPECT_THAT(said_, HasSubstr("rank 3 on b hangs; further starts do without b"));
}

TEST_F(SupervisorTest, BlamesNoNodeForTheErrorOfAnEarlierStart) {
  SupervisorOptions wanted = options(
      "step $1; case $1 in 1) printf 'process 1 on h, since 2026\\nfailed, 2026-11-21 18:02:11 "
      "UTC: rank 3 on b hangs\\n' > $run/lock; exit 1;; 2) exit 1;; esac");
  wanted.nodes = {"a", "b"};
  EXPECT_EQ(run(wanted), 0);
  EXPECT_THAT(column<std::string>("why"), ElementsAre("rank 3 on b hangs", "", ""));
  EXPECT_THAT(column<std::vector<std::string>>("nodes"), testing::Each(ElementsAre("a", "b")));
}

TEST_F(SupervisorTest, EndsOnceTooFewNodesAreLeft) {
  SupervisorOptions wanted = options("step $1; exit 1");
  wanted.nodes = {"a", "b"};
  wanted.probe = "[ {node} = a ]";
  EXPECT_EQ(run(wanted), 1);
  EXPECT_EQ(starts().size(), 1U);
  EXPECT_THAT(said_, HasSubstr("too few nodes are left: a"));
}

TEST_F(SupervisorTest, EndsWhatTheJobLeavesBehind) {
  EXPECT_EQ(run(options("(sleep 30; touch $run/late) & step $1; echo $! > $run/child; exit 2")), 2);
  std::string child;
  std::getline(std::ifstream(folder_ / "run/child") >> std::ws, child);
  const auto runs = [&] { return std::filesystem::exists("/proc/" + child + "/exe"); };
  for (int i = 0; i < 500 && runs(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(runs()) << "it would hold the lock";
}

TEST_F(SupervisorTest, RefusesWhatDoesNotFit) {
  const auto refused = [&](auto change, const char* message) {
    SupervisorOptions wanted = options("exit 0");
    change(wanted);
    EXPECT_THAT([&] { run(wanted); }, ThrowsMessage<UsageError>(HasSubstr(message)));
  };
  refused([](SupervisorOptions& o) { o.command.clear(); }, "there is no command");
  refused([](SupervisorOptions& o) { o.command = {"/no/such/program"}; }, "cannot start");
  refused([](SupervisorOptions& o) { o.spares = 1; }, "name them by --nodes");
  refused([](SupervisorOptions& o) { o.nodes = {"a"}, o.command = {"true"}; }, "{nodes}");
}
