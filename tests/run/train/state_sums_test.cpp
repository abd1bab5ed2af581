// Checksums of weights and optimizer state: each bit that flips between two updates is found by the
// next one, with rank, parameter and kind, and set right if it is one of its cell; no run has other
// losses then, and none without a flip an alarm.
#include "axonn/run/optim/state_sums.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
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

/// Flips `bits` bits of a place in one word, and returns what the rank should say of it.
std::string flip(Place& place, const Random& random, std::uint64_t number, int bits) {
  std::int64_t byte = random.below(number, place.bytes);
  // Where the training goes on with wrong values, the low byte of a float, so that they are finite.
  if (bits > 1 && place.is_float) byte = byte / 4 * 4;
  const auto bit = static_cast<int>(random.below(number + 1, 8));
  for (int i = 0; i < bits; ++i) place.begin[byte] ^= std::byte{1} << (bit + 3 * i) % 8;
  return concat(": ", place.name);
}

/// Flips bits of a random place of a training's rank, and returns what it should say.
std::string flip_somewhere(Training& training, const Random& random, std::uint64_t number,
                           int bits) {
  auto places = state_places(training, true);
  Place& place = places[random.below(number, std::ssize(places))];
  return concat("silent corruption: ", training.model.grid().describe(),
                flip(place, random, number + 1, bits));
}

/// What the steps of a training come to: loss and norm of each.
using Course = std::vector<std::pair<double, double>>;

/// Does `steps` steps on every rank. With `flips`, a bit of a rank flips before all but every third
/// one; that rank has to say so, and no other one.
Course course_of(const Config& config, int steps, std::uint64_t seed, bool flips) {
  Course course;
  const int ranks = static_cast<int>(config.parallelism.grid().ranks());
  run_ranks(ranks, [&](Communicator& world) {
    Training training(prepared(config), world, make_cpu_backend(1));
    training.model.initialise();
    const Random random(seed, "flips");
    for (int step = 0; step < steps; ++step) {
      training.model.settle();
      const bool hit = flips && step > 0 && step % 3 != 0 &&
                       static_cast<int>(random.below(4 * step, ranks)) == world.rank();
      const std::string want = hit ? flip_somewhere(training, random, 4 * step + 1, 1) : "";
      const StepResult result = training.run(step);
      if (world.rank() == 0) course.emplace_back(result.loss, result.grad_norm);
      const std::vector<std::string> said = training.take_warnings();
      EXPECT_EQ(said.size(), hit ? 1 : 0) << "step " << step;
      for (const std::string& one : said) EXPECT_THAT(one, StartsWith(want)) << "step " << step;
    }
    EXPECT_TRUE(training.optimizer.check_sums());
  });
  return course;
}

/// Trainings of two steps, between which two bits of a word of a rank flip. It makes a copy anew if
/// it can; otherwise the step ends with the rank's error.
void find_two_bits(const Config& config, int trainings, std::uint64_t seed) {
  const int ranks = static_cast<int>(config.parallelism.grid().ranks());
  for (int i = 0; i < trainings; ++i) {
    std::string want, said;
    const Random random(seed + i, "two flips");
    const auto hit = static_cast<int>(random.below(0, ranks));
    try {
      run_ranks(ranks, [&](Communicator& world) {
        Training training(prepared(config), world, make_cpu_backend(1));
        training.model.initialise();
        training.run(0);
        training.model.settle();
        if (world.rank() == hit) want = flip_somewhere(training, random, 1, 2);
        training.run(1);
        for (const std::string& warning : training.take_warnings()) {
          EXPECT_EQ(world.rank(), hit) << warning;
          said = concat("rank ", world.rank(), ": ", warning);
        }
      });
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_THAT(said, StartsWith(concat("rank ", hit, ": ", want)));
  }
}

void flip_in_steps(const Config& of, const GridShape& grid, int steps, std::uint64_t seed) {
  const Config config = resolved(on_grid(of, grid));
  const Course clean = course_of(config, steps, seed, /*flips=*/false);
  EXPECT_EQ(clean.size(), steps);
  EXPECT_EQ(course_of(config, steps, seed, /*flips=*/true), clean);
  find_two_bits(config, steps / 3, seed);
}

}  // namespace

TEST(StateSums, SetEachFlippedBitRightOnItsRankAndFindSeveral) {
  const int steps = sanitized() ? 5 : 60;
  std::uint64_t seed = 0;
  for (const GridShape grid :
       {GridShape{}, GridShape{2, 1, 1, 2}, GridShape{1, 2, 2, 1}, GridShape{1, 1, 1, 3}})
    for (const DType dtype : {DType::f32, DType::bf16})
      flip_in_steps(with(OptimizerKind::adamw, dtype), grid, steps, ++seed);
}

TEST(StateSums, FindThemInTheStateOfEveryRule) {
  const int steps = sanitized() ? 5 : 40;
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
  const int steps = sanitized() ? 5 : 40;
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
  flip_in_steps(config, {1, 1, 1, 2}, sanitized() ? 5 : 60, 300);
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
    const bool hit = world.rank() == 1;
    if (hit) place.begin[2] ^= std::byte{64};
    EXPECT_EQ(training.optimizer.check_sums(), !hit);
    EXPECT_TRUE(training.optimizer.check_sums());
    if (hit) place.begin[2] ^= std::byte{65};
    if (hit)
      EXPECT_THROW(training.optimizer.check_sums(), Error);
    else
      EXPECT_TRUE(training.optimizer.check_sums());
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

namespace {

/// A run that saves after each step. After step 4, before it is saved, bits of rank 1 flip.
std::string failure_with_flip(const Config& config, int bits) {
  TrainOptions options;
  options.after_step = [&](Training& training, std::int64_t done) {
    if (done != 4 || training.model.grid().world().rank() != 1) return;
    training.model.settle();
    Place place = state_places(training, false).front();
    flip(place, Random(1, "flips"), 0, bits);
  };
  try {
    train_on_threads(config, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(StateSums, AFlippedBitIsInNoCheckpointAndInNoLoss) {
  test::TemporaryPath folder;
  const auto run = [&](const std::string& name, int bits) {
    Config config = on_grid(tiny_config(folder / name), {1, 1, 1, 2});
    config.checkpoint.every = 1;
    config.checkpoint.keep = 0;
    EXPECT_EQ(failure_with_flip(config, bits), "");
    return config;
  };
  const Config clean = run("clean", 0), flipped = run("flipped", 1);
  EXPECT_EQ(column(metrics_of(flipped), "loss"), column(metrics_of(clean), "loss"));
  for (const std::string step : {"/checkpoints/step-4", "/checkpoints/step-10"})
    for (const std::string kind : {"master", "exp_avg", "exp_avg_sq"})
      EXPECT_EQ(weights_of(flipped.output.dir + step, kind),
                weights_of(clean.output.dir + step, kind));
  EXPECT_THAT(read_text(flipped.output.dir + "/logs/rank-1.log"),
              HasSubstr("silent corruption: rank 1 (x 0, y 0, z 0, data 1): "));
}

TEST(StateSums, SeveralFlippedBitsEndARunAtItsStepBeforeACheckpoint) {
  test::TemporaryPath folder;
  Config config = on_grid(tiny_config(folder / "run"), {1, 1, 1, 2});
  config.checkpoint.every = 1;
  const std::string failure = failure_with_flip(config, 2);
  EXPECT_THAT(failure, StartsWith("rank 1: silent corruption: rank 1 (x 0, y 0, z 0, data 1): "));
  EXPECT_THAT(failure, HasSubstr(" changed in memory between two updates"));
  EXPECT_TRUE(std::filesystem::exists(config.output.dir + "/checkpoints/step-3"));
  EXPECT_FALSE(std::filesystem::exists(config.output.dir + "/checkpoints/step-4"));
}
