// Run under mpirun: training over MPI, with any overlap, must have the bits of training with
// threads as ranks (on rank 0), and the results of one rank within the tolerance. Exits with 1 if
// not. An argument is the largest random delay of each collective, in us.
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "axonn/ranks/comm/launcher.h"
#include "axonn/ranks/comm/mpi/mpi.h"

#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// Ten grids in all for the two world sizes that run this.
std::vector<GridShape> grids_for(int ranks) {
  if (ranks == 4)
    return {{4, 1, 1, 1}, {1, 4, 1, 1}, {1, 1, 4, 1}, {1, 1, 1, 4}, {2, 2, 1, 1}, {1, 1, 2, 2}};
  return {{2, 2, 2, 1}, {2, 1, 2, 2}, {1, 2, 2, 2}, {4, 2, 1, 1}};
}

/// The same with sequences that ranks share.
void compare_shared(Communicator& world) {
  ModelConfig model = tiny_llama();
  model.positions = 256;
  TinyRun run{.sequences = 4,
              .positions = model.positions,
              .steps = 3,
              .packed = true,
              .make_model = model_of(model)};
  TinyTrace one;
  if (world.rank() == 0) one = run_tiny(run);
  run.grid = world.size() == 4 ? GridShape{1, 1, 4, 1, 2} : GridShape{2, 1, 4, 1, 2};
  TinyTrace on_threads;
  if (world.rank() == 0) on_threads = run_tiny(run);
  world.barrier("computed");
  for (const bool overlap : {true, false}) {
    run.overlap.context = overlap;
    const TinyTrace over_mpi = run_tiny(run, world);
    if (world.rank() != 0) continue;
    EXPECT_EQ(over_mpi.losses, on_threads.losses);
    EXPECT_EQ(over_mpi.weights, on_threads.weights);
    EXPECT_EQ(difference(one, over_mpi, run.dtype), "");
  }
}

/// The same with experts that ranks share, which choose as on one rank.
void compare_experts(Communicator& world) {
  RoutingRecord choices;
  TinyRun run{.steps = 3,
              .balance = {.weight = 0.01, .z = 0.001},
              .record = &choices,
              .make_model = model_of(tiny_mixtral())};
  TinyTrace one, on_threads;
  if (world.rank() == 0) one = run_tiny(run);
  choices.share(world);
  run.record = nullptr;
  run.replay = &choices;
  run.grid =
      world.size() == 4 ? GridShape{.z = 4, .experts = 2} : GridShape{.x = 2, .z = 4, .experts = 4};
  if (world.rank() == 0) on_threads = run_tiny(run);
  world.barrier("computed");
  for (const Switches& switches : all_or_nothing()) {
    const TinyTrace over_mpi = run_tiny(with(switches, run), world);
    if (world.rank() != 0) continue;
    EXPECT_EQ(over_mpi.losses, on_threads.losses);
    EXPECT_EQ(over_mpi.weights, on_threads.weights);
    EXPECT_EQ(difference(one, over_mpi, run.dtype), "");
  }
}

void compare(Communicator& world) {
  compare_shared(world);
  compare_experts(world);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    TinyRun run{.steps = 3,
                .accumulation = dtype == DType::bf16 ? 3 : 1,
                .dtype = dtype,
                .make_model = tiny_gpt(4, true)};
    TinyTrace one;
    if (world.rank() == 0) one = run_tiny(run);
    for (const GridShape& grid : grids_for(world.size())) {
      run.grid = grid;
      TinyTrace on_threads;
      if (world.rank() == 0) on_threads = run_tiny(with(no_overlap(), run));
      world.barrier("computed");
      for (const Switches& switches : each_overlap()) {
        SCOPED_TRACE("grid " + to_string(grid) + ", " + switches.name);
        const TinyTrace over_mpi = run_tiny(with(switches, run), world);
        if (world.rank() != 0) continue;
        EXPECT_EQ(over_mpi.losses, on_threads.losses);
        EXPECT_EQ(over_mpi.norms, on_threads.norms);
        EXPECT_EQ(over_mpi.parameter_norms, on_threads.parameter_norms);
        EXPECT_EQ(over_mpi.weights, on_threads.weights);
        EXPECT_EQ(difference(one, over_mpi, dtype), "");
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!under_launcher()) {
    std::fprintf(stderr, "run this under mpirun\n");
    return 2;
  }
  run_mpi(compare, {.timeout_seconds = 120, .max_delay_us = argc > 1 ? std::atoi(argv[1]) : 0});
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}
