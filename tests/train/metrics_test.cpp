#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include "axonn/base/check.h"
#include "axonn/train/run_log.h"

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

}  // namespace

TEST(Metrics, AResumedFileKeepsEarlierStepsOnceAndDropsThoseThatRunAgain) {
  test::TemporaryPath folder;
  const std::string path = folder / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    for (int i = 1; i <= 5; ++i) file.write(step(i, i));
  }
  test::spill(path, test::slurp(path) + "{\"step\": 6, \"lo");  // a crash in the middle of a line
  MetricsFile file(path, 3);
  EXPECT_THAT(file.losses(), testing::ElementsAre(Pair(1, 1), Pair(2, 2), Pair(3, 3)));
  file.write(step(4, 40));
  const std::string text = test::slurp(path);
  EXPECT_EQ(std::ranges::count(text, '\n'), 4);
  EXPECT_THAT(text, HasSubstr("\"step\": 4, \"loss\": 40"));
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
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {std::filesystem::file_size(path) + 20, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  for (int i : {2, 3}) EXPECT_THAT(file.write(step(i, i)), HasSubstr("File too large"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(file.write_rest(), "");
  EXPECT_EQ(MetricsFile(path, 9).losses().size(), 3u);
  EXPECT_EQ(file.write(step(4, 4)), "");
  const MetricsFile again(path, 9);
  EXPECT_THAT(again.losses(), testing::ElementsAre(Pair(1, 1), Pair(2, 2), Pair(3, 3), Pair(4, 4)));
}

TEST(LossSvg, IsWellFormedForNoStepOneStepAndMany) {
  MetricsFile::Curve none, one{{1, 5.0}}, many, validation{{10, 4.5}};
  for (int i = 1; i <= 5000; ++i) many.emplace_back(i, 5.0 / i);
  for (const auto& losses : {none, one, many})
    for (const auto& checked : {none, validation}) {
      const std::string svg = loss_svg("a < b & c", losses, checked);
      EXPECT_EQ(tag_fault(svg), "");
      EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr("inf")));
      EXPECT_EQ(svg.find("training loss") != svg.npos, !losses.empty());
      EXPECT_LT(svg.size(), 200'000u);
    }
}
