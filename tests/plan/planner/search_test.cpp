#include "axonn/plan/planner/search.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/known_models.h"
#include "axonn/network/model/model.h"
#include "axonn/plan/measure/dry_rollouts.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/plan/planner/screening.h"
#include "axonn/plan/planner/search_space.h"
#include "axonn/ranks/comm/dry_world.h"

#include "tests/plan/planner/configs.h"
#include "tests/plan/planner/machines.h"
#include "tests/plan/planner/paper_ranking.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::ThrowsMessage;

namespace {

/// The best plan of each grid, fastest first, from a simulation of all blocks for every micro-batch
/// and recomputation mode that fits.
std::vector<Plan> search_all(const Config& config, const Machine& machine, int devices) {
  std::vector<Plan> plans;
  for (const GridShape& grid : grids_of(devices)) {
    std::optional<Plan> best;
    const std::int64_t places = grid.z * grid.data, batch = config.training.global_batch;
    for (std::int64_t micro = 1, share = batch_share(batch, places); micro <= share; ++micro)
      for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::full}) {
        if (share % micro != 0) continue;
        Plan plan{.grid = grid, .micro_batch = micro, .recompute = mode, .time = {}};
        const PreparedRun here = planned(prepared(config), plan);
        try {
          const Prediction exact = predict(here, machine);
          plan.memory_bytes = exact.memory_bytes;
          plan.time = exact.time;
        } catch (const UsageError&) {
          continue;
        }
        if (static_cast<double>(plan.memory_bytes) > machine.memory_bytes) continue;
        if (!best || plan.time.step_s < best->time.step_s) best = plan;
      }
    if (best) plans.push_back(*best);
  }
  std::ranges::stable_sort(plans, {}, [](const Plan& plan) { return plan.time.step_s; });
  return plans;
}

/// A config small enough to try all plans.
Config few_blocks() {
  Config config = small_gpt();
  config.model.layers = 8;
  config.training.seq_len = 256;
  config.training.global_batch = 16;
  return config;
}

void expect_same_as_searching_all(const Config& config, const Machine& machine, int devices) {
  const auto all = search_all(config, machine, devices);
  ASSERT_THAT(all, Not(IsEmpty()));
  const auto plans = search(prepared(config), machine, {.devices = devices, .top = 3}).plans;
  ASSERT_THAT(plans, SizeIs(std::min<std::size_t>(3, all.size())));
  // The micro-batch and the recomputation of a grid are chosen by an estimate from three and four
  // blocks. The first is more certain than the others.
  constexpr double kFirst = 1.01, kOthers = 1.05;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    EXPECT_LE(plans[i].time.step_s, (i == 0 ? kFirst : kOthers) * all[i].time.step_s)
        << i << ": " << to_string(plans[i].grid) << " instead of " << to_string(all[i].grid);
    EXPECT_LE(static_cast<double>(plans[i].memory_bytes), machine.memory_bytes);
  }
}

}  // namespace

TEST(Search, FindsWhatSearchingThroughAllFinds) {
  for (const int devices : {8, 12}) {
    SCOPED_TRACE(devices);
    Config config = few_blocks();
    config.training.global_batch = devices == 8 ? 16 : 12;
    expect_same_as_searching_all(config, round_machine(), devices);
  }
}

TEST(Search, FindsTheBestGridForABatchThatFewGridsDivide) {
  Config config = few_blocks();
  for (const std::int64_t batch : {3, 10}) {
    SCOPED_TRACE(batch);
    config.training.global_batch = batch;
    expect_same_as_searching_all(config, round_machine(), 8);
  }
  SearchOptions options{.devices = 8, .micro_batch = 3};
  options.fixed = {1, 1, 8, 1, 1, 0};
  config.training.global_batch = 20;  // a share of 3 and 4 of padding
  const Plan plan = search(prepared(config), round_machine(), options).plans.at(0);
  EXPECT_EQ(plan.micro_batch_count(20), 1);
}

TEST(Search, FindsWhatSearchingThroughAllFindsIfMemoryIsShort) {
  Machine machine = round_machine();
  const Config config = few_blocks();
  for (const double memory : {0.35e9, 0.5e9, 0.8e9}) {
    SCOPED_TRACE(memory);
    machine.memory_bytes = memory;
    expect_same_as_searching_all(config, machine, 8);
  }
}

TEST(Search, PlansKeepWeightsWhereThatFitsAndSavesTime) {
  Config config = few_blocks();
  Machine machine = round_machine();
  machine.devices_per_node = 1;
  machine.node_bytes_per_s = 2e9;  // gathers take longer than the computation
  SearchOptions options{.devices = 4, .top = 1, .micro_batch = 1};
  options.fixed.z = 4;
  const auto best = [&] { return search(prepared(config), machine, options).plans.at(0); };
  const Plan kept = best();
  EXPECT_EQ(kept.keep_weights, KeepWeights::step);
  EXPECT_EQ(kept.memory_bytes, dry_step(planned(prepared(config), kept), 0).memory.peak_bytes);
  EXPECT_EQ(kept.time.step_s, predict(planned(prepared(config), kept), machine).time.step_s);

  options.keep_weights = false;
  const Plan gathered_twice = best();
  EXPECT_EQ(gathered_twice.keep_weights, std::nullopt);
  EXPECT_LT(kept.time.step_s, 0.8 * gathered_twice.time.step_s);
  options.keep_weights = true;
  machine.memory_bytes = static_cast<double>(kept.memory_bytes - 1);
  EXPECT_EQ(best().keep_weights, KeepWeights::micro_batch) << "which fits";
  machine.memory_bytes = static_cast<double>(gathered_twice.memory_bytes);
  EXPECT_EQ(best().keep_weights, std::nullopt) << "there is no memory left";
  machine.memory_bytes = 1e12;

  config.training.cuda_graph = true;
  EXPECT_EQ(best().keep_weights, KeepWeights::micro_batch);
  config.training.cuda_graph = false;
  config.parallelism.keep_weights = KeepWeights::micro_batch;
  const Plan given = best();
  EXPECT_EQ(planned(prepared(config), given)->parallelism.keep_weights, KeepWeights::micro_batch);
  EXPECT_LT(kept.time.step_s, given.time.step_s);
  EXPECT_LT(given.time.step_s, gathered_twice.time.step_s);
  options.fixed.z = 1;
  config.parallelism.keep_weights = KeepWeights::none;
  EXPECT_EQ(best().keep_weights, std::nullopt) << "there is nothing to gather";
}

// Grids that cannot run without recomputation are the fastest with the least that fits.
TEST(Search, FindsTheGridThatIsFastestWithTheLeastRecomputationThatFits) {
  Config config = config_of(known_model("apertus-70b"), 4096, 4096);
  config.training.dtype = DType::bf16;
  const Machine machine = read_machine("alps");
  SearchOptions options{.devices = 4096, .top = 1};
  const Plan best = search(prepared(config), machine, options).plans.at(0);
  for (const GridShape& grid : {GridShape{1, 1, 8, 512}, {4, 1, 4, 256}, {2, 1, 4, 512}}) {
    options.fixed = grid;
    const Plan other = search(prepared(config), machine, options).plans.at(0);
    EXPECT_NE(other.recompute, RecomputeMode::none) << to_string(grid);
    EXPECT_LE(best.time.step_s, other.time.step_s) << to_string(grid);
  }
}

TEST(Search, FindsWhatSearchingThroughAllFindsIfLatencyOrLinksDominate) {
  Machine machine = round_machine();
  machine.node_latency_s = 1e-3;
  expect_same_as_searching_all(few_blocks(), machine, 8);
  machine.node_latency_s = 0;
  machine.node_bytes_per_s = 1e9;
  machine.overlap_slowdown = 0.2;
  expect_same_as_searching_all(few_blocks(), machine, 8);
}

namespace {

/// Without recomputation, which all fits without.
void expect_bounds_below_true_times(const Config& base, const Machine& machine) {
  constexpr double kSlack = 1.03;  // as in search.cpp
  const PreparedRun run = prepared(base);
  const SearchOptions options{.devices = 8};
  const SearchSpace space(run, machine, options);
  const Screening screening(run, machine, options, space);
  int compared = 0;
  for (const GridShape& grid : space.grids()) {
    const Screened found = screening.screened(grid);
    if (!found.cuts) continue;
    const std::vector<std::int64_t> sizes = space.useful_sizes(grid);
    ASSERT_THAT(found.least_s, SizeIs(sizes.size()));
    for (std::size_t i = 0; i < sizes.size(); ++i, ++compared) {
      const PreparedRun one = screening.on(grid, sizes[i], RecomputeMode::none);
      EXPECT_LE(found.least_s[i], kSlack * estimate(one, machine).time.step_s)
          << to_string(grid) << " micro-batch " << sizes[i];
    }
  }
  EXPECT_GE(compared, 20);
}

}  // namespace

TEST(Search, BoundsOfAllSizesAreAtMostTheTrueTimesWithinTheSlack) {
  expect_bounds_below_true_times(small_gpt(), round_machine());
}

TEST(Search, BoundsOfGridsWhoseRanksShareExpertsAndSequencesAreAtMostTheTrueTimes) {
  Config config = tiny_config_with_experts();
  config.training.seq_len = config.model.positions = 8192;
  expect_bounds_below_true_times(config, round_machine());
}

TEST(Search, BoundsCountCastsOfGradientsOnce) {
  Machine machine = round_machine();
  machine.rowwise_bytes_per_s["cast"] = 1e10;
  Config config = small_gpt();
  config.parallelism.reduce_dtype = DType::bf16;
  expect_bounds_below_true_times(config, machine);
}

TEST(Search, BoundsCountLaunchesAndLatenciesOnce) {
  Machine machine = round_machine();
  machine.launch_s = 1e-3;
  machine.node_latency_s = machine.device_latency_s = 1e-3;
  expect_bounds_below_true_times(small_gpt(), machine);
}

TEST(Search, BoundsCountWaitsForLateRanksInEachMicroBatchButOnceForGradients) {
  Machine machine = round_machine();
  for (const double jitter_s : {1e-4, 1e-3, 1e-2}) {
    machine.jitter_s = jitter_s;
    expect_bounds_below_true_times(small_gpt(), machine);
  }
}

TEST(Search, BoundsCountMuonsMatricesOnce) {
  Config config = small_gpt();
  config.optimizer.kind = OptimizerKind::muon;
  expect_bounds_below_true_times(config, round_machine());
}

TEST(Search, StateBytesAreTheMemoryOfARankBetweenSteps) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const OptimizerKind kind :
           {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::ademamix, OptimizerKind::muon,
            OptimizerKind::lion, OptimizerKind::schedule_free_adamw, OptimizerKind::adafactor}) {
        Config config = tiny_llama_config();
        config.parallelism.set_grid(grid);
        config.training.dtype = dtype;
        config.optimizer.kind = kind;
        config.lr_scheduler.kind = ScheduleKind::constant;
        config.optimizer.sgd_momentum = dtype == DType::f32 ? 0.9 : 0;
        const std::int64_t rotary = config.training.seq_len * config.model.head_width() * 4;
        for (const std::int64_t rank : {0, 3}) {
          if (rank > 0 && kind == OptimizerKind::muon) continue;  // of whole matrices alone
          config.model.lora.rank = rank;
          EXPECT_EQ(state_bytes(prepared(config)) + rotary,
                    dry_step(prepared(config), 0).memory.live_bytes)
              << to_string(grid) << ", adapters of rank " << rank;
        }
      }
}

TEST(Search, TheStateOfAdaptersOfSomeBlocksIsThatOfATraining) {
  Config config = resolved(tiny_llama_config());
  config.model.layers = 7;
  config.parallelism.set_grid({2, 1, 2, 1});
  const std::int64_t rotary = config.training.seq_len * config.model.head_width() * 4;
  const LoraConfig some{.rank = 3, .layers = {1, 6}, .rank_pattern = {"layers.6.mlp.up_proj 5"}},
      whole{.rank = 3, .modules = {"layers.5.mlp"}};
  for (const LoraConfig& lora : {some, whole}) {
    config.model.lora = lora;
    EXPECT_EQ(state_bytes(prepared(config)) + rotary,
              dry_step(prepared(config), 0).memory.live_bytes);
  }
}

// Twice as many ranks that share sequences, with twice as many sequences, give each rank the same
// rows.
TEST(Search, NoPlanSharesSequencesThatFewerRanksCouldHaveAlone) {
  Config config = tiny_llama_config();
  config.training.seq_len = config.model.positions = 8192;
  config.training.global_batch = 48;
  SearchOptions options{.devices = 8, .top = 100};
  options.fixed.x = options.fixed.y = 1;
  for (const Plan& plan : search(prepared(config), round_machine(), options).plans)
    EXPECT_EQ(std::gcd<std::int64_t>(plan.grid.context, plan.micro_batch), 1)
        << with_factors(plan.grid) << ", micro-batches of " << plan.micro_batch;
  // With a fixed number of ranks there are no fewer.
  options.fixed.context = 4;
  options.fixed.z = 8;
  EXPECT_EQ(search(prepared(config), round_machine(), options).plans.at(0).micro_batch % 2, 0);
}

TEST(Search, SharedSequencesTakeEachRankOnlyItsPartOfTheMemory) {
  Config config = tiny_llama_config();
  config.training.seq_len = config.model.positions = 8192;
  config.training.global_batch = 8;
  SearchOptions options{.devices = 8};
  options.fixed = {1, 1, 8, 1, 4, 0};
  const Plan ample = search(prepared(config), round_machine(), options).plans.at(0);
  ASSERT_EQ(ample.micro_batch, 4);
  Machine machine = round_machine();
  machine.memory_bytes = static_cast<double>(ample.memory_bytes);
  EXPECT_EQ(search(prepared(config), machine, options).plans.at(0).micro_batch, 4);
}

// What a search finds out of a micro-batch from larger ones and the smallest, it finds anew where
// the size is fixed.
TEST(Search, ChoosesTheMicroBatchThatIsFastestIfEachIsSearchedAlone) {
  Config dense = few_blocks(), experts = tiny_config_with_experts(), shared = tiny_llama_config();
  dense.training.global_batch = 128;
  experts.training.global_batch = 256;
  shared.training.seq_len = shared.model.positions = 8192;
  shared.training.global_batch = 32;
  const struct {
    const Config& config;
    GridShape grid;
  } kinds[] = {
      {dense, {1, 1, 4, 2, 1, 1}}, {experts, {1, 1, 8, 1, 1, 4}}, {shared, {1, 1, 8, 1, 2, 1}}};
  for (const auto& [config, grid] : kinds) {
    const PreparedRun run = prepared(config);
    SearchOptions options{.devices = 8};
    options.fixed = grid;
    const Plan ample = search(run, round_machine(), options).plans.at(0);
    int chosen = 0;  // plans with recomputation
    for (const double share : {0.9, 0.7, 0.5, 0.35, 0.25, 0.18}) {
      SCOPED_TRACE(concat(with_factors(grid), ", memory ", share));
      Machine machine = round_machine();
      machine.memory_bytes = share * static_cast<double>(ample.memory_bytes);
      options.micro_batch = 0;
      const auto found = search(run, machine, options).plans;
      std::optional<Plan> best;
      for (options.micro_batch = 1; options.micro_batch <= 32; options.micro_batch *= 2) try {
          const auto alone = search(run, machine, options).plans;
          if (!alone.empty() && (!best || alone[0].time.step_s < best->time.step_s))
            best = alone[0];
        } catch (const UsageError&) {  // the grid cannot cut the batch into such micro-batches
        }
      ASSERT_EQ(found.empty(), !best);
      if (!best) continue;
      EXPECT_EQ(found[0].micro_batch, best->micro_batch);
      EXPECT_EQ(found[0].time.step_s, best->time.step_s);
      EXPECT_EQ(found[0].memory_bytes, best->memory_bytes);
      chosen += found[0].recompute_blocks.has_value();
    }
    EXPECT_GT(chosen, 0);
  }
}

TEST(Search, KeepsFixedExtentsMicroBatchAndRecomputation) {
  SearchOptions options{.devices = 8, .micro_batch = 2, .recompute = RecomputeMode::full};
  options.fixed.x = 2;
  const auto plans = search(prepared(small_gpt()), round_machine(), options).plans;
  ASSERT_THAT(plans, Not(IsEmpty()));
  for (const Plan& plan : plans) {
    EXPECT_EQ(plan.grid.x, 2);
    EXPECT_EQ(plan.micro_batch, 2);
    EXPECT_EQ(plan.recompute, RecomputeMode::full);
  }
  for (const Plan& plan :
       search(prepared(small_gpt()), round_machine(), {.devices = 8, .strategy = Strategy::hsdp})
           .plans)
    EXPECT_TRUE(allows(Strategy::hsdp, plan.grid, 4)) << to_string(plan.grid);
}

TEST(Search, TriesEveryNumberOfRanksThatMayShareExperts) {
  SearchOptions options{.devices = 8};
  options.fixed = {1, 1, 8, 1, 1, 0};
  const Config config = tiny_config_with_experts();
  const auto found = search(prepared(config), round_machine(), options);
  std::vector<int> holders;
  for (const Plan& plan : found.plans) {
    holders.push_back(plan.grid.experts);
    EXPECT_EQ(planned(prepared(config), plan)->parallelism.grid(), plan.grid);
  }
  EXPECT_THAT(holders, testing::UnorderedElementsAre(1, 2, 4));  // divisors of 8 and of 4
  options.fixed.experts = 2;
  EXPECT_EQ(search(prepared(config), round_machine(), options).plans.front().grid.experts, 2);
  EXPECT_EQ(search(prepared(config), round_machine(), options).grids, 1);
  options.fixed.experts = 0;
  EXPECT_EQ(search(prepared(tiny_llama_config()), round_machine(), options).grids, 1)
      << "a dense model";
}

TEST(Search, StateBytesKnowWhichLayersHaveExperts) {
  for (const GridShape grid : {GridShape{}, GridShape{1, 1, 4, 1, 1, 2}})
    for (const std::vector<std::int64_t>& dense : {std::vector<std::int64_t>{}, {1}, {1, 5}}) {
      Config config = tiny_config_with_experts();
      config.parallelism.set_grid(grid);
      config.parallelism.experts = grid.experts;
      config.model.dense_layers = dense;
      std::int64_t bytes = 0;
      const auto world = make_dry_world(grid, 0);
      const Grid here(*world, grid);
      const auto model = make_model(config.model, here);
      // Of f32: weight and gradient of the shard, and two moments of the piece.
      for (const ParameterGroup* group : model->groups())
        bytes += 4 * (2 * group->sizes().shard + 2 * group->sizes().piece);
      EXPECT_EQ(state_bytes(prepared(config)), bytes) << with_factors(grid);
    }
}

TEST(Search, WithThePapersCostsRanksGridsLikeThePapersModel) {
  const Config config = few_blocks();
  std::vector<GridShape> grids;
  for (const GridShape& grid : grids_of(8))
    if (config.model.heads % grid.x == 0 && config.model.heads % grid.y == 0) grids.push_back(grid);
  const auto ranking = paper_ranking(grids, config.model, {.tokens = 16 * 256}, round_machine());
  const auto plans =
      search(prepared(config), round_machine(), {.devices = 8, .cost = CostModel::paper, .top = 4})
          .plans;
  ASSERT_THAT(plans, SizeIs(4));
  for (std::size_t i = 0; i < plans.size(); ++i)
    EXPECT_EQ(plans[i].time.step_s, ranking[i].seconds.total()) << to_string(plans[i].grid);
}

TEST(Search, IfNothingFitsFindsTheSmallestPlanAndANumberOfDevicesThatFits) {
  Machine machine = round_machine();
  machine.memory_bytes = 0.25e9;
  const SearchResult result = search(prepared(small_gpt()), machine, {.devices = 4});
  EXPECT_THAT(result.plans, IsEmpty());
  EXPECT_EQ(result.fit, 0);
  ASSERT_TRUE(result.smallest);
  EXPECT_GT(static_cast<double>(result.smallest->memory_bytes), machine.memory_bytes);
  const int enough = devices_that_fit(prepared(small_gpt()), machine, {.devices = 4});
  ASSERT_GT(enough, 4);
  EXPECT_THAT(search(prepared(small_gpt()), machine, {.devices = enough}).plans, Not(IsEmpty()));
  EXPECT_THAT(search(prepared(small_gpt()), machine, {.devices = enough / 2}).plans, IsEmpty());
}

TEST(Search, RefusesModelsAndMachinesThatNoGridCanRun) {
  EXPECT_THAT([] { search(prepared(small_gpt()), round_machine(), {.devices = 0}); },
              ThrowsMessage<UsageError>(HasSubstr("0 devices")));
  SearchOptions seven{.devices = 7};
  seven.fixed = {1, 7, 1, 1, 0, 0};  // 7 does not divide the width
  EXPECT_THAT([&] { search(prepared(small_gpt()), round_machine(), seven); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("none of the 1 grids of 7 devices"), HasSubstr("for example"))));
  Machine machine = round_machine();
  machine.bf16 = {};
  EXPECT_THAT([&] { search(prepared(small_gpt()), machine, {.devices = 8}); },
              ThrowsMessage<UsageError>(HasSubstr("products in bf16")));
}

TEST(Strategy, AllowsOnlyItsKindsOfParallelism) {
  EXPECT_TRUE(allows(Strategy::fsdp, {.z = 8}, 4));
  EXPECT_FALSE(allows(Strategy::fsdp, {.z = 4, .data = 2}, 4));
  EXPECT_TRUE(allows(Strategy::hsdp, {.z = 4, .data = 2}, 4));
  EXPECT_FALSE(allows(Strategy::hsdp, {.x = 2, .z = 4}, 4));
  EXPECT_TRUE(allows(Strategy::megatron, {.x = 4, .z = 2, .data = 2}, 4));
  EXPECT_FALSE(allows(Strategy::megatron, {.x = 8, .data = 2}, 4)) << "leaves the node";
  EXPECT_FALSE(allows(Strategy::megatron, {.x = 3, .data = 4}, 4)) << "straddles nodes";
  EXPECT_FALSE(allows(Strategy::megatron, {.x = 2, .y = 2}, 4));
  EXPECT_TRUE(allows(Strategy::grid_4d, {.x = 3, .y = 5, .z = 7, .data = 11}, 4));
}

/// A run that trains adapters on 32 answers that it writes. Most of its memory are weights.
PreparedRun writes_answers() {
  return prepared(small_gpt()).with([](Config& config) {
    config.model.lora.rank = 8;
    config.training.seq_len = 64;
    config.training.micro_batch = 1;
    config.rl = {.loss = PolicyLoss::grpo, .group = 4, .max_tokens = 32, .rewards = {"number"}};
  });
}

TEST(Search, GathersTheWeightsOnceForAnswersWhereThatFits) {
  const PreparedRun run = writes_answers();
  Machine machine = round_machine();
  const SearchOptions options{.devices = 4,
                              .strategy = Strategy::fsdp,
                              .top = 1,
                              .micro_batch = 1,
                              .recompute = RecomputeMode::none,
                              .keep_weights = false};
  const Plan held = search(run, machine, options).plans.at(0);
  EXPECT_EQ(held.hold_weights, true);
  EXPECT_EQ(held.rollout_bytes, dry_rollouts(planned(run, held), 0).memory.peak_bytes);
  Plan other = held;
  other.hold_weights = false;
  const RolloutCost gathered = rollout_cost(planned(run, other), machine),
                    once = rollout_cost(planned(run, held), machine);
  EXPECT_GT(gathered.seconds, once.seconds) << "32 tokens, for each of which weights are gathered";
  const std::int64_t step = dry_step(planned(run, held), 0).memory.peak_bytes,
                     least = std::max(step, gathered.memory_bytes);
  EXPECT_EQ(held.memory_bytes, std::max(step, held.rollout_bytes));
  ASSERT_LT(least, held.rollout_bytes);

  machine.memory_bytes = static_cast<double>(least + held.rollout_bytes) / 2;
  const Plan tight = search(run, machine, options).plans.at(0);
  EXPECT_EQ(tight.hold_weights, false);
  EXPECT_EQ(tight.memory_bytes, least);
  EXPECT_FALSE(planned(run, tight)->rl.hold_weights);

  machine.memory_bytes = static_cast<double>(step - 1);
  EXPECT_THAT(search(run, machine, options).plans, IsEmpty());
  const PreparedRun never = run.with([](Config& config) { config.rl.hold_weights = false; });
  EXPECT_EQ(search(never, round_machine(), options).plans.at(0).hold_weights, false);
}

TEST(Search, HasNoPlanWhereWritingAnswersDoesNotFit) {
  const PreparedRun run = writes_answers().with([](Config& config) {
    config.training.seq_len = 512;  // keys and values of 256 answers
    config.training.global_batch = 256;
    config.rl.max_tokens = 256;
  });
  Machine machine = round_machine();
  const SearchOptions options{
      .devices = 4, .strategy = Strategy::fsdp, .top = 1, .micro_batch = 1, .keep_weights = false};
  const Plan plan = search(run, machine, options).plans.at(0);
  const std::int64_t step = dry_step(planned(run, plan), 0).memory.peak_bytes;
  Plan other = plan;
  other.hold_weights = false;
  const std::int64_t writing = rollout_cost(planned(run, other), machine).memory_bytes;
  ASSERT_LT(step, writing);
  machine.memory_bytes = static_cast<double>(step + writing) / 2;
  const SearchResult none = search(run, machine, options);
  EXPECT_THAT(none.plans, IsEmpty());
  ASSERT_TRUE(none.smallest);
  EXPECT_EQ(none.smallest->memory_bytes, writing);
}
