// A user's own update rule trains, on any grid, and resumes from checkpoints that hold its state.
#include "axonn/run/optim/optimizer.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

namespace {

/// Gradient descent with heavy-ball momentum 0.9, in plain loops.
class Momentum final : public Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {"momentum"}; }

  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    float* weight = group.master().as<float>();
    float* velocity = update.state[0].as<float>();
    const float* gradient = group.gradient().as<float>();
    const float scale = *update.scale.as<float>();
    for (std::int64_t i = 0; i < group.piece_size(); ++i) {
      velocity[i] = 0.9F * velocity[i] + scale * gradient[i];
      weight[i] -= static_cast<float>(update.lr) * velocity[i];
    }
    if (group.piece_of_compute().dtype != DType::f32)
      ctx.backend.run(ops::Cast{group.piece_of_compute(), group.master()});
  }
};

TrainOptions with_momentum() {
  return {.make_optimizer = [](const OptimizerConfig&) { return std::make_unique<Momentum>(); }};
}

}  // namespace

TEST(Optimizer, WrongRegistrationsAndKindsAreRefused) {
  const auto make = [](const OptimizerConfig&) { return std::make_unique<Momentum>(); };
  EXPECT_THAT([] { register_optimizer({.name = "unmade", .help = {}, .make = {}}); },
              ThrowsMessage<Error>(HasSubstr("'unmade' has no function `make`")));
  EXPECT_THAT([&] { register_optimizer({.name = "sgd", .help = {}, .make = make}); },
              ThrowsMessage<Error>(HasSubstr("optimizer.kind 'sgd' exists already (adamw, sgd")));
  EXPECT_THAT(
      [&] { register_optimizer({.name = "a", .help = {}, .reads = {"beta4"}, .make = make}); },
      ThrowsMessage<Error>(HasSubstr("'a' reads 'beta4', which is no key of [optimizer]")));
  EXPECT_THAT([] { optimizer_kind("adam"); },
              ThrowsMessage<UsageError>(HasSubstr("optimizer.kind wants one of adamw, sgd,")));
  EXPECT_THAT([] { make_optimizer({.kind = static_cast<OptimizerKind>(99)}); },
              ThrowsMessage<Error>(HasSubstr("optimizer.kind has no value 99")));
}

TEST(Optimizer, HasNoMoreStateThanItNames) {
  const std::vector<View> one(1);
  const StateViews state(one);
  EXPECT_EQ(state[0].count(), 0);
  EXPECT_THAT([&] { state[1]; },
              ThrowsMessage<Error>(HasSubstr("state[1]: the rule's state_names() has 1 names")));
  EXPECT_THAT([&] { OptimizerState({}, make_optimizer({})).buffers(0); },
              ThrowsMessage<Error>(HasSubstr("there is no group 0 of 0")));
  class Named final : public Optimizer {
   public:
    explicit Named(std::vector<std::string> names) : names_(std::move(names)) {}
    std::vector<std::string> state_names() const override { return names_; }
    void update(const Context&, const ParameterGroup&, const Update&) const override {}

   private:
    std::vector<std::string> names_;
  };
  for (const auto& names : {std::vector<std::string>{"a", "a"}, {"master"}, {"ema"}, {""}})
    EXPECT_THAT([&] { OptimizerState({}, std::make_unique<Named>(names)); },
                ThrowsMessage<Error>(HasSubstr("wanted names that differ")));
  EXPECT_THAT([&] { OptimizerState({}, nullptr); },
              ThrowsMessage<Error>(HasSubstr("there is no optimizer")));
}

TEST(Optimizer, OfTheUserHasTheLossesOfOneRankOnAGridOfEveryAxis) {
  test::TemporaryPath folder;
  Config one = tiny_config(folder / "one"), grid = tiny_config(folder / "grid");
  grid = on_grid(grid, {2, 1, 2, 3});
  train_on_threads(one, with_momentum());
  train_on_threads(grid, with_momentum());
  const auto losses = column(metrics_of(one), "loss");
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_LT(largest_difference(losses, column(metrics_of(grid), "loss")), 1e-5);
}

TEST(Optimizer, StateOfTheUsersRuleIsInCheckpointsAndResumesToTheBit) {
  test::TemporaryPath folder;
  Config whole = on_grid(tiny_config(folder / "whole"), {.x = 2, .z = 2});
  whole.training.dtype = DType::bf16;
  train_on_threads(whole, with_momentum());
  const std::string half = whole.output.dir + "/checkpoints/step-5";
  for (const auto& [name, values] : weights_of(half, "momentum"))
    EXPECT_TRUE(std::ranges::any_of(values, [](float value) { return value != 0; })) << name;

  Config resumed = whole;
  resumed.output.dir = folder / "resumed";
  resumed.checkpoint.resume = half;
  train_on_threads(resumed, with_momentum());
  const auto losses = column(metrics_of(whole), "loss");
  EXPECT_EQ(column(metrics_of(resumed), "loss"),
            std::vector<double>(losses.begin() + 5, losses.end()));
}

TEST(Optimizer, KindsOfTheLibraryKeepTheBuffersThatPyTorchKeeps) {
  EXPECT_THAT(make_optimizer({.kind = OptimizerKind::adamw})->state_names(),
              ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(make_optimizer({.kind = OptimizerKind::sgd})->state_names(), IsEmpty());
}
