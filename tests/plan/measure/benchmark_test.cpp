#include "axonn/plan/measure/benchmark.h"

#include <numeric>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"

#include "tests/support/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

BenchReport bench_on_threads(const Config& given) {
  const Config config = resolved(given);
  BenchReport report;
  run_ranks(config.parallelism.grid().ranks(), [&](Communicator& world) {
    const BenchReport mine = benchmark(prepared(config), world);
    if (world.rank() == 0) report = mine;
  });
  return report;
}

}  // namespace

TEST(Bench, ReportsTheLastEightOfTenStepsAndPredictsMemoryToTheByte) {
  Config config = on_grid(tiny_config("unused"), {1, 1, 2, 1});
  config.training.dtype = DType::bf16;
  const BenchReport report = bench_on_threads(config);
  ASSERT_EQ(report.step_s_each.size(), 10u);
  const std::vector<double> last(report.step_s_each.begin() + 2, report.step_s_each.end());
  EXPECT_DOUBLE_EQ(report.step_s, std::accumulate(last.begin(), last.end(), 0.0) / 8);
  EXPECT_EQ(report.spread.min, std::ranges::min(last));
  EXPECT_EQ(report.spread.max, std::ranges::max(last));
  EXPECT_DOUBLE_EQ(report.tokens_per_s, 12 * 8 / report.step_s);
  EXPECT_GT(report.product_peak, 0);

  EXPECT_GT(report.memory.measured_bytes, 0);
  EXPECT_EQ(report.memory.predicted_bytes, report.memory.measured_bytes);
  EXPECT_EQ(report.memory.largest_difference, 0);
  EXPECT_EQ(std::accumulate(report.memory.parts.begin(), report.memory.parts.end(), 0LL),
            report.memory.measured_bytes);
  EXPECT_THAT(to_text(report), HasSubstr("exact on every rank"));
  for (const auto& [kind, seconds] : report.exposed_by)
    EXPECT_LE(seconds, report.step_s) << kind << " waited longer than a step takes";
}

TEST(Bench, ReportsTheErrorOfAMemoryPrediction) {
  BenchReport report;
  report.step_s = 1;
  report.memory = {.measured_bytes = 4096, .predicted_bytes = 3072, .largest_difference = 1024};
  EXPECT_THAT(to_text(report), AllOf(HasSubstr("4.00KiB on the fullest rank, predicted 3.00KiB"),
                                     HasSubstr("off by up to 1.00KiB")));
}

TEST(Bench, PercentOfAdvertisedPeakAppearsOnlyIfAPeakIsSet) {
  BenchReport report;
  report.step_s = 2;
  report.flops = {.model = 1e12, .hardware = 1e12, .narayanan = 2e12};
  report.product_peak = 1e12;
  EXPECT_THAT(to_text(report), Not(HasSubstr("advertised")));
  EXPECT_TRUE(nlohmann::json::parse(to_json(report))["percent_of_advertised_peak"].is_null());
  report.advertised_peak = 4e12;
  EXPECT_THAT(to_text(report), HasSubstr("12.5 % of the advertised peak, 4.000 Tflop/s"));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["percent_of_advertised_peak"], 12.5);
  EXPECT_EQ(json["percent_of_product_peak"], 50);
  EXPECT_EQ(json["narayanan_tflops"], 1);
}

TEST(Bench, SaysWhereTheFormulaOfNarayananDoesNotApply) {
  BenchReport report;
  report.step_s = 1;
  EXPECT_THAT(to_text(report), HasSubstr("Narayanan         does not apply (the paper's formula"));
  EXPECT_TRUE(nlohmann::json::parse(to_json(report))["narayanan_tflops"].is_null());
  report.flops.narayanan = 1e12;
  EXPECT_THAT(to_text(report), HasSubstr("Narayanan         1.000 Tflop/s (the paper's formula"));
}

TEST(Bench, SpreadUsesTheSampleStandardDeviation) {
  const Spread even = spread_of({4, 1, 3, 2});
  EXPECT_EQ(even.min, 1);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(even.max, 4);
  EXPECT_DOUBLE_EQ(even.deviation * even.deviation, 5.0 / 3);
  EXPECT_EQ(spread_of({7}).deviation, 0);
  EXPECT_EQ(spread_of({9, 1, 5}).median, 5);
  EXPECT_THROW(spread_of({}), Error);
}
