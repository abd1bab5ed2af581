// Steps whose batch the (z, data) coordinates or micro-batches do not divide: the losses and
// gradients of one rank, with padding that counts in nothing.
#include <cmath>
#include <fstream>

#include <gmock/gmock.h>

#include "axonn/data/corpus/batches.h"
#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/network/nn/experts/routing.h"
#include "axonn/plan/measure/compare.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/train/nonfinite.h"
#include "axonn/run/train/training.h"

#include "tests/support/dry_peak.h"
#include "tests/support/runs.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::Lt;
using testing::SizeIs;

namespace {

constexpr int kUnevenSteps = 3;
constexpr double kRoundingOfLosses = 2e-6;  // as in axonn check

Config uneven_batch(std::int64_t batch, std::int64_t micro_batch = 0) {
  Config config = tiny_config("unused");
  config.training.global_batch = batch;
  config.training.micro_batch = micro_batch;
  config.training.deterministic = true;
  config.optimizer.lr = 1e-3;
  return config;
}

GridTrace uneven_trace(const Config& given, const TraceOptions& options = {.steps = kUnevenSteps}) {
  const PreparedRun run = prepared(given);
  GridTrace result;
  run_ranks(run->parallelism.grid().ranks(), [&](Communicator& world) {
    GridTrace mine = trace_run(run, world, make_cpu_backend(1), options);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

/// What differs between the traces by more than rounding; "" if nothing does.
std::string uneven_difference(const GridTrace& one, const GridTrace& other) {
  const Tolerance tolerance = tolerance_of(DType::f32);
  const GridComparison compared = compare(one, other, tolerance);
  return compared.agrees ? "" : comparison_table({compared}, tolerance);
}

/// Grids of 2, 4 and 8 ranks, on which 2, 4 or 8 coordinates of z and data share a batch.
std::vector<GridShape> sharing_grids() {
  if (sanitized()) return {{.z = 2}, {1, 2, 2, 2}};
  return {{.z = 2},     {.data = 2},  {.x = 2, .z = 2}, {.y = 2, .data = 2}, {.z = 4},
          {.data = 4},  {1, 1, 2, 2}, {.z = 8},         {.data = 8},         {1, 1, 2, 4},
          {1, 1, 4, 2}, {2, 1, 2, 2}, {2, 2, 1, 2},     {1, 2, 2, 2}};
}

}  // namespace

TEST(UnevenBatches, HaveTheLossesAndGradientsOfOneRankOnEveryGrid) {
  for (const std::int64_t batch : {1, 3, 5, 7}) {
    const GridTrace one = uneven_trace(uneven_batch(batch));
    for (const GridShape& grid : sharing_grids())
      EXPECT_EQ(uneven_difference(one, uneven_trace(on_grid(uneven_batch(batch), grid))), "")
          << batch << " sequences on " << to_string(grid);
  }
}

TEST(UnevenBatches, AreCutIntoMicroBatchesOfAnySize) {
  const GridTrace one = uneven_trace(uneven_batch(7));
  for (const std::int64_t micro : {1, 2, 3, 4, 5, 6, 7})
    EXPECT_EQ(uneven_difference(one, uneven_trace(uneven_batch(7, micro))), "") << micro;
  for (const GridShape& grid : {GridShape{.z = 2}, GridShape{.x = 2, .data = 3}})
    for (const std::int64_t micro : {1, 2}) {
      Config config = on_grid(uneven_batch(7, micro), grid);
      EXPECT_EQ(uneven_difference(one, uneven_trace(config)), "")
          << to_string(grid) << ' ' << micro;
      config.parallelism.keep_weights = KeepWeights::step;
      config.activation_checkpoint.mode = RecomputeMode::full;
      if (micro == 2) config.parallelism.chunks = 2;
      EXPECT_EQ(uneven_difference(one, uneven_trace(config)), "")
          << to_string(grid) << ' ' << micro;
    }
}

TEST(UnevenBatches, HaveTheSameBitsWithAndWithoutOverlap) {
  for (const GridShape& grid :
       {GridShape{.z = 4}, GridShape{.x = 2, .z = 2, .data = 2}, GridShape{.y = 2, .data = 3}}) {
    const Config config = on_grid(uneven_batch(7, 1), grid);
    const GridTrace with = uneven_trace(config), without = uneven_trace(without_overlap(config));
    EXPECT_EQ(with.losses, without.losses) << to_string(grid);
    EXPECT_EQ(with.norms, without.norms) << to_string(grid);
    EXPECT_EQ(with.parameter_norms, without.parameter_norms) << to_string(grid);
  }
}

TEST(UnevenBatches, OfSharedSequencesHaveTheLossesOfOneRank) {
  for (const std::int64_t batch : {1, 3}) {
    Config config = uneven_batch(batch);
    config.training.seq_len = 256;
    const GridTrace one = uneven_trace(config);
    for (const GridShape& grid :
         {GridShape{.z = 4, .context = 2}, GridShape{.x = 2, .z = 2, .data = 2, .context = 2}})
      EXPECT_EQ(uneven_difference(one, uneven_trace(on_grid(config, grid))), "")
          << batch << " on " << with_factors(grid);
  }
}

namespace {

/// With experts, of which each token has two, every loss that keeps them busy, and a bias.
Config uneven_experts(Config config) {
  config.model.family = ModelFamily::llama;
  config.model.ffn = 48;
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 24;
  config.model.router_bias = true;
  config.training.balance = {.weight = 0.1, .z = 0.01, .bias = 0.01};
  return config;
}

}  // namespace

TEST(UnevenBatches, CountOnlyRealRowsInTheLossesOfExperts) {
  for (const std::int64_t batch : {1, 3, 5}) {
    RoutingRecord choices;  // of one rank, which the grids repeat
    const Config config = uneven_experts(uneven_batch(batch));
    const GridTrace one = uneven_trace(config, {.steps = kUnevenSteps, .record = &choices});
    for (const GridShape& grid :
         {GridShape{.z = 2}, GridShape{.z = 4, .experts = 2}, GridShape{.data = 4},
          GridShape{.x = 2, .z = 2, .experts = 2}, GridShape{1, 2, 2, 2}}) {
      Config cut = on_grid(config, grid);
      EXPECT_EQ(
          uneven_difference(one, uneven_trace(cut, {.steps = kUnevenSteps, .replay = &choices})),
          "")
          << batch << " on " << with_factors(grid);
      cut.activation_checkpoint.mode = RecomputeMode::full;
      cut.training.micro_batch = 1;
      EXPECT_EQ(
          uneven_difference(one, uneven_trace(cut, {.steps = kUnevenSteps, .replay = &choices})),
          "")
          << batch << " on " << with_factors(grid) << ", recomputed";
    }
  }
}

TEST(UnevenBatches, RecordNoChoicesOfPadding) {
  // Padding of the first step has the numbers of sequences 5 to 7, which the second step has.
  RoutingRecord choices;
  const Config config = uneven_experts(uneven_batch(5));
  const GridTrace padded =
      uneven_trace(on_grid(config, {.z = 4}), {.steps = kUnevenSteps, .record = &choices});
  for (const GridShape& grid : {GridShape{}, GridShape{.data = 5}})
    EXPECT_EQ(uneven_difference(padded, uneven_trace(on_grid(config, grid),
                                                     {.steps = kUnevenSteps, .replay = &choices})),
              "")
        << to_string(grid);
}

namespace {

/// Expects two runs to report the same figures of each step, but for rounding.
void expect_same_metrics(const Config& one, const Config& other,
                         const std::vector<std::string>& keys) {
  const auto want = metrics_of(one), got = metrics_of(other);
  ASSERT_EQ(want.size(), got.size());
  for (std::size_t step = 0; step < want.size(); ++step)
    for (const std::string& key : keys) {
      const double value = want[step].at(key);
      EXPECT_NEAR(got[step].at(key).get<double>(), value, 1e-5 * std::abs(value))
          << key << " of step " << step + 1;
    }
}

}  // namespace

TEST(UnevenBatches, ReportTheFiguresOfOneRank) {
  test::TemporaryPath folder;
  Config config = uneven_experts(uneven_batch(5));
  config.training.balance.bias = 0;
  config.training.goldfish = {.k = 3, .h = 2};
  config.training.z_loss = 1e-3;
  config.training.steps = kUnevenSteps;
  config.output.dir = folder / "one";
  train_on_threads(config);
  Config cut = on_grid(config, {.z = 2, .data = 2});
  cut.output.dir = folder / "four";
  train_on_threads(cut);
  expect_same_metrics(config, cut,
                      {"loss", "grad_norm", "tokens", "goldfish_kept", "balance_loss",
                       "router_z_loss", "max_expert_load", "output_z_loss"});
  EXPECT_THAT(test::slurp(cut.output.dir + "/logs/rank-0.log"),
              HasSubstr("step: 5 sequences of 8 tokens and 3 of padding, in micro-batches of 2"));
}

TEST(UnevenBatches, ResumeOnOtherGridsWithTheNextUnseenSequence) {
  test::TemporaryPath folder;
  Config whole = uneven_batch(5);
  whole.output.dir = folder / "whole";
  train_on_threads(whole);
  for (const GridShape& grid : {GridShape{.z = 2}, GridShape{.x = 2, .data = 4}}) {
    Config begun = on_grid(whole, grid), rest = on_grid(whole, {.z = 3});
    begun.output.dir = folder / to_string(grid);
    train_on_threads(begun);
    rest.output.dir = begun.output.dir + " rest";
    rest.checkpoint.resume = begun.output.dir + "/checkpoints/step-5";
    train_on_threads(rest);
    auto want = metrics_of(whole);
    want.erase(want.begin(), want.begin() + 5);
    const auto got = metrics_of(rest);
    EXPECT_THAT(largest_difference(column(got, "loss"), column(want, "loss")),
                Lt(kRoundingOfLosses));
    EXPECT_EQ(column(got, "tokens"), column(want, "tokens"));
    rest.parallelism = begun.parallelism;  // on the same grid, the same bits
    rest.output.dir = begun.output.dir + " again";
    train_on_threads(rest);
    auto same = metrics_of(begun);
    same.erase(same.begin(), same.begin() + 5);
    EXPECT_EQ(column(metrics_of(rest), "loss"), column(same, "loss"));
  }
}

TEST(UnevenBatches, OfARampHaveTheLossesOfOneRank) {
  Config config = uneven_batch(7);
  config.training.batch_ramp = "1 2 9";  // 1, 1, 1, 3, 5, 7 sequences
  const TraceOptions options{.steps = 6};
  const GridTrace one = uneven_trace(config, options);
  for (const GridShape& grid : {GridShape{.z = 2}, GridShape{.x = 2, .z = 2, .data = 2}})
    for (const std::int64_t micro : {0, 1, 2}) {
      Config cut = on_grid(config, grid);
      cut.training.micro_batch = micro;
      EXPECT_EQ(uneven_difference(one, uneven_trace(cut, options)), "")
          << to_string(grid) << ' ' << micro;
    }
}

TEST(UnevenBatches, OfConversationsHaveTheLossesOfOneRank) {
  test::TemporaryPath folder;
  Config config = uneven_batch(5);
  config.training.seq_len = 384;
  config.data = {.jsonl = {folder / "chats.jsonl"}};
  std::ofstream(config.data.jsonl.front()) << synthetic_conversations(60, 1);
  for (const bool experts : {false, true}) {
    const Config given = experts ? uneven_experts(config) : config;
    RoutingRecord choices;
    const GridTrace one = uneven_trace(given, {.steps = kUnevenSteps, .record = &choices});
    for (const GridShape& grid : {GridShape{.z = 2}, GridShape{2, 1, 2, 2}})
      EXPECT_EQ(uneven_difference(one, uneven_trace(on_grid(given, grid),
                                                    {.steps = kUnevenSteps, .replay = &choices})),
                "")
          << to_string(grid);
  }
}

TEST(UnevenBatches, TakeTheMemoryThatADryStepPredictsOnEveryRank) {
  test::TemporaryPath folder;
  for (const GridShape& grid :
       {GridShape{}, GridShape{.z = 2}, GridShape{.x = 2, .z = 2, .data = 2}, GridShape{.data = 8}})
    for (const std::int64_t micro : {0, 1, 2}) {
      if (micro > (5 + grid.z * grid.data - 1) / (grid.z * grid.data)) continue;
      SCOPED_TRACE(to_string(grid) + ", micro-batch " + std::to_string(micro));
      expect_dry_peak(prepared(on_grid(uneven_batch(5, micro), grid)));
    }
  Config ramp = on_grid(uneven_batch(8), {.z = 2});
  ramp.training.batch_ramp = "3 5 3";  // one step is uneven
  ramp.training.micro_batch = 1;
  expect_dry_peak(prepared(ramp));
}

TEST(UnevenBatches, AreRepeatedToTheBitAndOnAnotherGridFromTheStepThatWasSaved) {
  test::TemporaryPath folder;
  const Config config = resolved(on_grid(uneven_batch(5, 1), {.z = 2, .data = 2}));
  StepResult want;
  run_ranks(4, [&](Communicator& world) {
    Training training(prepared(config), world, make_cpu_backend(1));
    training.model.initialise();
    training.run(0);
    const StepInput input = training.input(1);
    save_step(training, input, folder / "saved",
              {{"config.toml", config_toml(config, Origins())}, {"state.json", "{}"}});
    const StepResult result = training.step.run(training.model.context(), input);
    if (world.rank() == 0) want = result;
  });
  const auto batch = nlohmann::json::parse(test::slurp(folder / "saved/step-1/batch.json"));
  EXPECT_THAT(batch.at("samples"), SizeIs(5)) << "padding was saved";
  const auto again = [&](const Config& with) {
    StepResult result;
    run_ranks(with.parallelism.grid().ranks(), [&](Communicator& world) {
      const Replay mine = replay(prepared(with), folder / "saved", world);
      if (world.rank() == 0) result = mine.result;
    });
    return result;
  };
  const Config same = config_of_step(folder / "saved");
  EXPECT_EQ(again(same).loss, want.loss);
  EXPECT_EQ(again(same).grad_norm, want.grad_norm);
  Config other = on_grid(same, {.x = 2, .data = 3});
  other.training.micro_batch = 0;
  EXPECT_THAT(std::abs(again(other).loss / want.loss - 1), Lt(kRoundingOfLosses));
}
