// Runs of models with experts: memory, padding, metrics, checkpoints, what is refused.
#include <fstream>

#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/network/nn/experts/routing.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/train/expert_balance.h"
#include "axonn/run/train/training.h"

#include "tests/support/dry_peak.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

/// tiny_config() with 4 experts in each layer, two for each token.
Config expert_config(const std::string& folder) {
  Config config = tiny_config(folder);
  config.model.family = ModelFamily::llama;
  config.model.ffn = 48;
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 24;
  config.training.balance = {.weight = 0.01, .z = 0.001};
  return config;
}

/// Row r goes to experts 2r and 2r + 1, modulo 4: all are equally busy.
void choose_evenly(RoutingRecord& choices, const Config& config) {
  std::vector<std::int32_t> ids;
  for (std::int64_t row = 0; row < 10 * config.training.global_batch * config.training.seq_len;
       ++row)
    for (const std::int64_t id : {0, 1})
      ids.push_back(static_cast<std::int32_t>(2 * (row % 2) + id));
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) choices.put(layer, 0, 2, ids);
}

TEST(ExpertRuns, DryPeakEqualsARealRunsWithEquallyBusyExperts) {
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{.z = 2, .experts = 2},
                               GridShape{.x = 2, .y = 2, .z = 4, .experts = 2}})
    for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::full}) {
      Config config = on_grid(expert_config(folder / "run"), grid);
      config.activation_checkpoint.mode = mode;
      if (mode == RecomputeMode::full) config.parallelism.keep_weights = KeepWeights::step;
      if (grid.experts > 1) config.model.router = RouterKind::sigmoid;
      config = resolved(config);
      RoutingRecord choices;
      choose_evenly(choices, config);
      expect_dry_peak(prepared(config), [&](Training& training) {
        training.step.term<ExpertBalance>()->routing().set_records(&choices, nullptr);
      });
    }
}

TEST(ExpertRuns, PlansOfBusyExpertsTakeMoreMemory) {
  Config config = resolved(on_grid(expert_config("unused"), GridShape{.z = 4, .experts = 4}));
  const std::int64_t even = dry_step(prepared(config), 0).memory.peak_bytes;
  config.training.balance.expected_load = 2;
  EXPECT_GT(dry_step(prepared(config), 0).memory.peak_bytes, even);
}

/// Bytes of the collectives of a group that a rank starts in a step.
std::int64_t bytes_of_group(const Config& config, const std::string& group,
                            const std::string& operation) {
  std::int64_t bytes = 0;
  for (const Recording::Event& event :
       dry_step(prepared(config), 0, {.recording = true}).recording.events)
    if (const auto* start = std::get_if<Recording::Start>(&event))
      if (start->group == group && start->operation == operation) bytes += start->bytes;
  return bytes;
}

TEST(ExpertRuns, ExchangeTheElementsOfTheTableInTheDocs) {
  Config config = on_grid(expert_config("unused"), GridShape{.x = 2, .y = 2, .z = 2, .experts = 2});
  config.model.layers = 1;
  config = resolved(config);
  constexpr std::int64_t kF32 = 4, Gx = 2, Gy = 2, k = 2;
  const std::int64_t C = config.model.hidden,
                     r = config.training.global_batch / 2 * config.training.seq_len / Gx;
  // Dispatch and combine, forward and backward; buffers include the rows that stay.
  const std::int64_t once = k * r * (C / Gy) * kF32;
  EXPECT_EQ(bytes_of_group(config, "experts", "all_to_all"), 4 * once);
  EXPECT_EQ(bytes_of_group(config, "x", "all_to_all"), 4 * r * (C / Gy) * kF32);
  config.activation_checkpoint.mode = RecomputeMode::full;
  EXPECT_EQ(bytes_of_group(config, "experts", "all_to_all"), 6 * once);
  config.activation_checkpoint.keep_dispatch = true;
  EXPECT_EQ(bytes_of_group(config, "experts", "all_to_all"), 5 * once);
}

/// Counts rows of padding in the losses of routers.
class CountsPadding : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void run(const RowwiseOperation& operation) override {
    const auto* counts = std::get_if<ops::RouteCounts>(&operation);
    if (!counts) return ForwardingBackend::run(operation);
    ops::RouteCounts all = *counts;
    all.counted = {};
    ForwardingBackend::run(all);
  }
};

/// Choices that the routers counted in a step, on all ranks, and those of rows that are no padding.
struct Counted {
  double choices = 0, want = 0;
};

Counted count_choices(const Config& config, bool counts_padding) {
  Counted found;
  run_ranks(config.parallelism.grid().ranks(), [&](Communicator& world) {
    std::unique_ptr<Backend> backend = make_cpu_backend(1);
    if (counts_padding) backend = std::make_unique<CountsPadding>(std::move(backend));
    Training training(prepared(config), world, std::move(backend));
    training.model.initialise();
    const StepInput input = training.input(0);
    const StepResult result = training.step.run(training.model.context(), input);
    double counted = 0;
    const Routing& routing = training.step.term<ExpertBalance>()->routing();
    for (const double count : routing.sums().counts) counted += count;
    world.all_reduce(buffer(std::span(&counted, 1))).wait();
    const ModelConfig& model = config.model;
    if (world.rank() == 0)
      found = {counted, static_cast<double>(model.layers * model.experts_per_token * input.inputs)};
    EXPECT_GE(result.metric("balance_loss"), 0.99);
  });
  return found;
}

TEST(ExpertRuns, RowsOfPaddingAreNotCounted) {
  test::TemporaryPath folder;
  Config config = expert_config(folder / "run");
  config.data = {.jsonl = {folder / "chats.jsonl"}};
  std::ofstream(config.data.jsonl.front()) << synthetic_conversations(20, 1);
  config.training.seq_len = 512;
  config.training.global_batch = 4;
  for (const GridShape grid : {GridShape{}, GridShape{.x = 2, .z = 2, .experts = 2}}) {
    const Config here = resolved(on_grid(config, grid));
    const Counted right = count_choices(here, false), wrong = count_choices(here, true);
    EXPECT_EQ(right.choices, right.want) << with_factors(grid);
    EXPECT_GT(wrong.choices, wrong.want) << with_factors(grid);
  }
}

TEST(ExpertRuns, MetricsHaveTheLossesAndTheLoadOfExperts) {
  test::TemporaryPath folder;
  const Config config =
      on_grid(expert_config(folder / "run"), GridShape{.x = 2, .z = 2, .experts = 2});
  train_on_threads(config);
  for (const auto& line : metrics_of(config)) {
    EXPECT_GE(line.at("balance_loss"), 0.99);
    EXPECT_GT(line.at("router_z_loss"), 0);
    EXPECT_GE(line.at("max_expert_load"), 1);
    EXPECT_LE(line.at("max_expert_load"), 2);  // 4 experts, two for each token
  }
}

TEST(ExpertRuns, ResumeExactlyAndWithOtherHolders) {
  test::TemporaryPath folder;
  Config first = on_grid(expert_config(folder / "whole"), GridShape{.x = 2, .z = 4, .experts = 4});
  first.model.router_bias = true;
  first.training.balance.bias = 0.01;
  train_on_threads(first);
  const std::vector<double> losses = column(metrics_of(first), "loss");
  const auto resumed_on = [&](const GridShape& grid, const std::string& name) {
    Config rest = on_grid(first, grid);
    rest.output.dir = folder / name;
    rest.checkpoint.resume = folder / "whole/checkpoints/step-5";
    train_on_threads(rest);
    return column(metrics_of(rest), "loss");
  };
  const std::vector<double> second(losses.begin() + 5, losses.end());
  EXPECT_EQ(resumed_on(GridShape{.x = 2, .z = 4, .experts = 4}, "same"), second);
  const auto weights = weights_of(folder / "whole/checkpoints/step-5");
  EXPECT_TRUE(weights.contains("model.layers.1.mlp.experts.3.down_proj.weight"));
  // Choices may flip between grids, so that losses are close, not equal.
  for (const GridShape grid :
       {GridShape{}, GridShape{.x = 2, .z = 2, .experts = 2}, GridShape{1, 2, 2, 1}})
    EXPECT_LE(largest_difference(resumed_on(grid, "on " + with_factors(grid)), second), 1e-3);
}

TEST(ExpertRuns, WhatCannotBeCutIsRefusedWithARemedy) {
  const auto refusal = [](const Config& config, const std::string& text) {
    EXPECT_THAT([&] { validate(config); }, testing::ThrowsMessage<Error>(HasSubstr(text)));
  };
  Config config = on_grid(expert_config("unused"), GridShape{.z = 4, .experts = 4});
  validate(config);
  config.parallelism.experts = 3;
  refusal(config, "experts = 3 does not divide [model] experts = 4");
  config.model.experts = 6;
  refusal(config, "experts = 3 does not divide z = 4");
  config = expert_config("unused");
  config.model.experts_per_token = 5;
  refusal(config, "experts_per_token = 5 must be from 1 to experts = 4");
  test::TemporaryPath folder;
  config = expert_config(folder / "run");
  config.training.balance.bias = 0.01;
  EXPECT_THAT(failure_of(config), HasSubstr("set model.router_bias = true"));
}

}  // namespace
