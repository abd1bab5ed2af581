#include "axonn/plan/measure/scaling.h"

#include <regex>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"

#include "tests/support/runs.h"
#include "tests/support/svg.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

std::string refusal_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

Config base() { return tiny_config("unused"); }

BenchReport measured(const GridShape& grid, int threads, double tokens_per_s) {
  BenchReport report{.grid = grid, .threads = threads, .global_batch = 12};
  report.step_s_each = {1};
  report.step_s = 96 / tokens_per_s;
  report.spread = spread_of({report.step_s});
  report.exposed_comm_s = report.step_s / 4;
  report.tokens_per_s = tokens_per_s;
  report.flops = {.model = 1e9, .hardware = 1e9, .narayanan = 2e9};
  report.product_peak = 1e12;
  return report;
}

}  // namespace

TEST(Scaling, WeakScalesTheBatchWithTheRanksAndStrongKeepsIt) {
  const std::vector<GridShape> grids{{2, 1, 1, 1}, {2, 1, 2, 1}, {2, 2, 1, 3}};
  std::vector<std::int64_t> weak, strong, micro;
  for (const PreparedRun& run : scaling_runs(base(), grids, ScalingKind::weak)) {
    weak.push_back(run->training.global_batch);
    micro.push_back(run->training.micro_batch);
  }
  for (const PreparedRun& run : scaling_runs(base(), grids, ScalingKind::strong))
    strong.push_back(run->training.global_batch);
  EXPECT_THAT(weak, ElementsAre(12, 24, 72));
  EXPECT_THAT(micro, ElementsAre(12, 12, 24))
      << "micro_batch of 0 is resolved to the share of each (z, data)";
  EXPECT_THAT(strong, ElementsAre(12, 12, 12));
}

TEST(Scaling, AGridThatDoesNotFitIsNamedWithOnesThatDo) {
  const auto refusal = [](const GridShape& grid, ScalingKind kind = ScalingKind::strong) {
    return refusal_of([&] { scaling_runs(base(), {{2, 1, 1, 1}, grid}, kind); });
  };
  EXPECT_THAT(refusal({1, 5, 1, 1}), AllOf(StartsWith("grid 1,5,1,1: "),
                                           HasSubstr("y must be one of 1, 2, 3, 4, 6, 8, 12, 24")));
  EXPECT_EQ(refusal({1, 1, 5, 1}), "accepted");
  EXPECT_EQ(refusal({3, 1, 1, 1}, ScalingKind::weak), "accepted");
  Config odd = base();
  odd.training.global_batch = 3;
  EXPECT_THAT(refusal_of([&] {
                scaling_runs(odd, {{2, 1, 1, 1}, {1, 1, 1, 1}}, ScalingKind::weak);
              }),
              HasSubstr("set it to a multiple of 2"));
  EXPECT_THAT(refusal_of([] { scaling_runs(base(), {}, ScalingKind::weak); }),
              HasSubstr("--grids or --ranks"));
}

TEST(Scaling, RankCountsChangeOneAxisOfTheConfigsGrid) {
  EXPECT_THAT(grids_of_ranks({2, 1, 3, 1}, {6, 12, 24}, Axis::z),
              ElementsAre(GridShape{2, 1, 3, 1}, GridShape{2, 1, 6, 1}, GridShape{2, 1, 12, 1}));
  EXPECT_THAT(grids_of_ranks({2, 1, 1, 1}, {2, 4}, Axis::data),
              ElementsAre(GridShape{2, 1, 1, 1}, GridShape{2, 1, 1, 2}));
  EXPECT_THAT(refusal_of([] {
                grids_of_ranks({2, 1, 3, 1}, {6, 7}, Axis::data);
              }),
              HasSubstr("give multiples of 6"));
  EXPECT_THAT(refusal_of([] { grids_of_ranks({}, {0}, Axis::data); }), HasSubstr("--ranks 0"));
}

TEST(Scaling, EfficiencyIsPerCoreAndRanksCannotHaveMoreCoresThanTheMachine) {
  const std::vector<BenchReport> reports{measured({}, 1, 100), measured({2, 1, 1, 1}, 1, 150),
                                         measured({1, 2, 2, 1}, 1, 180)};
  const auto efficiencies = [&](int machine_cores) {
    std::vector<double> all;
    for (const ScalingPoint& point : scaling_points(reports, machine_cores))
      all.push_back(point.efficiency);
    return all;
  };
  EXPECT_THAT(efficiencies(2), ElementsAre(1, 0.75, 0.9)) << "four ranks share two cores";
  EXPECT_THAT(efficiencies(0), ElementsAre(1, 0.75, 0.45)) << "each rank has its own cores";
  // One rank with two threads uses both cores, so its efficiency is measured against two cores.
  const auto shared = scaling_points({measured({}, 2, 100), measured({2, 1, 1, 1}, 1, 95)}, 2);
  EXPECT_DOUBLE_EQ(shared[1].efficiency, 0.95);
}

TEST(Scaling, TableJsonAndPictureShowEveryPoint) {
  const auto points = scaling_points({measured({}, 1, 100), measured({2, 1, 1, 1}, 1, 150)}, 2);
  EXPECT_EQ(scaling_header().size(), scaling_row(points[1]).size())
      << "header and rows have different widths";
  EXPECT_THAT(scaling_row(points[1]),
              AllOf(StartsWith("2,1,1,1 "), HasSubstr(" 640.0 "), HasSubstr(" 150 "),
                    HasSubstr("75.0 %"), HasSubstr("160.0 ms 25 %")));
  const auto json = nlohmann::json::parse(scaling_json(ScalingKind::weak, points));
  EXPECT_EQ(json["scaling"], "weak");
  EXPECT_EQ(json["points"][1]["grid"]["x"], 2);
  EXPECT_EQ(json["points"][1]["efficiency"], 0.75);
  EXPECT_EQ(json["points"][1]["ideal_tokens_per_s"], 200);
  const std::string svg = scaling_svg(ScalingKind::weak, "a model", points);
  EXPECT_EQ(tag_fault(svg), "");
  EXPECT_THAT(svg, AllOf(HasSubstr("weak scaling: a model"), HasSubstr("1,1,1,1: 100 (100 %)"),
                         HasSubstr("2,1,1,1: 150 (75 %)"), HasSubstr(">ranks<")));
}

TEST(Scaling, TheAxesOfTheChartFitThePoints) {
  ScalingChart chart{.title = "t", .counted = "ranks", .best = "b", .ideal = "i"};
  for (const int count : {8, 64, 256})
    chart.marks.push_back(
        {.count = count, .tokens_per_s = 1100.0 * count, .ideal = 1200.0 * count});
  const std::string svg = to_svg(chart);
  std::vector<double> heights;
  const std::regex dot(R"re(<circle cx="[0-9.]+" cy="([0-9.]+)")re");
  for (std::sregex_iterator at(svg.begin(), svg.end(), dot), end; at != end; ++at)
    heights.push_back(std::stod((*at)[1]));
  ASSERT_EQ(heights.size(), 3u);
  constexpr double kFrame = 314;  // pixels
  EXPECT_GT(heights.back() - heights.front(), 0.7 * kFrame);
}

TEST(Scaling, AChartOfOnePointIsValid) {
  const std::string svg =
      scaling_svg(ScalingKind::strong, "t", scaling_points({measured({}, 1, 100)}, 1));
  EXPECT_EQ(tag_fault(svg), "");
  EXPECT_THAT(svg, testing::Not(HasSubstr("nan")));
}
