#include <cmath>

#include <gtest/gtest.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/support/faulty_communicator.h"
#include "tests/support/grids.h"
#include "tests/support/sanitized.h"
#include "tests/support/tiny_model.h"

// Mixtures of experts: the losses of one rank on every grid, and what changes no bit. Grids repeat
// the choices of one rank, since a router may choose otherwise where rounding differs.

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// Grids on which z is one group of holders or several, and other axes are cut, too.
std::vector<GridShape> expert_grids() {
  if (sanitized()) return {{.x = 2, .y = 2, .z = 2, .experts = 2}, {.z = 4, .experts = 2}};
  return {{.z = 2, .experts = 2},
          {.z = 4, .experts = 2},
          {.z = 4, .experts = 4},
          {.x = 2, .z = 2, .experts = 2},
          {.y = 2, .z = 2, .experts = 2},
          {.z = 2, .data = 2, .experts = 2},
          {.x = 2, .y = 2, .z = 2, .experts = 2},
          {.y = 2, .z = 2, .data = 2, .experts = 2},
          {.z = 8, .experts = 8},
          {.x = 3, .z = 2, .experts = 2},
          {.x = 2, .z = 4, .experts = 2},
          {.y = 3, .z = 2, .experts = 2}};
}

constexpr BalanceConfig kBalanced{.weight = 0.01, .z = 0.001};

TinyRun balanced_run(const ModelConfig& model) {
  return {.balance = kBalanced, .make_model = model_of(model)};
}

ModelConfig with_sigmoid() {
  ModelConfig model = tiny_mixtral();
  model.router = RouterKind::sigmoid;
  model.router_scale = 2.5;
  model.router_bias = true;
  model.experts_per_token = 3;
  return model;
}

ModelConfig like_olmoe() {
  ModelConfig model = tiny_mixtral();
  model.expert_norm = false;
  model.expert_step = 2;  // the first layer's MLP is dense
  return model;
}

TEST(Experts, HaveTheLossesOfOneRankOnFewGrids) {
  EXPECT_EQ(difference_replayed(balanced_run(tiny_mixtral()), few_grids()), "");
}

TEST(Experts, HaveTheLossesOfOneRankWhereverTheyAreHeld) {
  EXPECT_EQ(difference_replayed(balanced_run(tiny_mixtral()), expert_grids()), "");
}

TEST(Experts, OfOtherRoutersHaveTheLossesOfOneRank) {
  for (const ModelConfig& model : {with_sigmoid(), like_olmoe()})
    EXPECT_EQ(difference_replayed(balanced_run(model), expert_grids()), "");
}

namespace {

/// Sinks, biases everywhere, a clamped gate, and every other layer with a window.
ModelConfig like_gpt_oss() {
  ModelConfig model = tiny_mixtral();
  model.activation = MlpKind::clamped_swiglu;
  model.swiglu_limit = 0.3;
  model.init_std = 0.1;  // so that gates reach the limit
  model.qkv_bias = model.out_bias = model.expert_bias = model.router_logit_bias = true;
  model.sinks = true;
  model.window = 3;
  model.full_layers = {1};
  return model;
}

}  // namespace

TEST(Experts, OfGptOssHaveTheLossesOfOneRank) {
  TinyRun run = balanced_run(like_gpt_oss());
  run.eps = 1e-5;
  EXPECT_EQ(difference_replayed(run, few_grids()), "");
  EXPECT_EQ(difference_replayed(run, expert_grids()), "");
}

TEST(Experts, WithNormsOfTheirOwnHaveTheLossesOfOneRank) {
  ModelConfig model = tiny_mixtral();
  model.block_norm = BlockNormKind::both;
  model.shared_ffn = 48;
  model.activation = MlpKind::geglu;
  model.expert_block_norms = true;
  model.init_std = 0.1;
  TinyRun run = balanced_run(model);
  run.eps = 1e-5;
  EXPECT_EQ(difference_replayed(run, few_grids()), "");
  EXPECT_EQ(difference_replayed(run, expert_grids()), "");
}

/// Scores that multiply inputs, chunks, norms without weights, and queries that grow.
ModelConfig like_llama4() {
  ModelConfig model = tiny_mixtral();
  model.layers = 4;
  model.router = RouterKind::sigmoid;
  model.expert_norm = false;
  model.expert_input_scores = true;
  model.expert_step = 2;
  model.shared_ffn = 48;
  model.rope_pairs = RopePairs::neighbours;
  model.qk_norm = QkNormKind::rotated_plain;
  model.window = 3;
  model.window_chunks = true;
  model.full_layers = model.nope_layers = {1, 2};
  model.nope_query_growth = 0.5;
  model.nope_query_positions = 3;
  model.init_std = 0.1;
  return model;
}

TEST(Experts, WhoseInputsAreMultipliedHaveTheLossesOfOneRank) {
  TinyRun run = balanced_run(like_llama4());
  run.eps = 1e-5;
  EXPECT_EQ(difference_replayed(run, few_grids()), "");
  EXPECT_EQ(difference_replayed(run, expert_grids()), "");
  run.packed = true;
  EXPECT_EQ(difference_replayed(run, expert_grids()), "");
}

TEST(Experts, BesideAGatedMlpHaveTheLossesOfOneRank) {
  ModelConfig model = tiny_mixtral();
  model.shared_ffn = 48;
  model.shared_gate = true;
  model.init_std = 0.1;
  TinyRun run = balanced_run(model);
  run.eps = 1e-5;
  EXPECT_EQ(difference_replayed(run, few_grids()), "");
  EXPECT_EQ(difference_replayed(run, expert_grids()), "");
}

TEST(Experts, BalancedByBatchHaveTheLossesOfOneRank) {
  for (const auto& [scope, model] : {std::pair{BalanceScope::batch, tiny_mixtral()},
                                     {BalanceScope::hugging_face, with_sigmoid()}}) {
    TinyRun run = balanced_run(model);
    run.balance.scope = scope;
    EXPECT_EQ(difference_replayed(run, expert_grids()), "");
  }
}

TEST(Experts, AndSharedSequencesHaveTheLossesOfOneRank) {
  ModelConfig model = tiny_mixtral();
  model.positions = 512;
  TinyRun run = balanced_run(model);
  run.sequences = 4;
  run.positions = 512;
  run.steps = 3;
  run.packed = true;
  EXPECT_EQ(difference_replayed(run, {GridShape{.z = 4, .context = 2, .experts = 2},
                                      GridShape{.x = 2, .z = 2, .context = 2, .experts = 2},
                                      GridShape{.z = 4, .context = 2, .experts = 4},
                                      GridShape{.z = 4, .context = 4, .experts = 2},
                                      GridShape{.y = 2, .z = 2, .context = 2}}),
            "");
}

TEST(Experts, Bfloat16StaysWithinOnePercent) {
  TinyRun run = balanced_run(tiny_mixtral());
  run.dtype = DType::bf16;
  EXPECT_EQ(difference_replayed(run, {{2, 2, 1, 1}, GridShape{.x = 2, .z = 2, .experts = 2}}), "");
}

TEST(Experts, RowsThatAreNotCutOverXHaveTheLossesOfOneRank) {
  TinyRun run = balanced_run(tiny_mixtral());
  run.sequence_parallel = false;
  EXPECT_EQ(
      difference_replayed(run, {{2, 2, 1, 1}, GridShape{.x = 2, .y = 2, .z = 2, .experts = 2}}),
      "");
}

TEST(Experts, ChunksAndAccumulationKeepTheLosses) {
  RoutingRecord choices;
  TinyRun run = balanced_run(with_sigmoid());
  run.record = &choices;
  const TinyTrace one = run_tiny(run);
  run.record = nullptr;
  run.replay = &choices;
  for (const GridShape& grid : {GridShape{}, GridShape{.x = 2, .z = 2, .experts = 2}}) {
    run.grid = grid;
    for (const auto& [chunks, accumulation] : {std::pair{2, 1}, {2, 2}, {1, 4}}) {
      run.chunks = chunks;
      run.accumulation = accumulation;
      EXPECT_EQ(difference(one, run_tiny(run), run.dtype), "") << chunks << ' ' << accumulation;
    }
  }
}

TEST(Experts, NeitherOverlapNorRecomputationNorDelaysChangeABit) {
  TinyRun run = balanced_run(tiny_mixtral());
  run.grid = GridShape{.x = 2, .z = 4, .experts = 2};
  run.steps = 3;
  const TinyTrace want = run_tiny(run);
  const auto expect_same = [&](const TinyRun& other, const char* what) {
    const TinyTrace got = run_tiny(other);
    EXPECT_EQ(got.losses, want.losses) << what;
    EXPECT_EQ(got.norms, want.norms) << what;
    EXPECT_EQ(got.weights, want.weights) << what;
  };
  expect_same(run, "again");
  TinyRun other = run;
  other.overlap = Overlap::none();
  expect_same(other, "no overlap");
  other = run;
  other.recompute = true;
  expect_same(other, "recomputation");
  other.keep_dispatch = true;
  expect_same(other, "recomputation that keeps the experts' rows");
  other = run;
  other.max_delay_us = 200;
  expect_same(other, "delays");
}

TEST(Experts, ThatAreEquallyBusyHaveABalanceLossOfOne) {
  // All rows alike: each token goes to experts 0 and 1, and scores are even, as W_g is 0.
  for (const auto& [scope, want] : {std::pair{BalanceScope::sequence, 1.0},
                                    {BalanceScope::batch, 1.0},
                                    {BalanceScope::hugging_face, 2.0}}) {
    for (const RouterKind router : {RouterKind::softmax, RouterKind::sigmoid}) {
      ModelConfig model = tiny_mixtral();
      model.init_std = 0;
      model.router = router;
      TinyRun run{.steps = 1, .lr = 0, .balance = {.scope = scope}, .make_model = model_of(model)};
      for (const GridShape& grid : {GridShape{}, GridShape{.x = 2, .z = 4, .experts = 2}}) {
        run.grid = grid;
        const ExpertLoad load = run_tiny(run).experts.front();
        EXPECT_NEAR(load.balance, want, 1e-6);
        EXPECT_NEAR(load.z, std::pow(std::log(8.0), 2), 1e-5);
        EXPECT_DOUBLE_EQ(load.max_load, 4);  // all rows at 2 of 8 experts
      }
    }
  }
}

TEST(Experts, OfEveryRouterBecomeBusyAlikeWithTheBalanceLoss) {
  // Tokens of a small vocabulary, again in each step: at first some experts get most of them. In
  // these runs the busiest one's load falls from 2.5 to at most 1.6.
  for (const RouterKind router : {RouterKind::softmax, RouterKind::sigmoid})
    for (const BalanceScope scope :
         {BalanceScope::sequence, BalanceScope::batch, BalanceScope::hugging_face}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(router) << static_cast<int>(scope));
      ModelConfig model = tiny_mixtral();
      model.router = router;
      model.init_std = 0.1;
      const TinyTrace trace = run_tiny({.sequences = 8,
                                        .positions = 16,
                                        .vocab = 16,
                                        .steps = 30,
                                        .lr = 0.01,
                                        .repeat_batch = true,
                                        .balance = {.scope = scope, .weight = 1},
                                        .make_model = model_of(model)});
      const ExpertLoad &before = trace.experts.front(), &after = trace.experts.back();
      EXPECT_LT(after.max_load, 0.75 * before.max_load);
      EXPECT_LT(after.balance, before.balance);
      EXPECT_NEAR(after.balance, scope == BalanceScope::hugging_face ? 2 : 1, 0.1);
    }
}

TEST(Experts, WithoutRowsHangNothingAndGetNoGradient) {
  // All rows go to experts 0 and 1; of 4 holders, three have none at all.
  RoutingRecord choices;
  TinyRun run = balanced_run(tiny_mixtral());
  run.steps = 2;
  std::vector<std::int32_t> ids;
  for (std::int64_t row = 0; row < run.steps * run.sequences * run.positions; ++row)
    ids.insert(ids.end(), {0, 1});
  for (const std::int64_t layer : {0, 1}) choices.put(layer, 0, 2, ids);
  run.replay = &choices;
  const TinyTrace one = run_tiny(run);
  EXPECT_DOUBLE_EQ(one.experts.front().max_load, 4);
  for (const GridShape& grid :
       {GridShape{.z = 4, .experts = 4}, GridShape{.x = 2, .y = 2, .z = 2, .experts = 2}}) {
    run.grid = grid;
    const TinyTrace got = run_tiny(run);
    EXPECT_EQ(difference(one, got, run.dtype), "");
    for (const auto& [name, norm] : got.parameter_norms)
      if (name.find("experts.5.") != std::string::npos) {
        EXPECT_EQ(norm, 0) << name;
      }
  }
}

TEST(Experts, WithRowsInFewChunksKeepTheLosses) {
  // Rows of the first sequence go to experts 0 and 5, of the last one to 0 and 6, others to 0
  // and 1.
  RoutingRecord choices;
  TinyRun run = balanced_run(tiny_mixtral());
  run.steps = 2;
  std::vector<std::int32_t> ids;
  for (int step = 0; step < run.steps; ++step)
    for (std::int64_t sequence = 0; sequence < run.sequences; ++sequence)
      for (std::int64_t row = 0; row < run.positions; ++row)
        ids.insert(ids.end(), {0, sequence == 0 ? 5 : sequence == run.sequences - 1 ? 6 : 1});
  for (const std::int64_t layer : {0, 1}) choices.put(layer, 0, 2, ids);
  run.replay = &choices;
  const TinyTrace one = run_tiny(run);
  for (const GridShape& grid : {GridShape{}, GridShape{.x = 2, .z = 2, .experts = 2}}) {
    run.grid = grid;
    for (const auto& [chunks, accumulation] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
      run.chunks = chunks;
      run.accumulation = accumulation;
      EXPECT_EQ(difference(one, run_tiny(run), run.dtype), "") << chunks << ' ' << accumulation;
    }
  }
}

TEST(Experts, BiasMovesTowardsExpertsThatWereChosenLess) {
  TinyRun run = balanced_run(with_sigmoid());
  run.balance = {.bias = 0.002};
  run.repeat_batch = true;
  run.lr = 0;  // only the biases move
  run.steps = 20;
  const TinyTrace moved = run_tiny(run);
  EXPECT_LT(moved.experts.back().max_load, moved.experts.front().max_load);
  run.balance.bias = 0;
  EXPECT_EQ(run_tiny(run).experts.back().max_load, moved.experts.front().max_load);
}

TEST(Experts, BiasMovesAlikeOnEveryGrid) {
  TinyRun run = balanced_run(with_sigmoid());
  run.balance.bias = 0.002;
  RoutingRecord choices;
  run.record = &choices;
  const auto biases = [&run] {
    std::vector<float> all;
    run.after = [&all](const Context& ctx, Model& model) {
      const ParameterSpec* bias = model.routers().biases.front();
      for (ParameterGroup* group : model.groups()) {
        group->acquire(ctx);
        for (const auto& parameter : group->parameters())
          if (&parameter->spec() == bias && ctx.grid.world().rank() == 0)
            all.assign(parameter->weight().as<float>(), parameter->weight().as<float>() + 8);
        group->release();
      }
    };
    run_tiny(run);
    return all;
  };
  const std::vector<float> one = biases();
  EXPECT_NE(one, std::vector<float>(8));
  run.record = nullptr;
  run.replay = &choices;
  for (const GridShape& grid :
       {GridShape{.x = 2, .y = 2, .z = 2, .experts = 2}, GridShape{1, 1, 2, 2}}) {
    run.grid = grid;
    EXPECT_EQ(biases(), one) << with_factors(grid);  // counts are integers: the same bits
  }
}

TEST(Experts, AdaptersOfAttentionTrainWhileExpertsStay) {
  ModelConfig model = tiny_mixtral();
  model.lora = {.rank = 4, .targets = {"q_proj", "o_proj"}};
  EXPECT_EQ(difference_replayed(balanced_run(model), expert_grids()), "");
}

/// The results of one step on grid 2,2,4,1 with 2 holders, with a fault, against one rank; the
/// faults of a backend, or of the collectives that `hits` names.
std::string with_fault(CommFault fault, std::function<std::unique_ptr<Backend>()> backend = {}) {
  RoutingRecord choices;
  TinyRun run = balanced_run(with_sigmoid());
  run.steps = 1;
  run.record = &choices;
  const TinyTrace one = run_tiny(run);
  run.record = nullptr;
  run.replay = &choices;
  run.grid = GridShape{.x = 2, .y = 2, .z = 4, .experts = 2};
  if (backend) run.make_backend = backend;
  const bool wraps = static_cast<bool>(fault.hits);
  TinyTrace faulty;
  run_ranks(run.grid.ranks(), [&](Communicator& world) {
    FaultyCommunicator wrong(world, fault);
    TinyTrace mine = run_tiny(run, wraps ? wrong : world);
    EXPECT_EQ(wrong.hits() > 0, wraps);
    if (world.rank() == 0) faulty = std::move(mine);
  });
  return difference(one, faulty, run.dtype);
}

CommFault drop(const std::string& group, const std::string& operation, std::int64_t count = 0) {
  return {.kind = CommFault::Kind::drop, .hits = [=](const Collective& call) {
            return call.group == group && call.operation == operation &&
                   (count == 0 || call.data.count == count);
          }};
}

TEST(Experts, LostRowsAreFound) {
  EXPECT_EQ(with_fault({}), "");
  EXPECT_NE(with_fault(drop("experts", "all_to_all")), "");
  EXPECT_NE(with_fault(drop("x", "all_to_all")), "");
}

TEST(Experts, ALostSumOfTheGradientsOfScoresIsFound) {
  // 24 rows of this rank, three experts each.
  EXPECT_NE(with_fault(drop("y", "all_reduce", 24 * 3)), "");
}

TEST(Experts, GradientsThatAreSummedOverRanksWithOtherExpertsAreFound) {
  EXPECT_NE(with_fault({.kind = CommFault::Kind::redirect,
                        .hits =
                            [](const Collective& call) {
                              return call.group == "same experts" &&
                                     call.operation == "reduce_scatter";
                            },
                        .to = "experts"}),
            "");
}

/// Combines the first row's experts with the scores of each other.
class WrongRow : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void run(const RowwiseOperation& operation) override {
    const auto* combine = std::get_if<ops::CombineRows>(&operation);
    if (!combine || !combine->weights.data) return ForwardingBackend::run(operation);
    const View& copy_rows = combine->copy_rows;
    std::vector<std::int32_t> wrong(copy_rows.as<std::int32_t>(),
                                    copy_rows.as<std::int32_t>() + copy_rows.count());
    std::swap(wrong[0], wrong[1]);
    ops::CombineRows swapped = *combine;
    swapped.copy_rows.data = wrong.data();
    ForwardingBackend::run(swapped);
  }
};

TEST(Experts, ACombinedRowOfAnotherExpertIsFound) {
  const auto backend = [] { return std::make_unique<WrongRow>(make_cpu_backend(1)); };
  EXPECT_NE(with_fault({}, backend), "");
}

/// Adds the squares of every gradient twice, as if a copy of it counted, too.
class CountsCopies : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void run(const RowwiseOperation& operation) override {
    ForwardingBackend::run(operation);
    if (std::holds_alternative<ops::SquaredSum>(operation)) ForwardingBackend::run(operation);
  }
};

TEST(Experts, ANormThatCountsCopiesIsFound) {
  const auto backend = [] { return std::make_unique<CountsCopies>(make_cpu_backend(1)); };
  EXPECT_NE(with_fault({}, backend), "");
}

}  // namespace
