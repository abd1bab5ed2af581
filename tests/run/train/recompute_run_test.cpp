// Blocks that compute a part of their forward pass again: the same bits with less memory.
#include <gmock/gmock.h>

#include "axonn/plan/measure/compare.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/validate.h"

#include "tests/support/dry_peak.h"
#include "tests/support/runs.h"
#include "tests/support/sanitized.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

/// Activations take most of its memory.
Config recomputed_config(ModelFamily family = ModelFamily::llama) {
  Config config = tiny_config("unused");
  config.model.family = family;
  config.model.layers = 3;
  if (family == ModelFamily::llama) config.model.kv_heads = 6;
  config.training.seq_len = 32;
  return config;
}

/// A block as Apertus has it.
Config apertus_config() {
  Config config = recomputed_config();
  config.model.activation = MlpKind::xielu;
  config.model.qk_norm = QkNormKind::head;
  return config;
}

/// A block as OLMoE has it.
Config expert_config() {
  Config config = recomputed_config();
  config.model.qk_norm = QkNormKind::width;
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 24;
  config.training.balance = {.weight = 0.01, .z = 0.001};
  return config;
}

Config with_blocks(Config config, const RecomputedBlocks& blocks) {
  set_recomputed(config.activation_checkpoint, blocks);
  return config;
}

/// The first two blocks make `values` again, the last one nothing.
Config with_values(Config config, Recompute values) {
  return with_blocks(std::move(config), {.first = 2, .of_first = values});
}

GridTrace three_steps_of(const Config& config) {
  GridTrace trace;
  run_ranks(config.parallelism.grid().ranks(), [&](Communicator& world) {
    GridTrace mine = trace_run(prepared(config), world, make_cpu_backend(1), {.steps = 3});
    if (world.rank() == 0) trace = std::move(mine);
  });
  return trace;
}

/// Every value alone, every pair, and all values.
std::vector<Recompute> many_sets() {
  std::vector<Recompute> sets;
  Recompute everything;
  for (std::size_t i = 0; i < kRemadeNames.size(); ++i) {
    const auto value = static_cast<Remade>(i);
    everything.add(value);
    sets.push_back({value});
    for (std::size_t j = 0; j < i; ++j) sets.push_back({static_cast<Remade>(j), value});
  }
  sets.push_back(everything);
  sets.push_back(Recompute::all());
  return sets;
}

/// Expects the bits of `config` without recomputation.
void expect_same_bits(const Config& config, const std::vector<Recompute>& sets) {
  const GridTrace want = three_steps_of(config);
  for (const Recompute values : sets) {
    const Config again = with_values(config, values);
    SCOPED_TRACE(testing::Message() << with_factors(config.parallelism.grid()) << ": "
                                    << describe_recomputation(again));
    const GridTrace got = three_steps_of(again);
    EXPECT_EQ(got.losses, want.losses);
    EXPECT_EQ(got.norms, want.norms);
  }
}

std::int64_t peak_of(const Config& config) {
  return dry_step(prepared(config), 0).memory.peak_bytes;
}

std::int64_t kept_of(const Config& config) { return dry_step(prepared(config), 0).kept_bytes; }

}  // namespace

TEST(Recomputation, OfAnySetOfValuesHasTheSameBits) {
  for (const Config& given :
       {recomputed_config(), recomputed_config(ModelFamily::gpt), apertus_config()})
    for (const GridShape grid : {GridShape{}, GridShape{2, 2, 1, 1}}) {
      if (sanitized() && grid.ranks() > 1) continue;  // minutes, and the next test has grids
      Config config = given;
      if (grid.ranks() > 1) config.training.dtype = DType::bf16;
      expect_same_bits(resolved(on_grid(config, grid)), many_sets());
    }
}

TEST(Recomputation, HasTheSameBitsOnGridsWithContextExpertsChunksAndWithoutOverlap) {
  Recompute everything, products{Remade::qkv, Remade::up, Remade::residual};
  for (std::size_t i = 0; i < kRemadeNames.size(); ++i) everything.add(static_cast<Remade>(i));
  Config context = apertus_config();
  context.training.seq_len = 256;
  context.training.global_batch = 2;
  for (const auto& [given, grid] : {std::pair{apertus_config(), GridShape{2, 1, 2, 1}},
                                    {apertus_config(), GridShape{1, 2, 1, 2}},
                                    {context, GridShape{.z = 2, .context = 2}},
                                    {expert_config(), GridShape{}},
                                    {expert_config(), GridShape{.x = 2, .z = 2, .experts = 2}},
                                    {expert_config(), GridShape{.y = 2, .z = 2, .experts = 2}}})
    for (const bool overlap : {true, false}) {
      Config config = on_grid(given, grid);
      if (!overlap) config = without_overlap(config);
      if (overlap && given.model.experts == 0) config.parallelism.chunks = 2;
      expect_same_bits(resolved(config), {Recompute::light(), products, everything});
    }
}

TEST(Recomputation, OfAnyValueHasThePeakOfTheDryRun) {
  for (const Config& given :
       {recomputed_config(), recomputed_config(ModelFamily::gpt), apertus_config()})
    for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
      if (sanitized() && grid.ranks() > 1) continue;
      const Config config = resolved(on_grid(given, grid));
      Recompute more;
      for (std::size_t i = 0; i < kRemadeNames.size(); ++i) {
        expect_dry_peak(prepared(with_values(config, Recompute{static_cast<Remade>(i)})));
        more.add(static_cast<Remade>(i));
        expect_dry_peak(prepared(with_blocks(config, {.of_others = more})));
      }
    }
}

TEST(Recomputation, FreesTheBytesOfTheValuesThatItNames) {
  const Config config = resolved(apertus_config());
  const ModelConfig& m = config.model;
  const std::int64_t row = config.training.micro_batch * config.training.seq_len *
                           bytes_of(DType::f32),
                     qkv = (m.heads + 2 * m.kv_heads) * m.head_width();
  const auto saved = [&](Recompute values) {
    return (kept_of(config) - kept_of(with_values(config, values))) / (2 * row);
  };
  EXPECT_EQ(saved({Remade::norms}), 2 * m.hidden);
  EXPECT_EQ(saved({Remade::activations}), m.ffn);
  EXPECT_EQ(saved({Remade::up}), m.ffn);
  EXPECT_EQ(saved({Remade::activations, Remade::up}), 2 * m.ffn);
  EXPECT_EQ(saved({Remade::heads}), qkv);
  EXPECT_EQ(saved({Remade::qkv}), qkv);
  EXPECT_EQ(saved({Remade::attention}), m.heads * m.head_width());
  EXPECT_EQ(saved({Remade::residual}), m.hidden);
  const Config experts = resolved(expert_config());
  const auto of_experts = [&](Recompute values) {
    return (kept_of(experts) - kept_of(with_values(experts, values))) / (2 * row);
  };
  EXPECT_EQ(of_experts({Remade::norms}), 2 * m.hidden);
  EXPECT_EQ(of_experts({Remade::activations}),
            experts.model.experts_per_token * experts.model.expert_ffn);
}

TEST(Recomputation, WithMoreValuesTakesLessMemoryUpToTheFullOne) {
  const Config config = resolved(apertus_config());
  std::int64_t before = peak_of(config);
  Recompute more;
  for (const Remade value : {Remade::activations, Remade::norms, Remade::heads, Remade::up,
                             Remade::attention, Remade::qkv}) {
    more.add(value);
    const std::int64_t peak = peak_of(with_values(config, more));
    EXPECT_LT(peak, before) << static_cast<int>(value);
    before = peak;
  }
}

TEST(Recomputation, NamesTheKeyAndTheValuesThatThereAre) {
  Config config = recomputed_config();
  config.activation_checkpoint.mode = RecomputeMode::values;
  config.activation_checkpoint.first_values = {"norms", "products"};
  EXPECT_THAT([&] { validate(config); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  HasSubstr("[activation_checkpoint] first_values: unknown value 'products'"),
                  HasSubstr("norms, activations, heads"))));
  config.activation_checkpoint.first_values = {"all"};
  config.activation_checkpoint.values = {"norms"};
  config.activation_checkpoint.blocks = 1;
  config = resolved(config);
  EXPECT_EQ(describe_recomputation(config), "1 block computes everything again, 2 norms");
  EXPECT_DOUBLE_EQ(fully_recomputed(config), 1.0 / 3);
}

TEST(Recomputation, ModesAreNamesOfSetsOfValues) {
  Config config = recomputed_config();
  for (const RecomputeMode mode :
       {RecomputeMode::none, RecomputeMode::light, RecomputeMode::full}) {
    config.activation_checkpoint = {.mode = mode, .blocks = mode == RecomputeMode::full ? 0 : 2};
    Config same = config;
    set_recomputed(same.activation_checkpoint, recomputed_blocks(config.activation_checkpoint));
    EXPECT_EQ(same.activation_checkpoint.mode, mode);
    EXPECT_EQ(same.activation_checkpoint.blocks, config.activation_checkpoint.blocks);
  }
}
