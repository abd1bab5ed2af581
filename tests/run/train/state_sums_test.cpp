// Checksums of weights and optimizer state: each bit that flips between two updates is found by the
// next one, with rank, parameter and kind; no run without a flip has an alarm, or other losses.
#include "axonn/run/optim/state_sums.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/train/training.h"

#include "tests/support/runs.h"
#include "tests/support/sanitized.h"
#include "tests/support/state_places.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

Config with(const OptimizerKind kind, DType dtype, MomentType moments = MomentType::f32) {
  Config config = tiny_config("unused");
  config.optimizer.kind = kind;
  config.optimizer.moments = moments;
  config.training.dtype = dtype;
  config.training.steps = 1'000'000;
  config.optimizer.lr = 1e-5;
  config.lr_scheduler.kind = ScheduleKind::constant;
  return config;
}

/// Does `steps` steps on every rank. Before all but every third one, a bit of a rank flips, which
/// the update of that rank has to report, and no other. Returns the number of flips.
std::int64_t flip_in_steps(Config config, const GridShape& grid, int steps, std::uint64_t seed) {
  config = resolved(on_grid(config, grid));
  std::int64_t flips = 0;
  run_ranks(grid.ranks(), [&](Communicator& world) {
    Training training(prepared(config), world, make_cpu_backend(1));
    training.model.initialise();
    training.run(0);
    const Random random(seed, "flips");
    for (int step = 1; step < steps; ++step) {
      training.model.settle();
      const bool flipped = step % 3 != 0,
                 hit = flipped &&
                       static_cast<int>(random.below(4 * step, grid.ranks())) == world.rank();
      std::string want;
      std::byte* restored = nullptr;
      std::byte was{};
      if (hit) {
        const auto places = state_places(training, true);
        const Place& place = places[random.below(4 * step + 1, std::ssize(places))];
        std::int64_t byte = random.below(4 * step + 2, place.bytes);
        // Of a float the low byte of its mantissa, so that the training goes on with finite values.
        if (place.is_float) byte = byte / 4 * 4;
        was = place.begin[byte];
        if (place.frozen) restored = place.begin + byte;  // no update replaces it
        place.begin[byte] ^= std::byte{1} << random.below(4 * step + 3, 8);
        want = concat("silent corruption: ", training.model.grid().describe(), ": ", place.name);
      }
      std::string found;
      try {
        training.run(step);
      } catch (const Aborted&) {
        throw;
      } catch (const Error& error) {
        found = error.what();
      }
      if (restored) *restored = was;
      if (hit)
        EXPECT_THAT(found, StartsWith(want)) << "step " << step;
      else
        EXPECT_EQ(found, "") << "step " << step << ", rank " << world.rank();
      if (world.rank() == 0 && flipped) ++flips;
    }
  });
  return flips;
}

}  // namespace

TEST(StateSums, FindEachFlippedBitInTheNextUpdateOnItsRank) {
  const int steps = sanitized() ? 12 : 60;
  std::int64_t flips = 0;
  std::uint64_t seed = 0;
  for (const GridShape grid :
       {GridShape{}, GridShape{2, 1, 1, 2}, GridShape{1, 2, 2, 1}, GridShape{1, 1, 1, 3}})
    for (const DType dtype : {DType::f32, DType::bf16})
      flips += flip_in_steps(with(OptimizerKind::adamw, dtype), grid, steps, ++seed);
  EXPECT_EQ(flips, 8 * ((steps - 1) - (steps - 1) / 3));
}

TEST(StateSums, FindThemInTheStateOfEveryRule) {
  const int steps = sanitized() ? 9 : 40;
  std::uint64_t seed = 100;
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::lion, OptimizerKind::muon, OptimizerKind::ademamix,
        OptimizerKind::schedule_free_adamw, OptimizerKind::adafactor}) {
    Config config = with(kind, seed % 2 == 0 ? DType::f32 : DType::bf16);
    config.optimizer.sgd_momentum = kind == OptimizerKind::sgd ? 0.9 : 0;
    if (kind != OptimizerKind::schedule_free_adamw) config.optimizer.ema_decay = 0.9;
    SCOPED_TRACE(static_cast<int>(kind));
    flip_in_steps(config, {1, 1, 1, 2}, steps, ++seed);
  }
}

TEST(StateSums, FindThemInStateOfFewBits) {
  const int steps = sanitized() ? 9 : 40;
  std::uint64_t seed = 200;
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::muon})
    for (const MomentType moments : {MomentType::bf16, MomentType::eight_bits}) {
      Config config = with(kind, seed % 2 == 0 ? DType::f32 : DType::bf16, moments);
      config.model.hidden = 96;  // matrices of more than SmallLayout::kLeast elements
      flip_in_steps(config, {1, 2, 1, 1}, steps, ++seed);
    }
}

TEST(StateSums, FindThemInFrozenWeights) {
  Config config = with(OptimizerKind::adamw, DType::bf16);
  config.model.lora.rank = 4;
  flip_in_steps(config, {1, 1, 1, 2}, sanitized() ? 9 : 60, 300);
}

TEST(StateSums, ChangeNoBitOfATraining) {
  test::TemporaryPath folder;
  int number = 0;
  const auto losses = [&](Config config, bool sums) {
    config.output.dir = folder / std::to_string(++number);
    config.training.verify_state = sums;
    config.training.steps = 10;
    train_on_threads(config);
    return weights_of(config.output.dir + "/checkpoints/step-10");
  };
  for (const GridShape grid : {GridShape{}, GridShape{1, 2, 1, 2}})
    for (const MomentType moments : {MomentType::f32, MomentType::eight_bits}) {
      Config config = on_grid(with(OptimizerKind::adamw, DType::bf16, moments), grid);
      config.model.hidden = 96;
      config.model.mup_base = 48;  // a rate of its own for the first parameters of a group
      EXPECT_EQ(losses(config, true), losses(config, false));
    }
}

TEST(StateSums, RaiseNoAlarmWhereAParameterEndsWithinAWord) {
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{1, 1, 1, 2}})
    for (const MomentType moments : {MomentType::bf16, MomentType::eight_bits}) {
      Config config = on_grid(with(OptimizerKind::adamw, DType::bf16, moments), grid);
      config.model.hidden = 80;
      config.model.heads = 4;
      config.model.ffn = 37;
      config.training.steps = 4;
      config.output.dir = folder / "run";
      config.output.overwrite = true;
      EXPECT_NO_THROW(train_on_threads(config)) << to_string(grid);
    }
}

TEST(StateSums, AreComparedBeforeACheckpointAndForgottenWhenOneIsLoaded) {
  test::TemporaryPath folder;
  run_ranks(2, [&](Communicator& world) {
    Training training(
        prepared(resolved(on_grid(with(OptimizerKind::adamw, DType::bf16), {1, 1, 1, 2}))), world,
        make_cpu_backend(1));
    training.model.initialise();
    for (int step = 0; step < 2; ++step) training.run(step);
    training.optimizer.check_sums();
    save_checkpoint(training, folder.path(), 2);
    training.run(2);
    load_checkpoint(training, folder.path());
    training.run(2);
    training.optimizer.check_sums();
    training.model.settle();
    const Place place = state_places(training, false).back();
    if (world.rank() == 1) place.begin[2] ^= std::byte{64};
    if (world.rank() == 1)
      EXPECT_THROW(training.optimizer.check_sums(), Error);
    else
      EXPECT_NO_THROW(training.optimizer.check_sums());
  });
}

TEST(StateSums, KeepTheBitsThatSetValuesWrites) {
  run_ranks(2, [&](Communicator& world) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Training training(
          prepared(resolved(on_grid(with(OptimizerKind::adamw, dtype), {1, 1, 1, 2}))), world,
          make_cpu_backend(1));
      training.model.initialise();
      const Context ctx = training.model.context();
      for (int step = 0; step < 3; ++step) {
        training.run(step);
        ParameterGroup& group = *training.model.trained()[1];
        group.set_values(ctx, 0, std::vector<float>(group.piece_size(), 0.01F));
        if (step == 1) group.publish_values(ctx);
      }
      training.optimizer.check_sums();
    }
  });
}

TEST(StateSums, AFlippedBitEndsARunAtItsStepBeforeACheckpoint) {
  test::TemporaryPath folder;
  Config config = on_grid(tiny_config(folder / "run"), {1, 1, 1, 2});
  config.checkpoint.every = 1;
  TrainOptions options;
  options.after_step = [&](Training& training, std::int64_t done) {
    if (done != 4 || training.model.grid().world().rank() != 1) return;
    training.model.settle();
    state_places(training, false).front().begin[3] ^= std::byte{1};
  };
  try {
    train_on_threads(config, options);
    FAIL() << "the bit was not found";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                StartsWith("rank 1: silent corruption: rank 1 (x 0, y 0, z 0, data 1): "));
    EXPECT_THAT(error.what(), HasSubstr(" changed in memory between two updates"));
  }
  EXPECT_TRUE(std::filesystem::exists(config.output.dir + "/checkpoints/step-3"));
  EXPECT_FALSE(std::filesystem::exists(config.output.dir + "/checkpoints/step-4"));
}
