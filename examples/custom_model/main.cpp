// Trains the same small model of its own on one rank and on a 2x2x2 grid, and compares the losses.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>

#include "axonn/comm/threads.h"
#include "axonn/data/sampler.h"
#include "axonn/data/synthetic.h"
#include "axonn/data/tokenizer.h"
#include "axonn/train/step.h"

#include "neighbours.h"

using namespace axonn;

namespace {

constexpr std::int64_t kLength = 32, kBatch = 16;  // bytes of a sequence, sequences of a step
constexpr int kSteps = 20;
constexpr double kRate = 3e-3, kTolerance = 2e-6;
constexpr std::uint64_t kSeed = 1;

Sampler make_sampler() {
  const auto tokens = make_tokenizer("bytes")->encode(synthetic_text(100'000, kSeed));
  const auto source = std::make_shared<MemoryTokens>("generated text", tokens);
  return Sampler({{.source = source, .end = source->size()}}, {.seq_len = kLength, .seed = kSeed});
}

/// This rank's sequences of a step. Ranks that differ in z or data have others, the rest the same.
Tokens tokens_of(const Context& ctx, const Sampler& sampler, std::int64_t step) {
  const GridShape& shape = ctx.grid.shape();
  const std::int64_t count = kBatch / (shape.z * shape.data);
  const std::int64_t place = ctx.grid.coord(Axis::data) * shape.z + ctx.grid.coord(Axis::z);
  std::vector<std::int32_t> window(kLength + 1), ids, targets;
  for (std::int64_t i = 0; i < count; ++i) {
    sampler.read(step * kBatch + place * count + i, window);
    ids.insert(ids.end(), window.begin(), window.end() - 1);
    targets.insert(targets.end(), window.begin() + 1, window.end());
  }
  Tokens tokens{.ids = ctx.empty(1, count * kLength, DType::i32),
                .targets = ctx.empty(1, count * kLength, DType::i32),
                .rows = {.sequences = count, .positions = kLength}};
  ctx.arena.device().copy_from_host(tokens.ids.view().data, ids.data(), tokens.ids.bytes());
  ctx.arena.device().copy_from_host(tokens.targets.view().data, targets.data(),
                                    tokens.targets.bytes());
  return tokens;
}

std::vector<double> train(Communicator& world, const GridShape& shape, const Sampler& sampler) {
  const auto backend = make_cpu_backend(1);
  Arena arena(backend->device());
  const Grid grid(world, shape);
  Neighbours model(grid, {});
  const Context ctx{.backend = *backend, .arena = arena, .grid = grid};
  for (ParameterGroup* group : model.groups()) {
    group->allocate(ctx);
    group->initialise(ctx, kSeed);
  }
  Optimizer optimizer(model.groups(), {.lr = kRate});
  optimizer.allocate(ctx);
  TrainStep step(model, optimizer);
  std::vector<double> losses;
  for (int s = 0; s < kSteps; ++s) {
    const StepResult result =
        step.run(ctx, {.step = s, .tokens = kBatch * kLength, .lr = kRate, .tokens_of = [&](int) {
                         return tokens_of(ctx, sampler, s);
                       }});
    losses.push_back(result.loss);
  }
  return losses;
}

std::vector<double> train_on(const GridShape& shape, const Sampler& sampler) {
  std::vector<double> losses;
  run_ranks(shape.ranks(), [&](Communicator& world) {
    const auto mine = train(world, shape, sampler);
    if (world.rank() == 0) losses = mine;
  });
  return losses;
}

int compare() {
  const Sampler sampler = make_sampler();
  const auto one = train_on({}, sampler), eight = train_on({2, 2, 2, 1}, sampler);
  double worst = 0;
  std::printf("step   1,1,1,1    2,2,2,1\n");
  for (int s = 0; s < kSteps; ++s) {
    std::printf("%4d   %.6f   %.6f\n", s + 1, one[s], eight[s]);
    worst = std::max(worst, std::abs(one[s] - eight[s]) / one[s]);
  }
  std::printf("largest relative difference %.1e, allowed %.0e\n", worst, kTolerance);
  return worst <= kTolerance && one.back() < one.front() ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return compare();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
