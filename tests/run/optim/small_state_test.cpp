// Optimizers whose state is kept in 8 bits or in bf16 (optimizer.moments): what an update computes,
// on grids, resumed, and how much memory and disk it takes.
#include "axonn/run/optim/small_state.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/dynamic_map.h"
#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/optim/optimizer_state.h"

#include "tests/support/grids.h"
#include "tests/support/group_gradients.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

constexpr std::int64_t kRows = 50, kCols = 100, kElements = kRows * kCols, kVector = 30;
constexpr double kStepRate = 1e-3, kStepDecay = 0.1, kStepBeta1 = 0.9, kStepBeta2 = 0.95,
                 kStepEps = 1e-8;

/// A matrix, large enough for codes, and a vector, updated by gradients that the test gives.
class MatrixAndVector {
 public:
  MatrixAndVector(const OptimizerConfig& config, MomentType moments) {
    group_.add({.name = "matrix", .layout = {kRows, kCols}, .decays = true});
    group_.add({.name = "vector", .layout = {.rows = kVector}});
    group_.allocate(ctx_);
    group_.initialise(ctx_, 1);
    state_ = std::make_unique<OptimizerState>(
        std::vector<ParameterGroup*>{&group_}, make_optimizer(config),
        OptimizerState::Options{.moments = moments, .seed = 7});
    state_->allocate(ctx_);
  }

  /// Does an update; gradient(i) is that of element i, first those of the matrix.
  void step(std::int64_t number, const auto& gradient) {
    compute_gradients(ctx_, group_, [&](Parameter& parameter) { parameter.gradient(ctx_); });
    for (std::int64_t i = 0; i < kElements + kVector; ++i) at(group_.gradient(), i) = gradient(i);
    const Tensor scale = ctx_.empty(1, 1, DType::f32);
    *scale.view().as<float>() = 1;
    state_->update(ctx_, number, kStepRate, scale.view());
  }

  float weight(std::int64_t i) const { return at(group_.master(), i); }
  const SmallState& small() const { return *state_->small(0); }

 private:
  float& at(const View& flat, std::int64_t i) const {
    const auto& parameters = group_.parameters();
    return i < kElements ? flat.as<float>()[parameters[0]->offset() + i]
                         : flat.as<float>()[parameters[1]->offset() + i - kElements];
  }

  std::unique_ptr<Communicator> world_ = make_self();
  Grid grid_{*world_, {}};
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  Arena arena_{backend_->device()};
  Context ctx_{*backend_, arena_, grid_};
  ParameterGroup group_{"group", grid_};
  std::unique_ptr<OptimizerState> state_;
};

float gradient_of(std::int64_t i, std::int64_t step) {
  const double x = std::sin(static_cast<double>(i * 7 + step * 13));
  return static_cast<float>(1e-2 * x * x * x * std::exp(-static_cast<double>(i % 9)));
}

/// AdamW as PyTorch has it, with moments of the matrix that become their nearest codes.
class LoopWithCodes {
 public:
  explicit LoopWithCodes(const MatrixAndVector& start) {
    for (std::int64_t i = 0; i < kElements + kVector; ++i) weights.push_back(start.weight(i));
  }

  void step(std::int64_t number) {
    const auto t = static_cast<double>(number + 1);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double g = gradient_of(static_cast<std::int64_t>(i), number);
      first[i] = kStepBeta1 * first[i] + (1 - kStepBeta1) * g;
      second[i] = kStepBeta2 * second[i] + (1 - kStepBeta2) * g * g;
      const double m = first[i] / (1 - std::pow(kStepBeta1, t)),
                   v = second[i] / (1 - std::pow(kStepBeta2, t));
      const double decay = i < kElements ? kStepDecay : 0;
      weights[i] -= kStepRate * (m / (std::sqrt(v) + kStepEps) + decay * weights[i]);
    }
    store(first, DynamicMap::of_signed(), true);
    store(second, DynamicMap::of_unsigned(), false);
  }

  std::vector<double> weights;
  std::vector<double> first = std::vector<double>(kElements + kVector), second = first;

 private:
  static void store(std::vector<double>& values, const DynamicMap& map, bool is_signed) {
    for (std::int64_t begin = 0; begin < kElements; begin += 256) {
      const std::int64_t end = std::min<std::int64_t>(begin + 256, kElements);
      double most = 0;
      for (std::int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(values[i]));
      for (std::int64_t i = begin; i < end; ++i) {
        double best = 0, distance = INFINITY;
        for (int code = is_signed || values[i] == 0 ? 0 : 1; code < 256; ++code) {
          const double value = map.value(static_cast<std::uint8_t>(code)) * most;
          if (std::abs(value - values[i]) >= distance) continue;
          distance = std::abs(value - values[i]);
          best = value;
        }
        values[i] = best;
      }
    }
  }
};

/// A run with matrices of more than SmallLayout::kLeast elements, also cut over some ranks.
Config small_config(const std::string& folder, OptimizerKind kind, MomentType moments) {
  Config config = tiny_config(folder);
  config.model.hidden = 96;
  config.optimizer.kind = kind;
  config.optimizer.moments = moments;
  config.optimizer.lr = kind == OptimizerKind::lion ? 1e-4 : 3e-3;
  if (kind == OptimizerKind::sgd) config.optimizer.sgd_momentum = 0.9;
  return config;
}

constexpr OptimizerKind kSmallKinds[] = {OptimizerKind::adamw, OptimizerKind::ademamix,
                                         OptimizerKind::muon, OptimizerKind::lion,
                                         OptimizerKind::sgd};

std::string checkpoint_of(const Config& config, int step) {
  return config.output.dir + "/checkpoints/step-" + std::to_string(step);
}

}  // namespace

TEST(SmallState, UpdatesAsALoopInDoubleWithTheNearestCodes) {
  MatrixAndVector problem({.weight_decay = kStepDecay}, MomentType::eight_bits);
  LoopWithCodes want(problem);
  for (std::int64_t step = 0; step < 6; ++step) {
    problem.step(step, [&](std::int64_t i) { return gradient_of(i, step); });
    want.step(step);
    double worst = 0;
    for (std::int64_t i = 0; i < kElements + kVector; ++i)
      worst = std::max(worst, std::abs(problem.weight(i) - want.weights[i]));
    // f32's rounding, and codes of values in the middle of two, whose updates differ by a percent.
    EXPECT_LT(worst, 0.02 * kStepRate) << step;
  }
}

TEST(SmallState, GrowsNoUpdateWhenGradientsEnd) {
  // As the oracle "gradients_that_end" of bitsandbytes: sizes over five decades, then nothing.
  MatrixAndVector problem({.weight_decay = 0}, MomentType::eight_bits);
  const auto gradient = [](std::int64_t i) {
    return static_cast<float>(std::pow(10, -5.0 * static_cast<double>(i % 256) / 255));
  };
  for (std::int64_t step = 0; step < 8; ++step) {
    std::vector<float> before;
    for (std::int64_t i = 0; i < kElements; ++i) before.push_back(problem.weight(i));
    problem.step(step, [&](std::int64_t i) { return step < 3 ? gradient(i) : 0.0F; });
    double largest = 0;
    for (std::int64_t i = 0; i < kElements; ++i)
      largest = std::max(largest, std::abs(double{problem.weight(i)} - before[i]));
    EXPECT_LT(largest, 2.2 * kStepRate) << step;  // 27,000 with second moments that become 0
  }
}

TEST(SmallState, InBf16LetsASecondMomentFallThatPlainRoundingWouldFreeze) {
  OptimizerConfig config{.beta2 = 0.999, .weight_decay = 0};
  MatrixAndVector problem(config, MomentType::bf16);
  constexpr int kSteps = 300;
  for (int step = 0; step < kSteps; ++step)
    problem.step(step, [&](std::int64_t) { return step == 0 ? 1.0F : 0.0F; });
  const View second = problem.small()[1].small.view();
  double sum = 0;
  for (std::int64_t i = 0; i < kElements; ++i) sum += get(address<const bf16>(second)[i]);
  const double mean = sum / kElements, want = 1e-3 * std::pow(0.999, kSteps - 1);
  // Each of 300 roundings moves a value by at most 2^-8 of it, and half of that on average.
  EXPECT_NEAR(mean / want, 1, 5 * std::sqrt(double{kSteps}) * 0x1p-9 / std::sqrt(kElements));
}

TEST(SmallState, HasTheLossesOfOneRankOnGrids) {
  test::TemporaryPath folder;
  for (const MomentType moments : {MomentType::bf16, MomentType::eight_bits})
    for (const OptimizerKind kind : kSmallKinds) {
      Config one = small_config(folder / "one", kind, moments);
      one.output.dir += std::to_string(static_cast<int>(kind) * 4 + static_cast<int>(moments));
      train_on_threads(one);
      const auto losses = column(metrics_of(one), "loss");
      EXPECT_LT(losses.back(), losses.front());
      for (const GridShape& shape : {GridShape{.x = 2, .y = 2}, GridShape{.z = 2, .data = 2}}) {
        Config grid = on_grid(one, shape);
        grid.output.dir += "-" + to_string(shape);
        train_on_threads(grid);
        // Blocks of codes are those of a rank's piece: other codes, of a percent of a moment.
        const double allowed = moments == MomentType::bf16 ? 2e-4 : 2e-3;
        EXPECT_LT(largest_difference(losses, column(metrics_of(grid), "loss")), allowed)
            << to_string(shape) << ' ' << static_cast<int>(kind);
      }
    }
}

TEST(SmallState, ResumesToTheBitAndOnAnotherGrid) {
  test::TemporaryPath folder;
  for (const MomentType moments : {MomentType::bf16, MomentType::eight_bits})
    for (const OptimizerKind kind : kSmallKinds) {
      Config whole = on_grid(small_config(folder / "whole", kind, moments), {.x = 2, .z = 2});
      whole.output.dir += std::to_string(static_cast<int>(kind) * 4 + static_cast<int>(moments));
      whole.training.dtype = DType::bf16;
      train_on_threads(whole);
      const auto losses = column(metrics_of(whole), "loss");
      Config resumed = whole;
      resumed.output.dir += "-resumed";
      resumed.checkpoint.resume = checkpoint_of(whole, 5);
      train_on_threads(resumed);
      EXPECT_EQ(column(metrics_of(resumed), "loss"),
                std::vector<double>(losses.begin() + 5, losses.end()));
      for (const std::string& state : state_kinds(whole.optimizer))
        EXPECT_TRUE(weights_of(checkpoint_of(resumed, 10), state) ==
                    weights_of(checkpoint_of(whole, 10), state))
            << state;
      Config other = on_grid(resumed, {.y = 2});
      other.output.dir += "-other";
      train_on_threads(other);
      EXPECT_LT(largest_difference(std::vector<double>(losses.begin() + 5, losses.end()),
                                   column(metrics_of(other), "loss")),
                5e-3);  // bf16, whose products differ
    }
}

TEST(SmallState, ContinuesFromOneInF32) {
  test::TemporaryPath folder;
  const Config first = small_config(folder / "f32", OptimizerKind::adamw, MomentType::f32);
  train_on_threads(first);
  const auto losses = column(metrics_of(first), "loss");
  for (const MomentType moments : {MomentType::bf16, MomentType::eight_bits}) {
    Config next = first;
    next.optimizer.moments = moments;
    next.output.dir = folder / ("next" + std::to_string(static_cast<int>(moments)));
    next.checkpoint.resume = checkpoint_of(first, 5);
    train_on_threads(next);
    EXPECT_LT(largest_difference(column(metrics_of(next), "loss"),
                                 std::vector<double>(losses.begin() + 5, losses.end())),
              2e-3);
  }
}

TEST(SmallState, RefusesRulesWithOtherState) {
  for (const OptimizerKind kind : {OptimizerKind::schedule_free_adamw, OptimizerKind::adafactor}) {
    Config config = tiny_config("unused");
    config.optimizer.kind = kind;
    config.optimizer.moments = MomentType::eight_bits;
    if (kind == OptimizerKind::schedule_free_adamw)
      config.lr_scheduler.kind = ScheduleKind::constant;
    EXPECT_THAT([&] { validate(config); },
                testing::ThrowsMessage<UsageError>(HasSubstr("set moments = \"f32\"")));
  }
  EXPECT_THAT(
      [&] {
        OptimizerState({}, make_optimizer({.kind = OptimizerKind::adafactor}),
                       {.moments = MomentType::bf16});
      },
      testing::ThrowsMessage<Error>(HasSubstr("set optimizer.moments = \"f32\"")));
}

TEST(SmallState, OfARuleWithoutStateIsNone) {
  const OptimizerConfig config{.kind = OptimizerKind::sgd};
  MatrixAndVector small(config, MomentType::bf16), plain(config, MomentType::f32);
  for (MatrixAndVector* one : {&small, &plain})
    one->step(0, [](std::int64_t i) { return gradient_of(i, 0); });
  for (std::int64_t i = 0; i < kElements; ++i) ASSERT_EQ(small.weight(i), plain.weight(i));
}

TEST(SmallLayout, HasOneByteForEachValueOfLargeMatricesAndFourForOthers) {
  const auto world = make_self();
  const Grid grid(*world, {});
  ParameterGroup group("group", grid);
  group.add({.name = "matrix", .layout = {64, 65}, .decays = true});  // 4,160 elements: 17 blocks
  group.add({.name = "small", .layout = {63, 65}, .decays = true});   // 4,095
  group.add({.name = "vector", .layout = {.rows = 5000}});
  const SmallLayout coded(group, MomentType::eight_bits, {});
  EXPECT_EQ(coded.count(true), 17 * 256);
  EXPECT_EQ(coded.count(false), 16 * 256 + 20 * 256);
  EXPECT_EQ(coded.bytes(), 17 * (256 + 4) + 4 * 36 * 256);
  EXPECT_EQ(coded.stored_bytes(), 17 * (256 + 4) + 4 * (4095 + 5000));
  const SmallLayout halves(group, MomentType::bf16, {});
  EXPECT_EQ(halves.bytes(), 2 * (17 + 16 + 20) * 256);
}
