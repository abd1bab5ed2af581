// Trains the model of neighbours.h on one rank and on a 2x2x2 grid, and compares the losses.
#include <cstdio>
#include <exception>

#include "axonn/comm/threads/threads.h"
#include "axonn/measure/compare.h"

#include "neighbours.h"

namespace {

axonn::GridTrace train_on(const axonn::GridShape& grid) {
  axonn::Config config;
  config.model.vocab = 256;
  config.data.synthetic = 100'000;  // bytes of generated text
  config.training = {.steps = 20, .seq_len = 32, .global_batch = 16};
  config.training.micro_batch = config.training.global_batch / (grid.z * grid.data);
  config.optimizer.lr = 3e-3;
  config.parallelism.x = grid.x;
  config.parallelism.y = grid.y;
  config.parallelism.z = grid.z;
  axonn::GridTrace trace;
  axonn::run_ranks(grid.ranks(), [&](axonn::Communicator& world) {
    const axonn::ModelMaker make = [](const axonn::ModelConfig&, const axonn::Grid& on) {
      return std::make_unique<Neighbours>(on, Neighbours::Options{});
    };
    const auto mine = axonn::trace_run(config, world, axonn::make_cpu_backend(1), 20, make);
    if (world.rank() == 0) trace = mine;
  });
  return trace;
}

int compare() {
  const axonn::GridTrace one = train_on({}), eight = train_on({.x = 2, .y = 2, .z = 2});
  std::printf("step   1,1,1,1    2,2,2,1\n");
  for (std::size_t s = 0; s < one.losses.size(); ++s)
    std::printf("%4zu   %.6f   %.6f\n", s + 1, one.losses[s], eight.losses[s]);
  const axonn::Tolerance tolerance = axonn::tolerance_of(axonn::DType::f32);
  const axonn::GridComparison comparison = axonn::compare(one, eight, tolerance);
  std::printf("\n%s", axonn::comparison_table({comparison}, tolerance).c_str());
  return comparison.agrees && one.losses.back() < one.losses.front() ? 0 : 1;
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
