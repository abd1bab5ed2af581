#include "axonn/foundation/base/log.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

namespace {

const StepReport kReport = {.step = 10,
                            .steps = 40,
                            .loss = 4.21134,
                            .grad_norm = 1.342,
                            .lr = 2e-4,
                            .tokens = 1'234'567,
                            .epoch = 0.1,
                            .best_validation = 4.30123,
                            .memory_bytes = 2'845'415'834,
                            .tokens_per_second = 1771.6,
                            .tflops = 0.511,
                            .mfu = 0.4811,
                            .seconds_left = 192};

}  // namespace

TEST(FormatStep, PrintsTheDocumentedLine) {
  EXPECT_EQ(
      format_step(kReport),
      "step 10/40  25%  3m 12s left  loss 4.2113  grad_norm 1.34  tokens/s 1,772  lr 2.00e-04  "
      "tokens 1.2M  epoch 0.10  best val 4.3012  tflops 0.51  mfu 48.1%  memory 2.65GiB");
}

TEST(FormatStep, LeavesOutWhatIsUnknown) {
  EXPECT_EQ(format_step({.step = 10, .loss = 1}),
            "step 10  loss 1.0000  grad_norm 0.00  tokens/s 0  lr 0.00e+00  tokens 0  tflops 0.00  "
            "memory 0B");
}

TEST(FormatStep, SaysThatAStepHasNoLoss) {
  EXPECT_THAT(format_step({.step = 10}), testing::HasSubstr("  loss none (no targets)  grad_norm"));
}

TEST(Format, CountsHaveSeparatorsAndBytesAndDurationsHaveUnits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-123456), "-123,456");
  EXPECT_EQ(format_short_count(999), "999");
  EXPECT_EQ(format_short_count(999'949), "999.9K");
  EXPECT_EQ(format_short_count(999'950), "1.0M");
  EXPECT_EQ(format_short_count(1'500'000'000'000), "1.5T");
  EXPECT_EQ(format_bytes(512), "512B");
  EXPECT_EQ(format_bytes(1536), "1.50KiB");
  EXPECT_EQ(format_bytes((std::int64_t{1} << 30) - 1), "1.00GiB");
  EXPECT_EQ(format_duration(3.21), "3.2s");
  EXPECT_EQ(format_duration(59.97), "1m 00s");
  EXPECT_EQ(format_duration(7500), "2h 05m");
  EXPECT_EQ(format_duration(4 * 86400 + 3 * 3600), "4d 03h");
}

TEST(Log, WritesOneLineEachWithoutControlCodesIfTheOutputIsNotATerminal) {
  std::ostringstream out;
  Log log({.file = {}, .terminal = &out});
  log.info("loading");
  log.step(kReport);
  log.warn("slow");
  EXPECT_EQ(out.str(), "loading\n" + format_step(kReport) + "\nwarning: slow\n");
}

TEST(Log, OfATerminalKeepsALineASecondAndRedrawsTheOthersInPlace) {
  std::ostringstream out;
  double now = 100;
  {
    Log log({.file = {}, .terminal = &out, .interactive = true, .columns = 200, .clock = [&now] {
               return now;
             }});
    for (const double time : {100.0, 100.4, 100.9, 101.0}) {
      now = time;
      log.step(kReport);
    }
    now = 101.5;
    log.step(kReport);
    log.info("saved");
    log.step(kReport);
  }
  const std::string line = "\r" + format_step(kReport) + "\x1b[K";
  EXPECT_EQ(out.str(), line + "\n" + line + line + line + "\n" + line + "\nsaved\n" + line + "\n");
}

TEST(Log, CutsTheStepLineBetweenTwoFieldsOnANarrowTerminal) {
  std::ostringstream out;
  Log log({.file = {}, .terminal = &out, .interactive = true, .columns = 80});
  log.step(kReport);
  EXPECT_EQ(out.str(),
            "\rstep 10/40  25%  3m 12s left  loss 4.2113  grad_norm 1.34  tokens/s 1,772\x1b[K\n");
}

TEST(Log, WritesTimeAndLevelOnEveryLineOfTheFileAndAppendsToAnEarlierRun) {
  const auto path =
      std::filesystem::temp_directory_path() / ("axonn_log_test_" + std::to_string(::getpid()));
  std::filesystem::remove(path);
  Log({.file = path}).info("first run");
  Log({.file = path}).warn("second run");
  std::ifstream file(path);
  std::string first, second;
  std::getline(file, first);
  std::getline(file, second);
  EXPECT_THAT(first, MatchesRegex("....-..-..T..:..:..[.]...Z info first run"));
  EXPECT_THAT(second, MatchesRegex("....-..-..T..:..:..[.]...Z warning second run"));
  std::filesystem::remove(path);
}

TEST(Log, BeginsALineOfItsOwnAfterHalfALineOfAnEarlierRun) {
  test::TemporaryPath folder;
  const std::string path = folder / "rank-0.log";
  test::spill(path, "2026-11-22T02:58:14.751Z info hal");
  Log({.file = path}).info("whole");
  EXPECT_THAT(test::slurp(path), testing::MatchesRegex("2026.* info hal\n20[^\n]*Z info whole\n"));
}

TEST(Log, RefusesAFileThatCannotBeWritten) {
  EXPECT_THROW(Log({.file = "/nowhere/rank-0.log"}), UsageError);
}

namespace {

/// What is shown of work that has done so much at these times.
struct TimedWork {
  double now = 100;
  std::ostringstream out;

  ProgressTarget target(bool redraws) {
    return {.out = &out, .redraws = redraws, .clock = [this] { return now; }};
  }
  void run(ProgressLine& line, std::initializer_list<std::pair<double, std::int64_t>> all,
           std::int64_t total) {
    for (const auto& [time, done] : all) {
      now = 100 + time;
      line(done, total);
    }
  }
};

}  // namespace

TEST(ProgressLine, SaysHowFarAndHowFastFromTheFirstSecondOnAndThenEveryTenSeconds) {
  TimedWork work;
  {
    ProgressLine line(work.target(false), "loading");
    work.run(line, {{0, 0}, {0.9, 1 << 20}, {2, 2 << 20}, {11.9, 9 << 20}, {12, 12 << 20}},
             48 << 20);
  }
  EXPECT_EQ(work.out.str(),
            "loading: 2.00MiB of 48.00MiB (4%), 1.00MiB/s, 46.0s left\n"
            "loading: 12.00MiB of 48.00MiB (25%), 1.00MiB/s, 36.0s left\n");
}

TEST(ProgressLine, IsRedrawnOnATerminalAndClearedAtTheEnd) {
  TimedWork work;
  {
    ProgressLine line(work.target(true), "simulating", "grids");
    work.run(line, {{0, 0}, {4, 1}, {4.4, 2}, {5, 2}}, 3);
  }
  EXPECT_EQ(work.out.str(),
            "\rsimulating: 1 of 3 grids (33%), 0.25/s, 8.0s left\x1b[K"
            "\rsimulating: 2 of 3 grids (66%), 0.4/s, 2.5s left\x1b[K\r\x1b[K");
}

TEST(ProgressLine, CountsTheSpeedFromTheFirstCallAndKnowsUnknownTotals) {
  TimedWork work;
  ProgressLine line(work.target(false), "tokenizing");
  work.run(line, {{5, 70 << 20}, {15, 80 << 20}}, 0);
  EXPECT_EQ(work.out.str(), "tokenizing: 70.00MiB\ntokenizing: 80.00MiB, 1.00MiB/s\n");
}

TEST(ProgressLine, OfQuickWorkOrWithoutATargetShowsNothing) {
  TimedWork work;
  ProgressLine line(work.target(true), "loading"), nowhere(ProgressTarget{}, "loading");
  work.run(line, {{0, 0}, {0.99, 1 << 20}}, 1 << 20);
  work.run(nowhere, {{0, 0}, {20, 1 << 20}}, 1 << 20);
  line.clear();
  EXPECT_EQ(work.out.str(), "");
}
