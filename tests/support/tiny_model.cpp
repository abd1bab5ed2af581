#include "tests/support/tiny_model.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <span>

#include "axonn/foundation/base/random.h"
#include "axonn/plan/measure/compare.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/train/expert_balance.h"
#include "axonn/run/train/step.h"

#include "tests/support/grids.h"
#include "tests/support/packed_rows.h"

namespace axonn::testing_support {

namespace {

/// Token t of sequence s of all the run's sequences.
std::int32_t random_token(const TinyRun& run, std::int64_t s, std::int64_t t) {
  const Random random(run.seed, "tokens");
  return static_cast<std::int32_t>(random.below(s * (run.positions + 1) + t, run.vocab));
}

/// This rank's sequences of a micro-batch.
Tokens random_tokens(const Context& ctx, const Model& model, const TinyRun& run, std::int64_t step,
                     int micro) {
  const GridShape& shape = ctx.grid.shape();
  const std::int64_t each = run.sequences / (batch_coordinates(shape) * run.accumulation);
  const int coordinate = ctx.grid.batch_coordinate();
  const std::int64_t first = (run.repeat_batch ? 0 : step) * run.sequences +
                             (coordinate * run.accumulation + micro) * each;
  std::vector<std::int32_t> ids, targets;
  for (std::int64_t s = first; s < first + each; ++s) {
    for (std::int64_t t = 0; t < run.positions; ++t) {
      ids.push_back(random_token(run, s, t));
      const bool counts = run.counted == 0 || t < run.counted;
      targets.push_back(counts ? random_token(run, s, t + 1) : -1);
    }
  }
  const Rows rows{each, run.positions, first * run.positions};
  const PackedRows packed(first, rows);
  RowPositions positions = run.packed ? packed.row_positions() : RowPositions{};
  positions.further = static_cast<int>(model.mtp_layers());
  return make_tokens(ctx, ids, targets, rows, positions);
}

/// The FNV-1a hash of the bits of this rank's piece of the weights.
std::int64_t hash_of_weights(Model& model) {
  std::uint64_t hash = 14695981039346656037u;
  for (ParameterGroup* group : trained_groups(model)) {
    const View master = group->master();
    for (const float value : std::span(master.as<float>(), master.cols))
      hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211u;
  }
  return std::bit_cast<std::int64_t>(hash);
}

}  // namespace

std::vector<std::int32_t> first_ids(const TinyRun& run) {
  std::vector<std::int32_t> ids;
  for (std::int64_t s = 0; s < run.sequences; ++s)
    for (std::int64_t t = 0; t < run.positions; ++t) ids.push_back(random_token(run, s, t));
  return ids;
}

TinyTrace run_tiny(const TinyRun& run, Communicator& world) {
  const auto backend = run.make_backend();
  Arena arena(backend->device());
  const Grid grid(world, run.grid);
  const auto model = run.make_model(grid);
  Context ctx(*backend, arena, grid, run.dtype);
  ctx.own_scheduling().run = {
      .overlap = run.overlap,
      .sequence_parallel = run.sequence_parallel,
      .sequence_cut = run.sequence_cut,
      .chunks = run.chunks,
      .recompute = {.of_others = run.recompute ? Recompute::all() : Recompute()},
      .keep_dispatch = run.keep_dispatch};
  for (ParameterGroup* group : model->groups()) {
    group->allocate(ctx);
    group->initialise(ctx, run.seed);
  }
  model->initialise_from_others(ctx);
  if (run.before) run.before(ctx, *model);
  OptimizerState optimizer(trained_groups(*model),
                           make_optimizer({.kind = run.optimizer, .lr = run.lr, .eps = run.eps}));
  optimizer.allocate(ctx);
  TrainStep step(*model, optimizer, make_loss_terms(*model, {.balance = run.balance}));
  if (auto* balance = step.term<ExpertBalance>())
    balance->routing().set_records(run.replay, run.record);
  TinyTrace trace;
  for (int s = 0; s < run.steps; ++s) {
    const StepResult report = step.run(
        ctx, {.step = s,
              .micro_batches = run.accumulation,
              .tokens = run.sequences * run.positions,
              .inputs = run.sequences * run.positions,
              .lr = run.lr,
              .tokens_of = [&](int micro) { return random_tokens(ctx, *model, run, s, micro); },
              .accept =
                  [&](double, double) {
                    if (s == 0) trace.parameter_norms = gradient_norms(ctx, optimizer);
                    return true;
                  }});
    trace.losses.push_back(report.loss);
    trace.norms.push_back(report.grad_norm);
    if (step.term<ExpertBalance>())
      trace.experts.push_back({.balance = report.metric("balance_loss"),
                               .z = report.metric("router_z_loss"),
                               .max_load = report.metric("max_expert_load")});
    trace.memory.push_back(arena.stats());
  }
  std::int64_t mine = hash_of_weights(*model);
  trace.weights.resize(world.size());
  world.all_gather(buffer(std::span(trace.weights)), buffer(std::span(&mine, 1))).wait();
  if (run.after) run.after(ctx, *model);
  return trace;
}

TinyTrace run_tiny(const TinyRun& run) {
  TinyTrace trace;
  run_ranks(run.grid.ranks(),
            [&](Communicator& world) {
              TinyTrace mine = run_tiny(run, world);
              if (world.rank() == 0) trace = std::move(mine);
            },
            {.max_delay_us = run.max_delay_us});
  return trace;
}

Switches no_overlap() { return {"no overlap", Overlap::none()}; }

std::vector<Switches> all_or_nothing() {
  return {no_overlap(), {"overlap"}, {"overlap and recomputation", {}, true}};
}

std::vector<Switches> each_overlap() {
  std::vector<Switches> each;
  const auto only = [&](const std::string& name, bool Overlap::*field) {
    each.push_back(no_overlap());
    each.back().name = "only " + name;
    each.back().overlap.*field = true;
  };
  only("input gradients", &Overlap::input_gradients);
  only("weight gradients", &Overlap::weight_gradients);
  only("weights", &Overlap::weights);
  only("data", &Overlap::data);
  only("context", &Overlap::context);
  std::ranges::copy(all_or_nothing(), std::back_inserter(each));
  return each;
}

TinyRun with(const Switches& switches, TinyRun run) {
  run.overlap = switches.overlap;
  run.recompute = switches.recompute;
  return run;
}

std::string difference(const TinyTrace& want, const TinyTrace& got, DType dtype) {
  const Tolerance tolerance = tolerance_of(dtype);
  const auto trace = [](const TinyTrace& t) {
    return GridTrace{{}, {}, t.losses, t.norms, t.parameter_norms, {}};
  };
  const GridComparison c = compare(trace(want), trace(got), tolerance);
  return c.agrees ? "" : comparison_table({c}, tolerance);
}

std::string difference_on_grids(TinyRun run, const std::vector<GridShape>& grids) {
  run.grid = {};
  if (sanitized()) run.steps = 2;
  const TinyTrace one = run_tiny(run);
  for (const GridShape& shape : grids) {
    run.grid = shape;
    const std::string text = difference(one, run_tiny(run), run.dtype);
    if (!text.empty()) return "grid " + with_factors(shape) + ":\n" + text;
  }
  return {};
}

std::string difference_replayed(TinyRun run, const std::vector<GridShape>& grids) {
  RoutingRecord choices;
  run.grid = {};
  if (sanitized()) run.steps = 2;
  run.record = &choices;
  const TinyTrace one = run_tiny(run);
  run.record = nullptr;
  run.replay = &choices;
  for (const GridShape& shape : grids) {
    run.grid = shape;
    const std::string text = difference(one, run_tiny(run), run.dtype);
    if (!text.empty()) return "grid " + with_factors(shape) + ":\n" + text;
  }
  return {};
}

std::function<std::unique_ptr<Model>(const Grid&)> model_of(const ModelConfig& config) {
  return [config](const Grid& grid) { return make_model(config, grid); };
}

ModelConfig tiny_llama() {
  return {.family = ModelFamily::llama,
          .layers = 2,
          .hidden = 96,
          .heads = 24,
          .kv_heads = 4,
          .head_dim = 4,
          .ffn = 192,
          .vocab = 251,
          .positions = 8,
          .tied = false};
}

ModelConfig tiny_mixtral() {
  ModelConfig config = tiny_llama();
  config.experts = 8;
  config.experts_per_token = 2;
  config.expert_ffn = 48;
  return config;
}

ModelConfig tiny_config(std::int64_t kv_heads, bool tied) {
  return {.layers = 2,
          .hidden = 96,
          .heads = 24,
          .kv_heads = kv_heads,
          .ffn = 384,
          .vocab = 251,
          .positions = 8,
          .tied = tied};
}

std::function<std::unique_ptr<Model>(const Grid&)> tiny_gpt(std::int64_t kv_heads, bool tied) {
  return model_of(tiny_config(kv_heads, tied));
}

}  // namespace axonn::testing_support
