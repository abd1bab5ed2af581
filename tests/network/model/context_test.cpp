#include <set>

#include <gtest/gtest.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/support/faulty_communicator.h"
#include "tests/support/grids.h"
#include "tests/support/sanitized.h"
#include "tests/support/tiny_model.h"

// Ranks that share sequences: the losses of one rank on every grid, and what changes no bit.

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// Grids on which z has one context or several, and other axes are cut, too.
std::vector<GridShape> context_grids() {
  if (sanitized()) return {{.x = 2, .z = 2, .context = 2}, {.y = 2, .z = 2, .context = 2}};
  return {{.z = 2, .context = 2},
          {.z = 4, .context = 2},
          {.z = 4, .context = 4},
          {.x = 2, .z = 2, .context = 2},
          {.y = 2, .z = 2, .context = 2},
          {.z = 2, .data = 2, .context = 2},
          {.x = 2, .y = 2, .z = 2, .context = 2},
          {.y = 2, .z = 2, .data = 2, .context = 2},
          {.z = 8, .context = 2},
          {.z = 8, .context = 4},
          {.x = 3, .z = 2, .context = 2}};
}

ModelConfig with_positions(ModelConfig model, std::int64_t positions) {
  model.positions = positions;
  return model;
}

TinyRun run_of(const ModelConfig& model) {
  return {.sequences = 4, .positions = model.positions, .steps = 3, .make_model = model_of(model)};
}

ModelConfig llama() { return with_positions(tiny_llama(), 512); }

TEST(Context, GptHasTheLossesOfOneRank) {
  EXPECT_EQ(
      difference_on_grids(run_of(with_positions(tiny_config(24, true), 512)), context_grids()), "");
}

TEST(Context, LlamaHasTheLossesOfOneRankInFiveSteps) {
  TinyRun run = run_of(llama());
  run.steps = 5;
  EXPECT_EQ(difference_on_grids(run, context_grids()), "");
}

TEST(Context, DocumentsAndWindowsHaveTheLossesOfOneRank) {
  ModelConfig model = llama();
  model.window = 100;
  TinyRun run = run_of(model);
  run.packed = true;
  for (const ContextLayout layout :
       {ContextLayout::zigzag, ContextLayout::balanced, ContextLayout::window}) {
    run.sequence_cut = {layout, model.window};
    EXPECT_EQ(difference_on_grids(run, context_grids()), "");
  }
}

TEST(Context, ChunksAsInLlama4HaveTheLossesOfOneRank) {
  const std::vector<GridShape> some = {{.z = 4, .context = 4},
                                       {.x = 2, .y = 2, .z = 2, .context = 2}};
  ModelConfig model = llama();
  model.window_chunks = true;
  model.window = 50;
  TinyRun run = run_of(model);
  run.packed = true;
  for (const ContextLayout layout : {ContextLayout::balanced, ContextLayout::window}) {
    run.sequence_cut = {layout, model.window};
    EXPECT_EQ(difference_on_grids(run, some), "");
  }
  model.window = 128;
  model.full_layers = {1};
  EXPECT_EQ(difference_on_grids(run_of(model), context_grids()), "");
}

TEST(Context, LatentAttentionHasTheLossesOfOneRank) {
  ModelConfig model = llama();
  model.kv_heads = model.heads;
  model.kv_lora_rank = 12;
  model.q_lora_rank = 24;
  model.qk_nope_head_dim = 6;
  model.qk_rope_head_dim = 12;
  model.v_head_dim = 8;
  EXPECT_EQ(difference_on_grids(run_of(model), context_grids()), "");
}

/// A gated delta net and attention; the net has this many key heads and value heads.
ModelConfig delta_model(std::int64_t key_heads, std::int64_t value_heads) {
  ModelConfig model = llama();
  model.attention_gate = true;
  model.qk_norm = QkNormKind::head;
  model.delta_layers = {0};
  model.delta = {
      .key_heads = key_heads, .value_heads = value_heads, .key_dim = 5, .value_dim = 7, .taps = 3};
  return model;
}

TEST(Context, GatedDeltaNetsHaveTheLossesOfOneRank) {
  EXPECT_EQ(difference_on_grids(run_of(delta_model(2, 12)), context_grids()), "");
}

TEST(Context, GatedDeltaNetsOfAnyHeadsAndDocumentsHaveTheLossesOfOneRank) {
  const std::vector<GridShape> grids = {
      {.z = 2, .context = 2}, {.z = 4, .context = 4}, {.x = 2, .y = 2, .z = 2, .context = 2}};
  // Fewer heads than ranks, a group of heads that ranks divide, heads that they cannot.
  for (const auto& [key_heads, value_heads] : {std::pair{1, 1}, {1, 6}, {3, 3}, {5, 5}}) {
    ModelConfig model = delta_model(key_heads, value_heads);
    model.window = 100;
    TinyRun run = run_of(model);
    run.packed = true;
    run.sequence_cut = {.layout = ContextLayout::balanced};
    EXPECT_EQ(difference_on_grids(run, grids), "") << key_heads << ' ' << value_heads;
  }
}

TEST(Context, SinksHaveTheLossesOfOneRank) {
  ModelConfig model = llama();
  model.sinks = true;
  model.window = 100;
  model.full_layers = {1};
  EXPECT_EQ(difference_on_grids(run_of(model), context_grids()), "");
}

TEST(Context, AWindowOfNeighboursKeysHasTheLossesOfOneRank) {
  // Of 128 positions a rank: a window within a block, one of whole blocks, the longest.
  for (const std::int64_t window : {2, 65, 128}) {
    ModelConfig model = llama();
    model.window = window;
    TinyRun run = run_of(model);
    run.sequence_cut = {ContextLayout::window, window};
    EXPECT_EQ(difference_on_grids(
                  run, {GridShape{.z = 4, .context = 4}, GridShape{.x = 2, .z = 2, .context = 2}}),
              "");
  }
}

/// Windows at the borders of blocks and of the halo of a rank that has this many positions, and of
/// the whole sequence: one less, the border, one and two more.
std::set<std::int64_t> windows_at_borders(std::int64_t each, std::int64_t whole) {
  std::set<std::int64_t> windows;
  for (const std::int64_t border : {kContextBlock, each - kContextBlock, each, whole})
    for (std::int64_t window = border - 1; window <= border + 2; ++window) windows.insert(window);
  return windows;
}

TEST(Context, NoLengthOfTheWindowChangesLossesOrGradients) {
  // On two ranks the longest halo and a run together are as long as a sequence.
  for (const int ranks : sanitized() ? std::vector{2} : std::vector{2, 4}) {
    const std::int64_t whole = unit_of_cut(ranks);
    for (const std::int64_t window : windows_at_borders(whole / ranks, whole)) {
      ModelConfig model = with_positions(tiny_llama(), whole);
      model.layers = 1;
      model.window = window;
      TinyRun run = run_of(model);
      run.sequences = run.steps = 1;
      run.sequence_cut = {ContextLayout::automatic, window};
      run.packed = window % 2 == 0;  // on both sides of each border, one with documents
      EXPECT_EQ(difference_on_grids(run, {GridShape{.z = ranks, .context = ranks}}), "")
          << ranks << " ranks, window " << window;
    }
  }
}

TEST(Context, SomeRanksMayHaveNoTargetThatCounts) {
  ModelConfig model = llama();
  model.window = 100;
  TinyRun run = run_of(model);
  run.counted = 100;  // all in the first rank's run
  for (const ContextLayout layout : {ContextLayout::window, ContextLayout::zigzag}) {
    run.sequence_cut = {layout, model.window};
    EXPECT_EQ(difference_on_grids(
                  run, {GridShape{.z = 4, .context = 4}, GridShape{.x = 2, .z = 2, .context = 2}}),
              "");
  }
}

TEST(Context, BatchMayBeSmallerThanZTimesData) {
  TinyRun run = run_of(with_positions(tiny_llama(), 1024));
  run.sequences = 1;
  EXPECT_EQ(difference_on_grids(
                run, {GridShape{.z = 8, .context = 8}, GridShape{.x = 2, .z = 4, .context = 4}}),
            "");
}

TEST(Context, AdaptersDropOutTheSameElements) {
  ModelConfig model = llama();
  model.lora = {.rank = 4, .dropout = 0.3};
  EXPECT_EQ(difference_on_grids(run_of(model), context_grids()), "");
}

TEST(Context, Bfloat16StaysWithinOnePercent) {
  TinyRun run = run_of(llama());
  run.dtype = DType::bf16;
  EXPECT_EQ(difference_on_grids(
                run, {GridShape{.x = 2, .z = 2, .context = 2}, GridShape{.z = 4, .context = 4}}),
            "");
}

TEST(Context, ChunksAndAccumulationKeepTheLosses) {
  TinyRun run = run_of(llama());
  run.sequences = 8;
  const TinyTrace one = run_tiny(run);
  run.grid = GridShape{.y = 2, .z = 2, .context = 2};
  for (const auto& [chunks, accumulation] : {std::pair{2, 1}, {2, 4}, {1, 8}}) {
    run.chunks = chunks;
    run.accumulation = accumulation;
    EXPECT_EQ(difference(one, run_tiny(run), run.dtype), "") << chunks << ' ' << accumulation;
  }
}

void expect_no_bit_changes(std::int64_t window) {
  ModelConfig model = llama();
  model.window = window;
  TinyRun run = run_of(model);
  run.packed = true;
  run.sequence_cut = {ContextLayout::automatic, window};
  run.grid = GridShape{.x = 2, .z = 4, .context = 2};
  const TinyTrace want = run_tiny(run);
  const auto expect_same = [&](const TinyRun& other, const char* what) {
    const TinyTrace got = run_tiny(other);
    EXPECT_EQ(got.losses, want.losses) << what;
    EXPECT_EQ(got.norms, want.norms) << what;
    EXPECT_EQ(got.weights, want.weights) << what;
  };
  TinyRun other = run;
  other.overlap.context = false;
  expect_same(other, "one piece");
  other.overlap = Overlap::none();
  expect_same(other, "no overlap");
  other = run;
  other.recompute = true;
  expect_same(other, "recomputation");
  other = run;
  other.max_delay_us = 200;
  expect_same(other, "delays");
}

TEST(Context, NeitherOverlapNorRecomputationNorDelaysChangeABit) {
  for (const std::int64_t window : {0, 100}) expect_no_bit_changes(window);
}

/// Computes attention as if the queries here were the first positions of their sequences.
class LocalPositions : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void attention(const Attention& args) override {
    const std::int64_t each = args.queries() / kSequenceBlock;
    std::vector<std::int32_t> local;
    for (std::int64_t i = 0; i < args.query_blocks.cols; ++i)
      local.push_back(static_cast<std::int32_t>(i % each));
    Attention wrong = args;
    wrong.query_blocks.data = local.data();
    ForwardingBackend::attention(wrong);
  }
};

TEST(Context, LocalPositionsInAttentionAreFound) {
  TinyRun run = run_of(llama());
  run.steps = 1;
  const TinyTrace one = run_tiny(run);
  run.grid = GridShape{.z = 2, .context = 2};
  run.make_backend = [] { return std::make_unique<LocalPositions>(make_cpu_backend(1)); };
  EXPECT_NE(difference(one, run_tiny(run), run.dtype), "");
}

/// A run of one step that loses what keys exchange: the collectives of this name.
void expect_found(const ModelConfig& model, const std::set<std::string_view>& operations) {
  TinyRun run = run_of(model);
  run.sequence_cut = {ContextLayout::automatic, model.window};
  run.steps = 1;
  const TinyTrace one = run_tiny(run);
  run.grid = GridShape{.x = 2, .z = 2, .context = 2};
  TinyTrace faulty;
  run_ranks(run.grid.ranks(), [&](Communicator& world) {
    FaultyCommunicator wrong(
        world, {.kind = CommFault::Kind::drop, .hits = [&](const Collective& call) {
                  return call.group == "context" && operations.contains(call.operation);
                }});
    TinyTrace mine = run_tiny(run, wrong);
    EXPECT_GT(wrong.hits(), 0);
    if (world.rank() == 0) faulty = std::move(mine);
  });
  EXPECT_NE(difference(one, faulty, run.dtype), "") << *operations.begin();
}

TEST(Context, LostKeysAndGradientsOfKeysAreFound) {
  expect_found(llama(), {"all_gather"});
  expect_found(llama(), {"reduce_scatter"});
  ModelConfig model = llama();
  model.window = 100;  // keys come from the rank before
  expect_found(model, {"send", "recv"});
}

}  // namespace
