#include "axonn/plan/planner/report.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/network/model/counts.h"
#include "axonn/plan/planner/estimate.h"

#include "tests/plan/planner/configs.h"
#include "tests/plan/planner/machines.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::Gt;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace {

PlanReport report_on(int devices, double memory_bytes = 1e12) {
  PlanReport asked{.model = "small",
                   .run = prepared(small_gpt()),
                   .machine = round_machine(),
                   .options = {.devices = devices},
                   .result = {},
                   .tokens = 1000000000};
  asked.machine.memory_bytes = memory_bytes;
  return make_plans(asked);
}

}  // namespace

TEST(PlanReport, KeepsTheReserveFreeAndSaysSo) {
  PlanReport asked = report_on(8);
  const double first = static_cast<double>(asked.result.plans.front().memory_bytes);
  asked.machine.memory_bytes = 1.5 * first;
  asked.machine.reserve_bytes = 0.6 * first;
  const PlanReport report = make_plans(asked);
  for (const Plan& plan : report.result.plans) EXPECT_LE(plan.memory_bytes, 0.9 * first);
  EXPECT_THAT(to_text(report), HasSubstr("is kept for driver, communicators and libraries\n"));
}

TEST(PlanReport, JsonHasThePlansBestFirstWithAllDocumentedKeys) {
  const PlanReport report = report_on(8);
  const auto json = nlohmann::json::parse(to_json(report));
  ASSERT_EQ(json.at("plans").size(), 5u);
  double before = 0;
  for (const auto& plan : json.at("plans")) {
    const auto& grid = plan.at("grid");
    EXPECT_EQ(grid.at("x").get<int>() * grid.at("y").get<int>() * grid.at("z").get<int>() *
                  grid.at("data").get<int>(),
              8);
    const double seconds = plan.at("predicted_s");
    EXPECT_GE(seconds, before);
    before = seconds;
    EXPECT_NEAR(plan.at("compute_s").get<double>() + plan.at("exposed_comm_s").get<double>(),
                seconds, 1e-9 * seconds);
    EXPECT_GT(plan.at("memory_bytes").get<std::int64_t>(), 0);
    EXPECT_GT(plan.at("micro_batch").get<int>(), 0);
    EXPECT_THAT(plan.at("activation_checkpoint").get<std::string>(),
                testing::AnyOf("none", "full"));
    // Model flops over the time, over 8 devices of 2e14.
    const double flops = 32 * 512 * model_flops_per_token(report.run->model, 512);
    EXPECT_NEAR(plan.at("pflops").get<double>(), flops / seconds * 1e-15,
                1e-9 * flops / seconds * 1e-15);
    EXPECT_NEAR(plan.at("percent_of_peak").get<double>(), 100 * flops / seconds / 1.6e15, 1e-6);
    EXPECT_NEAR(plan.at("days").get<double>(), 1e9 / (32 * 512) * seconds / 86400, 1e-6);
  }
  EXPECT_EQ(json.at("flops_convention"), "model");
}

TEST(PlanReport, HasNoPercentOfAnUnknownPeak) {
  PlanReport report = report_on(1);
  report.machine.advertised_flops_per_s = 0;
  EXPECT_TRUE(
      nlohmann::json::parse(to_json(report)).at("plans").at(0).at("percent_of_peak").is_null());
  report = report_on(1);
  report.run = report.run.with([](Config& config) {
    config.training.dtype = DType::f32;  // the peak is bf16's
  });
  EXPECT_EQ(flops_of(report, report.result.plans.front()).percent_of_peak, 0);
}

TEST(PlanReport, TextHasEachPlanThePartsOfTheTimeAndTheFlopConvention) {
  const PlanReport report = report_on(8);
  const std::string text = to_text(report);
  for (const Plan& plan : report.result.plans) EXPECT_THAT(text, HasSubstr(to_string(plan.grid)));
  EXPECT_THAT(text, AllOf(HasSubstr("products"), HasSubstr("convention model"),
                          HasSubstr("Narayanan"), HasSubstr("days"), HasSubstr("small: ")));
}

TEST(PlanReport, SaysHowManySequencesOfAStepArePadding) {
  PlanReport asked = report_on(8);
  EXPECT_THAT(to_text(asked), Not(HasSubstr("padding")));
  asked.options.fixed = {1, 1, 4, 2, 1, 1};
  asked.run = asked.run.with([](Config& config) { config.training.global_batch = 5; });
  EXPECT_THAT(to_text(make_plans(asked)),
              HasSubstr("(1 micro-batch of 1 sequence on each of 8 (z, data) coordinates; in all 3 "
                        "are padding)"));
}

TEST(PlanReport, HasTheFormulaOfNarayananForDenseModelsAlone) {
  PlanReport report = report_on(1);
  EXPECT_GT(
      nlohmann::json::parse(to_json(report)).at("plans").at(0).at("narayanan_pflops").get<double>(),
      0);
  report.run = report.run.with([](Config& config) {
    config.model.experts = 4;
    config.model.experts_per_token = 2;
    config.model.expert_ffn = 64;
  });
  EXPECT_THAT(to_text(report), HasSubstr("hardware (Narayanan's formula, the AxoNN paper's, is"));
  const auto plan = nlohmann::json::parse(to_json(report)).at("plans").at(0);
  EXPECT_TRUE(plan.at("narayanan_pflops").is_null());
  EXPECT_TRUE(plan.at("narayanan_percent_of_peak").is_null());
}

TEST(PlanReport, SaysWhatIsComputedAgainAndHowARunChoosesLikewise) {
  PlanReport report = report_on(1, 2.5e9);
  ASSERT_NE(report.result.plans.at(0).recompute, RecomputeMode::none);
  EXPECT_THAT(to_text(report), AllOf(HasSubstr("\nRecomputation: "), HasSubstr(" again"),
                                     HasSubstr("set activation_checkpoint.budget = \"2.5GB\"\n")));
  report = report_on(1);
  EXPECT_THAT(to_text(report), Not(HasSubstr("Recomputation: ")));
}

TEST(PlanReport, SaysHowFastADeviceIsAndWhereTheFiguresComeFrom) {
  PlanReport report = report_on(8);
  report.machine.source = "a data sheet";
  report.machine.fitted = "nothing";
  report.machine.error = 0.2;
  report.machine.slower = 0.6;
  report.assumed = {"bf16 (--training.dtype)"};
  const double rate = report.tokens_per_s_per_device(report.result.plans[0]);
  EXPECT_DOUBLE_EQ(8 * rate * report.result.plans[0].time.step_s, 32 * 512);
  const std::string text = to_text(report);
  EXPECT_THAT(text, AllOf(HasSubstr("tok/s/device"), HasSubstr("a data sheet; nothing is fitted\n"),
                          HasSubstr("a step is expected to take 20 % less to 60 % more\n"),
                          HasSubstr("assumed   bf16 (--training.dtype)\n"),
                          HasSubstr(" tokens/s a device\n")));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_DOUBLE_EQ(json.at("plans").at(0).at("tokens_per_s_per_device"), rate);
  EXPECT_EQ(json.at("figures").at("source"), "a data sheet");
  EXPECT_EQ(json.at("figures").at("fitted"), "nothing");
  EXPECT_EQ(json.at("error"), 0.2);
  EXPECT_EQ(json.at("slower"), 0.6);
  const double step = json.at("plans").at(0).at("predicted_s");
  EXPECT_DOUBLE_EQ(json.at("plans").at(0).at("predicted_range_s").at(0), step * 0.8);
  EXPECT_DOUBLE_EQ(json.at("plans").at(0).at("predicted_range_s").at(1), step * 1.6);
  report.machine.fitted = "jitter_s, to two steps";
  EXPECT_THAT(to_text(report), HasSubstr("; fitted: jitter_s, to two steps\n"));
  EXPECT_THAT(scaling_text(ScalingKind::strong, {report}), HasSubstr("fitted: jitter_s"));
}

TEST(PlanReport, ShowsThePartsOfTheMemoryAgainstThatOfADevice) {
  const PlanReport report = report_on(8);
  const auto json = nlohmann::json::parse(to_json(report));
  std::int64_t sum = 0;
  for (const auto& [use, bytes] : json.at("memory_bytes_by").items())
    sum += bytes.get<std::int64_t>();
  EXPECT_EQ(sum, report.result.plans[0].memory_bytes);
  EXPECT_THAT(to_text(report), AllOf(HasSubstr("Memory of a device: "),
                                     HasSubstr(" of 1000.0 GB ("), HasSubstr("%  activations\n")));
}

TEST(PlanReport, TheScalingPictureNamesRanksThatShareSequences) {
  PlanReport report = report_on(4);
  report.result.plans[0].grid = {.z = 4, .context = 2};
  EXPECT_THAT(scaling_svg(ScalingKind::strong, {report}), HasSubstr("1,1,4,1 (context 2)"));
}

TEST(PlanReport, NamesANumberOfDevicesThatFitsIfThisOneDoesNot) {
  const PlanReport report = report_on(2, 0.6e9);
  ASSERT_TRUE(report.result.plans.empty());
  ASSERT_GT(report.devices_that_fit, 2);
  EXPECT_THAT(to_text(report),
              AllOf(HasSubstr("Does not fit on 2 devices: grid "), HasSubstr("0.6 GB"),
                    HasSubstr("It fits on " + std::to_string(report.devices_that_fit))));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_TRUE(json.at("plans").empty());
  EXPECT_EQ(json.at("devices_that_fit"), report.devices_that_fit);
}

TEST(PlanReport, ExplainsASlowerPlanByTheLargestPartsOfTheDifference) {
  Plan best, other;
  best.time = {.step_s = 10, .compute_s = 10, .compute_by = {{"products", 10}}};
  other.time = {.step_s = 11,
                .compute_s = 10.1,
                .compute_by = {{"products", 10.1}},
                .exposed_by = {{"z reduce_scatter", 0.9}}};
  EXPECT_EQ(why_behind(best, other), "+10.0 %: 0.9 s more of exposed z reduce_scatter");
  other.time = {.step_s = 13, .compute_s = 13, .compute_by = {{"products", 13}}};
  other.recompute = RecomputeMode::full;
  EXPECT_EQ(why_behind(best, other), "+30.0 %: 3 s more of products (recomputed)");
}

TEST(PlanReport, OverlapSavesTimeIfThereIsCommunicationToHide) {
  Config config = small_gpt();
  const Plan plan{
      .grid = {.z = 8},
      .micro_batch = 4,
      .time = predict(planned(prepared(config), {.grid = {.z = 8}, .micro_batch = 4, .time = {}}),
                      round_machine())
                  .time};
  const auto saved = savings(prepared(config), round_machine(), plan);
  EXPECT_THAT(saved, Contains(AllOf(Field(&Saving::setting, "overlap_weights"),
                                    Field(&Saving::seconds, Gt(0)))));
  EXPECT_THAT(saved, Not(Contains(Field(&Saving::setting, "overlap_data")))) << "Gd is 1";
  EXPECT_THAT(saved, Not(Contains(Field(&Saving::setting, "chunks = 2")))) << "Gx and Gy are 1";
}

TEST(PlanReport, SaysThatAPlanKeepsWeightsAndWhatThatSaves) {
  PlanReport asked{.model = "small", .run = prepared(small_gpt()), .machine = round_machine()};
  asked.machine.device_bytes_per_s = 2e9;  // gathers take longer than the computation
  asked.options.devices = 4;
  asked.options.micro_batch = 1;
  asked.options.fixed.z = 4;
  const PlanReport report = make_plans(asked);
  EXPECT_THAT(to_text(report), AllOf(HasSubstr("Weights gathered once a step: in a run, set "
                                               "parallelism.keep_weights = \"step\"\n"),
                                     HasSubstr("by parallelism.keep_weights = step")));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json.at("plans").at(0).at("keep_weights"), "step");
  EXPECT_GT(json.at("saves_s").at("keep_weights = step"), 0);
  asked.options.keep_weights = false;
  EXPECT_THAT(to_text(make_plans(asked)), Not(HasSubstr("keep_weights")));
}

TEST(PlanReport, ScalingHasALineAndAPointForEachNumberThatFits) {
  const std::vector<PlanReport> reports = {report_on(4, 1.2e9), report_on(8, 1.2e9),
                                           report_on(1, 1.2e9)};
  const std::string text = scaling_text(ScalingKind::strong, reports);
  EXPECT_THAT(text, AllOf(HasSubstr("100.0 %"), HasSubstr("does not fit")));
  const auto json = nlohmann::json::parse(scaling_json(ScalingKind::strong, reports));
  EXPECT_EQ(json.at("scaling"), "strong");
  ASSERT_EQ(json.at("points").size(), 3u);
  EXPECT_EQ(json.at("points").at(1).at("devices"), 8);
  const std::string svg = scaling_svg(ScalingKind::strong, reports);
  EXPECT_THAT(svg,
              AllOf(StartsWith("<svg"), HasSubstr(to_string(reports[1].result.plans[0].grid))));
}
