#include "axonn/app/board/run_rows.h"

#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>

#include "axonn/foundation/base/files.h"

#include "tests/app/board/made_up_run.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::Pair;

namespace {

const std::vector<ValueRange>& series(const RunPoints& points, const std::string& name) {
  const auto found = std::ranges::find(points.names, name);
  AXONN_CHECK(found != points.names.end(), "no series ", name);
  return points.series[found - points.names.begin()];
}

std::vector<float> means(const RunPoints& points, const std::string& name) {
  std::vector<float> values;
  for (const ValueRange& range : series(points, name)) values.push_back(range.mean);
  return values;
}

TEST(RunRow, HasTheNumbersOfALineAndTheWaitsOfEachAxis) {
  const auto row = parse_run_row(
      R"({"step": 7, "loss": null, "mfu": null, "skipped": true, "host": "a", "list": [1],)"
      R"( "exposed_comm_ms_by": {"z all_gather": 1, "z reduce_scatter": 2.5, "x all_reduce": 4}})");
  ASSERT_TRUE(row);
  EXPECT_EQ(row->step, 7);
  ASSERT_EQ(row->values.size(), 4U);
  EXPECT_EQ(row->values[0].first, "loss");
  EXPECT_TRUE(std::isnan(row->values[0].second));
  EXPECT_THAT(row->values[1], Pair("skipped", 1));
  EXPECT_THAT(row->values[2], Pair("exposed_comm_ms/z", 3.5));
  EXPECT_THAT(row->values[3], Pair("exposed_comm_ms/x", 4));
}

TEST(RunRow, OfAStepWithoutTargetsHasNoLossRatherThanOneThatIsNotFinite) {
  const auto row = parse_run_row(R"({"step": 7, "loss": null, "lr": 0.5, "no_targets": true})");
  ASSERT_TRUE(row);
  EXPECT_THAT(row->values, testing::ElementsAre(Pair("lr", 0.5), Pair("no_targets", 1)));
}

TEST(RunRow, IsEmptyForADamagedLine) {
  for (const char* line : {"", "{", R"({"step": 1, "lo)", R"({"loss": 1})", R"({"step": 1.5})",
                           R"({"a": {"step": 1}})", R"([{"step": 1}])", "null", "\xff\xfe"})
    EXPECT_FALSE(parse_run_row(line)) << line;
}

class RunRowsTest : public testing::Test {
 protected:
  test::TemporaryPath folder_;
  std::string file_ = (make_folders(folder_ / ""), folder_ / "metrics.jsonl");
  RunRows rows_{file_};
};

TEST_F(RunRowsTest, AreThoseThatWereAddedSinceTheLastRead) {
  EXPECT_FALSE(rows_.read(1));
  EXPECT_EQ(rows_.rows(), 0) << "there is no file yet";
  append(file_, step_line(1, "5") + step_line(2, "4") + R"({"step": 3, "lo)");
  EXPECT_FALSE(rows_.read(1));
  EXPECT_EQ(rows_.rows(), 2) << "the third line is half written";
  append(file_, "ss\": 3}\n");
  rows_.read(1);
  EXPECT_EQ(rows_.rows(), 3);
  EXPECT_EQ(rows_.damaged(), 0);
  EXPECT_EQ(rows_.generation(), 1);
  EXPECT_THAT(means(rows_.points(0, 0), "loss"), ElementsAre(5, 4, 3));
  const RunPoints added = rows_.points(1, 2);
  EXPECT_EQ(added.first, 1);
  EXPECT_THAT(added.last_step, ElementsAre(2, 3));
}

TEST_F(RunRowsTest, LeaveOutDamagedLinesAndStepsThatRepeat) {
  append(file_, step_line(1) + "garbage\n" + step_line(2) + step_line(2) + step_line(1) +
                    std::string(3 << 20, 'x') + "\n" + step_line(3));
  while (rows_.read(1)) {
  }
  EXPECT_THAT(rows_.points(0, 0).first_step, ElementsAre(1, 2, 3));
  EXPECT_EQ(rows_.damaged(), 3) << "and a line too long to be one";
}

TEST_F(RunRowsTest, BeginAnewIfTheFileWasReplacedShortenedOrRewritten) {
  append(file_, step_line(1) + step_line(2) + step_line(3));
  rows_.read(1);
  // A resumed run: the lines up to its checkpoint in a new file, and more.
  write_file_atomically(file_, step_line(1) + step_line(2) + step_line(3, "9") + step_line(4));
  rows_.read(1);
  EXPECT_EQ(rows_.generation(), 2);
  EXPECT_THAT(means(rows_.points(0, 0), "loss"), ElementsAre(2.5, 2.5, 9, 2.5));
  std::filesystem::resize_file(file_, step_line(1).size());
  rows_.read(1);
  EXPECT_EQ(rows_.generation(), 3);
  EXPECT_EQ(rows_.rows(), 1);
  std::filesystem::resize_file(file_, 0);  // the same file with another run
  append(file_, step_line(1, "7") + step_line(2, "8"));
  rows_.read(1);
  EXPECT_THAT(means(rows_.points(0, 0), "loss"), ElementsAre(7, 8));
  std::filesystem::remove(file_);
  rows_.read(1);
  EXPECT_EQ(rows_.rows(), 0);
}

TEST_F(RunRowsTest, KeepLossesThatAreNotFiniteAsGaps) {
  append(file_, step_line(1) + step_line(2, "null") + step_line(3));
  rows_.read(1);
  EXPECT_EQ(rows_.not_finite(), 1);
  EXPECT_EQ(series(rows_.points(0, 0), "loss")[1].count, 0U);
  EXPECT_NEAR(rows_.seconds(), 0.3, 1e-9);
}

TEST_F(RunRowsTest, CountAxesThatALineLeavesOutAsZero) {
  append(file_,
         step_line(1, "1", R"(, "exposed_comm_ms_by": {"z all_gather": 3})") + step_line(2, "1"));
  rows_.read(1);
  EXPECT_THAT(means(rows_.points(0, 0), "exposed_comm_ms/z"), ElementsAre(3, 0));
}

TEST_F(RunRowsTest, OfAMillionStepsAreThinnedWithinBounds) {
  constexpr std::int64_t kSteps = 1'000'000, kSpike = 654'321;
  {
    std::ofstream out(file_);
    for (std::int64_t step = 1; step <= kSteps; ++step)
      out << R"({"step": )" << step << R"(, "loss": )" << (step == kSpike ? 99 : step % 2) << "}\n";
  }
  int reads = 1;
  while (rows_.read(0.01)) ++reads;
  EXPECT_GT(reads, 1) << "a read takes a bounded time";
  ASSERT_EQ(rows_.rows(), kSteps);

  const RunPoints all = rows_.points(0, 0);
  EXPECT_EQ(all.width, 512);
  ASSERT_EQ(all.first_step.size(), 1954U);  // of at most kMostSent
  EXPECT_EQ(all.first_step.front(), 1);
  EXPECT_EQ(all.last_step.back(), kSteps);
  const ValueRange spike = series(all, "loss")[(kSpike - 1) / 512];
  EXPECT_EQ(spike.high, 99);
  EXPECT_EQ(spike.low, 0);
  EXPECT_EQ(spike.count, 512U);
  EXPECT_NEAR(spike.mean, 0.5 + 98.0 / 512, 1e-3);

  const RunPoints part = rows_.points_between(kSpike - 2, kSpike + 2);
  EXPECT_EQ(part.width, 1) << "read again from the file";
  EXPECT_THAT(means(part, "loss"), ElementsAre(1, 0, 99, 0, 1));
  EXPECT_EQ(part.first_step.front(), kSpike - 2);
  const RunPoints half = rows_.points_between(1, kSteps / 2);
  EXPECT_LE(half.first_step.size(), RunRows::kMostSent);
  EXPECT_GE(half.first_step.size(), RunRows::kMostSent / 3);
  EXPECT_TRUE(rows_.points_between(kSteps + 1, kSteps + 9).first_step.empty());

  const RunPoints added = rows_.points(512, 1954);
  EXPECT_EQ(added.first, 1953) << "the last point may have grown";
  EXPECT_EQ(added.first_step.size(), 1U);
}

TEST(ThinnedRows, HoldNoMoreThanTheyMay) {
  ThinnedRows rows(8);
  for (int step = 1; step <= 100; ++step) {
    RunRow row{.step = step, .values = {}};
    for (int i = 0; i < 100; ++i) row.values.emplace_back("s" + std::to_string(i), step);
    rows.add(row, step * 10, step);
    EXPECT_LE(rows.size(), 8U);
  }
  EXPECT_EQ(rows.width(), 16);
  const RunPoints points = rows.joined(0, rows.size(), 16);
  EXPECT_EQ(points.names.size(), ThinnedRows::kMostSeries);
  EXPECT_THAT(points.first_step, ElementsAre(1, 17, 33, 49, 65, 81, 97));
  EXPECT_EQ(rows.offset(2), 330);
  EXPECT_EQ(points.series[0][6], (ValueRange{.low = 97, .high = 100, .mean = 98.5, .count = 4}));
}

}  // namespace
