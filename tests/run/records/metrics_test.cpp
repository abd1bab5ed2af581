#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include "axonn/foundation/base/check.h"
#include "axonn/run/records/event_file.h"
#include "axonn/run/records/metrics_file.h"

#include "tests/support/svg.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

namespace {

StepMetrics step(std::int64_t number, double loss) { return {.step = number, .loss = loss}; }

/// While it exists, files of this process have room for only so many more bytes than this one has.
class FullFile {
 public:
  FullFile(const std::string& path, int more) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small = {std::filesystem::file_size(path) + more, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullFile() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

}  // namespace

TEST(Metrics, AStepWithoutTargetsIsMarkedAndNoPointOfTheCurve) {
  test::TemporaryPath folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsFile file(path, 0);
  file.write(step(1, 4));
  file.write({.step = 2, .has_loss = false});
  EXPECT_THAT(file.losses().training, testing::ElementsAre(Pair(1, 4)));
  EXPECT_THAT(test::slurp(path), HasSubstr(R"("loss": null)"));
  EXPECT_THAT(test::slurp(path), HasSubstr(R"("no_targets": true)"));
  EXPECT_THAT(MetricsFile(path, 2).losses().training, testing::ElementsAre(Pair(1, 4)));
}

TEST(Metrics, AResumedFileKeepsEarlierStepsOnceAndDropsThoseThatRunAgain) {
  test::TemporaryPath folder;
  const std::string path = folder / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    for (int i = 1; i <= 5; ++i) file.write(step(i, i));
  }
  test::spill(path, test::slurp(path) + "{\"step\": 6, \"lo");  // a crash in the middle of a line
  MetricsFile file(path, 3);
  EXPECT_THAT(file.losses().training, testing::ElementsAre(Pair(1, 1), Pair(2, 2), Pair(3, 3)));
  file.write(step(4, 40));
  const std::string text = test::slurp(path);
  EXPECT_EQ(std::ranges::count(text, '\n'), 4);
  EXPECT_THAT(text, HasSubstr("\"step\": 4, \"time\": 0.000, \"loss\": 40"));
  EXPECT_THAT(text, Not(HasSubstr("\"step\": 5")));
}

TEST(Metrics, NanAndInfinityAreNull) {
  test::TemporaryPath folder;
  MetricsFile file(folder / "metrics.jsonl", 0);
  file.write(step(1, StepMetrics::kNone));
  EXPECT_THAT(test::slurp(folder / "metrics.jsonl"), HasSubstr("\"loss\": null"));
}

TEST(Metrics, AFileThatCannotBeWrittenIsNamedWithTheCause) {
  test::TemporaryPath folder;
  try {
    MetricsFile file(folder / "none/metrics.jsonl", 0);
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("none/metrics.jsonl"));
  }
  MetricsFile full("/dev/full", 0);
  EXPECT_THAT(full.write(step(7, 1)), HasSubstr("cannot write /dev/full: No space left on device"));
}

TEST(Metrics, LinesThatCannotBeWrittenAreKeptAndWrittenLater) {
  test::TemporaryPath folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsFile file(path, 0);
  EXPECT_EQ(file.write(step(1, 1)), "");
  {
    const FullFile full(path, 20);
    for (int i : {2, 3}) EXPECT_THAT(file.write(step(i, i)), HasSubstr("File too large"));
  }
  EXPECT_EQ(file.records().write_rest(), "");
  EXPECT_EQ(std::ranges::count(test::slurp(path), '\n'), 3);
  EXPECT_EQ(file.write(step(4, 4)), "");
  const MetricsFile again(path, 9);
  EXPECT_THAT(again.losses().training,
              testing::ElementsAre(Pair(1, 1), Pair(2, 2), Pair(3, 3), Pair(4, 4)));
}

TEST(Metrics, OfTooManyLinesThatCannotBeWrittenTheOldestAreDroppedAndCounted) {
  test::TemporaryPath folder;
  const std::string path = folder / "metrics.jsonl";
  for (const int more : {0, 20}) {  // bytes of step 2 that are written
    MetricsFile file(path, 0, 10'000);
    EXPECT_EQ(file.write(step(1, 1)), "");
    {
      const FullFile full(path, more);
      for (int i = 2; i <= 1000; ++i) EXPECT_NE(file.write(step(i, i)), "");
    }
    EXPECT_EQ(file.write(step(1001, 1)), "");
    const std::int64_t lines = std::ssize(MetricsFile(path, 2000).losses().training);
    EXPECT_GT(lines, 10);
    EXPECT_LT(lines, 100);
    EXPECT_EQ(file.records().dropped(), 1001 - lines);
    const auto losses = MetricsFile(path, 2000).losses().training;
    EXPECT_EQ(losses[1].first == 2, more > 0) << "the partly written line is finished";
    EXPECT_EQ(losses.back().first, 1001);
  }
}

TEST(Events, ThatCannotBeWrittenAreKeptAndWrittenLater) {
  test::TemporaryPath folder;
  EventFile whole(folder / "whole", 7, 1), late(folder / "late", 7, 1);
  const auto number = [](std::int64_t i) { return RunStep{i, 7.5, {{"loss", "", 1.5}}}; };
  for (int i : {1, 2, 3, 4}) EXPECT_EQ(whole.write(number(i)), "");
  EXPECT_EQ(late.write(number(1)), "");
  {
    const FullFile full(folder / "late", 20);
    for (int i : {2, 3}) EXPECT_THAT(late.write(number(i)), HasSubstr("File too large"));
  }
  EXPECT_THAT(late.records().take_warnings(),
              testing::ElementsAre(HasSubstr("kept in memory until they can be written")));
  EXPECT_EQ(late.write(number(4)), "");
  EXPECT_EQ(test::slurp(folder / "late"), test::slurp(folder / "whole"));
}

TEST(Events, OfATextAreUtf8WhateverAModelWrites) {
  test::TemporaryPath folder;
  EventFile(folder / "events", 7, 1).write_text(1, 7.5, "sample/1", "a\xc3\xa9\xff\xc3z\xe2\x82");
  const std::string bytes = test::slurp(folder / "events");
  EXPECT_THAT(bytes, HasSubstr("a\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd"));
  EXPECT_THAT(bytes, Not(HasSubstr("\xa9\xff")));
}

TEST(LossSvg, IsWellFormedForNoStepOneStepAndMany) {
  LossCurves::Curve none, one{{1, 5.0}}, many, validation{{10, 4.5}};
  for (int i = 1; i <= 5000; ++i) many.emplace_back(i, 5.0 / i);
  for (const auto& losses : {none, one, many})
    for (const auto& checked : {none, validation}) {
      const std::string svg = loss_svg("a < b & c", {losses, checked, {}});
      EXPECT_EQ(tag_fault(svg), "");
      EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr("inf")));
      EXPECT_EQ(svg.find("training loss") != svg.npos, !losses.empty());
      EXPECT_LT(svg.size(), 200'000u);
    }
}

TEST(LossSvg, ShowsTheValidationOfAveragedWeightsAlsoOfResumedRuns) {
  test::TemporaryPath folder;
  const std::string path = folder / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    StepMetrics metrics = step(1, 3);
    metrics.val_loss = 2.5;
    file.write(metrics);
    EXPECT_THAT(loss_svg("run", file.losses()), Not(HasSubstr("averaged")));
    metrics = step(2, 2);
    metrics.val_loss = 2.25;
    metrics.val_loss_ema = 4.125;  // above all others: part of the picture, too
    file.write(metrics);
  }
  const MetricsFile file(path, 2);
  EXPECT_THAT(file.losses().averages, testing::ElementsAre(Pair(2, 4.125)));
  const std::string svg = loss_svg("run", file.losses());
  EXPECT_EQ(tag_fault(svg), "");
  EXPECT_THAT(svg, HasSubstr("validation 2.250"));
  EXPECT_THAT(svg, HasSubstr("of averaged weights 4.125"));
}
