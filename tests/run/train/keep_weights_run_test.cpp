// Weights that stay gathered over z: the same bits with fewer gathers.
#include <map>

#include <gmock/gmock.h>

#include "axonn/compute/ops/dry_backend.h"
#include "axonn/data/corpus/batches.h"
#include "axonn/foundation/base/check.h"
#include "axonn/plan/measure/compare.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/dry_world.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/train/training.h"

#include "tests/support/dry_peak.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

namespace {

/// Three micro-batches of a model of two blocks.
Config kept_config(KeepWeights keep, const GridShape& grid = {1, 1, 2, 1}) {
  Config config = on_grid(tiny_config("unused"), grid);
  config.training.micro_batch = 2;
  config.training.global_batch = 6 * batch_coordinates(grid);
  config.parallelism.keep_weights = keep;
  return config;
}

/// A model as Mixtral, with blocks without experts, too.
Config kept_experts(KeepWeights keep, const GridShape& grid) {
  Config config = kept_config(keep, grid);
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 6;
  config.model.tied = false;
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 24;
  config.training.balance = {.weight = 0.01, .z = 0.001};
  return config;
}

using Counts = std::map<std::string, int>;

/// The gathers over z, by group.
Counts gathers_of(const Recording& recording) {
  Counts counts;
  for (const Recording::Event& event : recording.events)
    if (const auto* start = std::get_if<Recording::Start>(&event))
      if (start->group == "z" && start->operation == "all_gather") ++counts[start->label];
  return counts;
}

Counts gathers_of_step(const Config& config) {
  return gathers_of(dry_step(prepared(config), 0, {.recording = true}).recording);
}

/// What three steps compute, and the mean losses of the validation data.
struct KeptOutcome {
  GridTrace trace;
  std::map<std::string, std::vector<float>> weights;
  std::vector<double> validation;
};

KeptOutcome outcome_of(Config config) {
  const test::TemporaryPath folder;
  config.output.dir = folder.path();
  config.training.steps = 3;
  config.training.eval_every = 2;
  config.checkpoint.every = 3;
  KeptOutcome outcome;
  run_ranks(config.parallelism.grid().ranks(), [&](Communicator& world) {
    GridTrace mine = trace_run(prepared(config), world, make_cpu_backend(1), {.steps = 3});
    if (world.rank() == 0) outcome.trace = std::move(mine);
  });
  train_on_threads(config);
  for (const auto& line : metrics_of(config))
    if (line.contains("val_loss")) outcome.validation.push_back(line.at("val_loss"));
  outcome.weights = weights_of(concat(folder.path(), "/checkpoints/step-3"));
  return outcome;
}

/// make(keep) for each: the same bits, and, if no router makes some experts busier than others, the
/// peak of the dry run.
void expect_equal_results(const std::function<Config(KeepWeights)>& make) {
  const KeptOutcome want = outcome_of(make(KeepWeights::none));
  for (const KeepWeights keep : {KeepWeights::micro_batch, KeepWeights::step}) {
    const Config config = make(keep);
    SCOPED_TRACE(concat(with_factors(config.parallelism.grid()), ", keep ", static_cast<int>(keep),
                        ", overlap ", config.parallelism.overlap.weights));
    const KeptOutcome got = outcome_of(config);
    EXPECT_EQ(got.trace.losses, want.trace.losses);
    EXPECT_EQ(got.trace.norms, want.trace.norms);
    EXPECT_EQ(got.weights, want.weights);
    EXPECT_EQ(got.validation, want.validation);
    EXPECT_FALSE(got.validation.empty());
    if (config.model.experts == 0) expect_dry_peak(prepared(config));
  }
}

}  // namespace

TEST(KeepWeights, GathersEachBlockTwiceOnceOrOnceAStep) {
  for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::full})
    for (const bool overlap : {true, false})
      for (const bool tied : {true, false}) {
        SCOPED_TRACE(concat("recomputation ", static_cast<int>(mode), ", overlap ", overlap,
                            ", tied ", tied));
        const auto gathers = [&](KeepWeights keep) {
          Config config = kept_config(keep);
          config.activation_checkpoint.mode = mode;
          config.model.tied = tied;
          return gathers_of_step(overlap ? config : without_overlap(config));
        };
        // The head's norm is always held. So is a tied embedding, which is also read before.
        EXPECT_THAT(gathers(KeepWeights::none),
                    UnorderedElementsAre(Pair("embedding", tied ? 6 : 3), Pair("h.0", 6),
                                         Pair("h.1", 6), Pair("ln_f", 3)));
        EXPECT_THAT(gathers(KeepWeights::micro_batch),
                    UnorderedElementsAre(Pair("embedding", 3), Pair("h.0", 3), Pair("h.1", 3),
                                         Pair("ln_f", 3)));
        EXPECT_THAT(gathers(KeepWeights::step),
                    UnorderedElementsAre(Pair("embedding", 1), Pair("h.0", 1), Pair("h.1", 1),
                                         Pair("ln_f", 1)));
      }
}

TEST(KeepWeights, AreFreedByTheLastBackwardOfAStepUnlessTheyAreFrozen) {
  const auto gathered = [](KeepWeights keep, std::int64_t lora) {
    Config config = kept_config(keep);
    config.model.lora.rank = lora;
    const ArenaStats memory = dry_step(prepared(config), 0).memory;
    const auto use = static_cast<std::size_t>(MemoryUse::gathered);
    return std::pair{memory.live_by[use], memory.peak_by[use]};
  };
  for (const KeepWeights keep : {KeepWeights::none, KeepWeights::micro_batch, KeepWeights::step})
    EXPECT_EQ(gathered(keep, 0).first, 0);
  EXPECT_EQ(gathered(KeepWeights::micro_batch, 2).first, 0);
  const auto [after, peak] = gathered(KeepWeights::step, 2);
  EXPECT_GT(after, peak / 2) << "most weights are frozen";
}

TEST(KeepWeights, OverAStepGathersFrozenWeightsOnceInTheRun) {
  Config config = kept_config(KeepWeights::step);
  config.model.lora.rank = 2;
  const Counts counts = gathers_of_step(config);
  EXPECT_FALSE(counts.empty());
  for (const auto& [group, count] : counts) {
    EXPECT_THAT(group, HasSubstr("(adapters)"));
    EXPECT_EQ(count, 1) << group;
  }
}

TEST(KeepWeights, OverAStepKeepsThemOverAllBatchesOfAnEvaluation) {
  const auto gathers = [](KeepWeights keep) {
    const PreparedRun run = prepared(kept_config(keep));
    Recording recording{.events = {}, .paused = true};
    const auto world = make_dry_world(run->parallelism.grid(), 0, &recording);
    Training training(run, *world, make_dry_backend(&recording));
    training.model.initialise();
    const auto validate = [&] {  // a device without arithmetic counts no targets
      EXPECT_THROW(training.validate(), UsageError);
    };
    validate();  // learns the order
    const std::int64_t live = training.model.arena().stats().live_bytes;
    recording.paused = false;
    validate();
    validate();
    EXPECT_EQ(training.model.arena().stats().live_bytes, live);
    return gathers_of(recording).at("h.0");
  };
  EXPECT_GT(gathers(KeepWeights::none), 2);
  EXPECT_EQ(gathers(KeepWeights::micro_batch), gathers(KeepWeights::none));
  EXPECT_EQ(gathers(KeepWeights::step), 2);  // of two evaluations
}

TEST(KeepWeights, HaveTheSameBitsAndTheMemoryOfTheDryRunOnEveryGrid) {
  for (const GridShape grid : {GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 1}, GridShape{1, 1, 2, 2},
                               GridShape{2, 1, 2, 1}, GridShape{1, 2, 3, 1}})
    for (const bool overlap : {true, false})
      expect_equal_results([&](KeepWeights keep) {
        Config config = kept_config(keep, grid);
        config.model.tied = overlap;
        config.training.dtype = overlap ? DType::bf16 : DType::f32;
        return overlap ? config : without_overlap(config);
      });
}

TEST(KeepWeights, HaveTheSameBitsWithRecomputationChunksAndLoRA) {
  for (const RecomputeMode mode : {RecomputeMode::light, RecomputeMode::full})
    for (const std::int64_t lora : {0, 2})
      expect_equal_results([&](KeepWeights keep) {
        Config config = kept_config(keep, {1, 2, 2, 1});
        config.activation_checkpoint.mode = mode;
        config.activation_checkpoint.blocks = mode == RecomputeMode::light ? 1 : 0;
        config.parallelism.chunks = 2;
        config.model.lora.rank = lora;
        config.training.dtype = lora > 0 ? DType::bf16 : DType::f32;
        return config;
      });
}

TEST(KeepWeights, HaveTheSameBitsWithExpertsContextAndRunningAverages) {
  expect_equal_results(
      [](KeepWeights keep) { return kept_experts(keep, {.x = 2, .z = 2, .experts = 2}); });
  expect_equal_results([](KeepWeights keep) {
    Config config = kept_experts(keep, {.z = 4, .experts = 2});
    config.activation_checkpoint.mode = RecomputeMode::full;
    return config;
  });
  expect_equal_results([](KeepWeights keep) {
    Config config = kept_config(keep, {.z = 2, .context = 2});
    config.training.seq_len = 256;
    config.training.micro_batch = 1;
    config.training.global_batch = 2;
    config.optimizer.ema_decay = 0.9;
    return config;
  });
}
