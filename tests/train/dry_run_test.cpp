#include "axonn/train/dry_run.h"

#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/comm/threads.h"
#include "axonn/train/planned_world.h"
#include "axonn/train/session.h"

#include "tests/io/temporary_path.h"
#include "tests/train/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

struct Measured {
  std::int64_t built = 0, with_gradients = 0, peak = 0;  ///< bytes of a rank's arena
};

/// What the arena of each rank held after building and after a step.
std::vector<Measured> measure(const Config& config) {
  std::vector<Measured> ranks(config.parallelism.grid().ranks());
  run_ranks(static_cast<int>(ranks.size()), [&](Communicator& world) {
    Session session(config, world, make_cpu_backend(1), {});
    session.initialise();
    Measured& mine = ranks[world.rank()];
    mine.built = session.arena().stats().live_bytes;
    session.train_step(session.step_input(0));
    mine.with_gradients = session.arena().stats().live_bytes;
    mine.peak = session.arena().stats().peak_bytes;
  });
  return ranks;
}

std::int64_t exact_bytes(const MemoryPlan& plan) {
  std::int64_t sum = 0;
  for (const auto& part : plan.parts)
    if (!part.estimated) sum += part.bytes;
  return sum;
}

std::int64_t bytes_of_part(const MemoryPlan& plan, const std::string& name) {
  for (const auto& part : plan.parts)
    if (part.name.starts_with(name)) return part.bytes;
  return 0;
}

Config gpt2_124m() {
  Config config = tiny_config("unused");
  config.model = {.layers = 12, .hidden = 768, .heads = 12, .vocab = 50257};
  config.training.seq_len = 1024;
  config.training.global_batch = 65536;
  config.training.micro_batch = 1;
  config.data.synthetic = 100'000;
  return config;
}

}  // namespace

TEST(DryRun, CountsParametersGradientsAndMomentsAsTheRankThenHoldsThem) {
  for (const GridShape grid :
       {GridShape{}, GridShape{2, 2, 1, 1}, GridShape{1, 1, 3, 2}, GridShape{3, 2, 2, 1}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
        Config config = on_grid(tiny_config("unused"), grid);
        config.training.dtype = dtype;
        config.optimizer.kind = kind;
        config = resolved(config);
        const std::vector<Measured> measured = measure(config);
        for (int rank = 0; rank < grid.ranks(); ++rank) {
          const MemoryPlan plan = plan_memory(config, rank);
          EXPECT_EQ(exact_bytes(plan), measured[rank].with_gradients)
              << to_string(grid) << " rank " << rank << ' ' << name_of(dtype);
          EXPECT_EQ(exact_bytes(plan) - bytes_of_part(plan, "gradients"), measured[rank].built);
        }
      }
}

TEST(DryRun, EstimatesTheActivationsOfAStepWithinAThird) {
  Config config = tiny_config("unused");
  config.model = {.layers = 6, .hidden = 96, .heads = 12, .vocab = 256};
  config.training.seq_len = 64;
  config.parallelism.sequence_parallel = false;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 1, 1}, GridShape{1, 2, 1, 1}})
    for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::full}) {
      Config here = on_grid(config, grid);
      here.activation_checkpoint.mode = mode;
      here = resolved(here);
      const Measured measured = measure(here).front();
      const auto activations = static_cast<double>(measured.peak - measured.with_gradients);
      const auto planned = static_cast<double>(bytes_of_part(plan_memory(here, 0), "activations"));
      EXPECT_NEAR(planned / activations, 1, 1.0 / 3)
          << to_string(grid) << (mode == RecomputeMode::full ? " recomputed" : "");
    }
}

TEST(DryRun, AnyRankOfThirtyTwoThousandTakesLessThanASecond) {
  const Config config = resolved(on_grid(gpt2_124m(), {4, 4, 32, 64}));
  for (const int rank : {0, 12345, 32767}) {
    const double begin = now_seconds();
    const DryRun run = dry_run(config, rank);
    EXPECT_LT(now_seconds() - begin, 1);
    EXPECT_EQ(run.parameters, 124'439'808);
    EXPECT_EQ(run.checkpoint_bytes, 124'439'808 * std::int64_t{12});
    EXPECT_THAT(run.place, StartsWith("rank " + std::to_string(rank) + " (x "));
  }
}

TEST(DryRun, ShowsTheFirstSampleOfTheRankAndItsTargetsShiftedByOne) {
  test::TemporaryPath folder;
  test::spill(folder / "text.txt", "zero.567one.4567two.4567three.67four.567five.567six");
  Config config = on_grid(tiny_config(folder / "out"), {.z = 3, .data = 2});
  config.data = {.text = {folder / "text.txt"}, .validation = "0", .shuffle = false};
  config.training.global_batch = 6;
  config = resolved(config);
  EXPECT_EQ(dry_run(config, 0).input, R"("zero.567")");
  EXPECT_EQ(dry_run(config, 0).target, R"("ero.567o")");
  EXPECT_EQ(dry_run(config, 1).input, R"("one.4567")");
  EXPECT_EQ(dry_run(config, 3).input, R"("three.67")");
  EXPECT_THAT(dry_run(config, 3).sample, StartsWith("sequence 4 of step 1: token 24 of "));
  EXPECT_THAT(test::names_in(folder.path()), testing::ElementsAre("text.txt"));
}

TEST(DryRun, RefusesWhatTheRunWouldRefuse) {
  const auto refusal = [](Config config, int rank = 0) -> std::string {
    try {
      dry_run(resolved(config), rank);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  const Config config = tiny_config("unused");
  EXPECT_THAT(refusal(on_grid(config, {.x = 5})),
              HasSubstr("12 heads cannot be cut over x = 5; x must be one of 1, 2, 3, 4, 6, 12"));
  EXPECT_THAT(refusal(on_grid(config, {.y = 5})), HasSubstr("width of 24 cannot be cut over y"));
  EXPECT_EQ(refusal(on_grid(config, {.x = 2}), 2),
            "--rank 2 is not on grid 2,1,1,1: ranks are 0 to 1");
  Config missing = config;
  missing.data = {.text = {"/no/such/file"}};
  EXPECT_THAT(refusal(missing), HasSubstr("/no/such/file"));
  Config resumed = config;
  resumed.checkpoint.resume = "/no/such/checkpoint";
  EXPECT_THAT(refusal(resumed), HasSubstr("/no/such/checkpoint"));
}

TEST(DryRun, SaysWhichCheckpointTheRunGoesOnFromAndRefusesAnotherModels) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder.path());
  train_on_threads(config);
  config.checkpoint.resume = "auto";
  EXPECT_EQ(dry_run(resolved(config), 0).resumes_from, folder / "checkpoints/step-10");
  config.model.ffn = 48;
  EXPECT_THROW(dry_run(resolved(config), 0), UsageError);
}

TEST(PlannedWorld, SaysWhereItIsAndRefusesToTalk) {
  const GridShape shape{2, 3, 1, 4};
  const auto world = make_planned_world(shape, 17);
  const Grid grid(*world, shape);
  EXPECT_EQ(grid.coords(), coords_of(shape, 17));
  EXPECT_EQ(grid.along(Axis::y).size(), 3);
  EXPECT_EQ(grid.along(Axis::data).rank(), 2);
  EXPECT_THROW(world->barrier(), Error);
  EXPECT_THROW(make_planned_world(shape, 24), Error);
}
