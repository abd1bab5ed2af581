// Optimizers and families that a program registers train, resume and are planned as those of the
// library. They are tested here, since they add sections to the configuration of every test of
// their program.
#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/model.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/train/resume.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// Gradient descent with heavy-ball momentum. `raw`: reads its values in its own loop instead of an
/// operation of the host.
class HeavyBall final : public Optimizer {
 public:
  HeavyBall(double mass, bool raw) : mass_(static_cast<float>(mass)), raw_(raw) {}
  std::vector<std::string> state_names() const override { return {"momentum"}; }

  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    const HostOperation operation{
        .name = "heavy_ball",
        .results = {group.master(), update.state[0]},
        .inputs = {group.gradient(), update.scale},
        .compute = [mass = mass_, lr = static_cast<float>(update.lr)](Views results, Views inputs) {
          float *const weight = results[0].as<float>(), *const velocity = results[1].as<float>();
          const float *const gradient = inputs[0].as<float>(), scale = *inputs[1].as<float>();
          for (std::int64_t i = 0; i < results[0].cols; ++i) {
            velocity[i] = mass * velocity[i] + scale * gradient[i];
            weight[i] -= lr * velocity[i];
          }
        }};
    if (raw_)
      operation.compute(operation.results, operation.inputs);
    else
      ctx.backend.on_host(operation);
    if (group.piece_of_compute().dtype != DType::f32)
      ctx.backend.run(ops::Cast{group.piece_of_compute(), group.master()});
  }

 private:
  float mass_;
  bool raw_;
};

std::unique_ptr<Optimizer> make_heavy_ball(const OptimizerConfig& config) {
  return std::make_unique<HeavyBall>(config.own<double>("heavy_ball.mass"),
                                     config.own<bool>("heavy_ball.raw"));
}

void check_mass(const OptimizerConfig& config) {
  if (config.own<double>("heavy_ball.mass") >= 1) refuse("[heavy_ball] mass is not below 1");
}

/// A config with the rule, which the first call registers.
Config with_heavy_ball(Config config) {
  static const bool once = [] {
    register_optimizer({.name = "heavy_ball",
                        .help = "Momentum",
                        .keys = {{.name = "mass", .value = 0.9, .help = "how heavy"},
                                 {.name = "raw", .value = false, .help = "reads its values"}},
                        .validate = check_mass,
                        .make = make_heavy_ball});
    return true;
  }();
  static_cast<void>(once);
  config.optimizer = {.kind = optimizer_kind("heavy_ball"), .lr = config.optimizer.lr};
  config.optimizer.own_values["heavy_ball.mass"] = 0.8;
  return config;
}

Config ready_to_dry_run(const Config& config) {
  validate(config);
  return with_vocab(resolved(config));
}

}  // namespace

TEST(RegisteredOptimizer, TrainsOnGridsAndResumesFromItsOwnState) {
  test::TemporaryPath folder;
  Config one = with_heavy_ball(tiny_config(folder / "one")),
         whole = with_heavy_ball(on_grid(tiny_config(folder / "whole"), {.x = 2, .z = 2}));
  whole.training.dtype = one.training.dtype = DType::bf16;
  train_on_threads(one);
  train_on_threads(whole);
  const auto losses = column(metrics_of(whole), "loss");
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_LT(largest_difference(losses, column(metrics_of(one), "loss")), 1e-2);  // bf16

  const std::string half = whole.output.dir + "/checkpoints/step-5";
  const OptimizerConfig stored = stored_config(CheckpointReader(half)).optimizer;
  EXPECT_EQ(stored.kind, whole.optimizer.kind);
  EXPECT_EQ(stored.own<double>("heavy_ball.mass"), 0.8);
  EXPECT_THAT(state_kinds(stored), ElementsAre("master", "momentum"));
  Config resumed = whole;
  resumed.output.dir = folder / "resumed";
  resumed.checkpoint.resume = half;
  train_on_threads(resumed);
  EXPECT_EQ(column(metrics_of(resumed), "loss"),
            std::vector<double>(losses.begin() + 5, losses.end()));
}

TEST(RegisteredOptimizer, IsCountedInDrySteps) {
  const DryStep dry = dry_step(prepared(ready_to_dry_run(with_heavy_ball(tiny_config("unused")))),
                               0, {.recording = true});
  int updates = 0;
  for (const auto& event : dry.recording.events)
    if (const auto* compute = std::get_if<Recording::Compute>(&event))
      updates += compute->operation == "heavy_ball" && compute->bytes() > 0;
  EXPECT_EQ(updates, 4);  // groups of the model: the embedding, two blocks, the head
}

TEST(RegisteredOptimizer, ThatReadsItsValuesItselfCannotBePlannedAndSaysSo) {
  Config config = with_heavy_ball(tiny_config("unused"));
  config.optimizer.own_values["heavy_ball.raw"] = true;
  EXPECT_THAT([&] { dry_step(prepared(ready_to_dry_run(config)), 0); },
              ThrowsMessage<Error>(AllOf(HasSubstr("registered_test.cpp:"),
                                         HasSubstr("do not exist"), HasSubstr("on_host()"))));
}

TEST(RegisteredOptimizer, HasKeysOfItsOwnAndNamesThoseThatItDoesNotRead) {
  Config config = with_heavy_ball(tiny_config("unused"));
  Origins origins;
  for (const char* key : {"optimizer.beta1", "optimizer.weight_decay", "optimizer.ema_decay"})
    origins.set(key, "a.toml:1:1");
  EXPECT_THAT(warnings(config, origins),
              ElementsAre("optimizer.beta1 (a.toml:1:1) has no effect: optimizer.kind is "
                          "heavy_ball, which does not read it"));
  EXPECT_THAT(config_toml(config, {}), HasSubstr("\n[heavy_ball]\nmass = 0.8\nraw = false\n"));
  config.optimizer.kind = OptimizerKind::adamw;
  origins = {};
  origins.set("heavy_ball.mass", "a.toml:1:1");
  EXPECT_THAT(warnings(config, origins), ElementsAre(HasSubstr("optimizer.kind is adamw")));
  EXPECT_THAT(config_toml(tiny_config("unused"), {}),
              HasSubstr("# mass = 0.9   # no effect: optimizer.kind is adamw"));
  config = with_heavy_ball(tiny_config("unused"));
  config.optimizer.own_values["heavy_ball.mass"] = 1.0;
  EXPECT_THAT([&] { validate(config); },
              ThrowsMessage<UsageError>(HasSubstr("mass is not below 1")));
  config.optimizer.own_values["heavy_ball.mas"] = 0.5;
  EXPECT_THAT([&] { validate(config); },
              ThrowsMessage<UsageError>(HasSubstr("did you mean 'heavy_ball.mass'")));
}

TEST(RegisteredFamily, ThatCannotContinueACheckpointNamesItsKeysThatDiffer) {
  register_architecture({.name = "twisted",
                         .help = "A GPT with a name of its own",
                         .keys = {{.name = "turns", .value = 1, .help = "how many"}},
                         .make = [](ModelConfig config, const Grid& grid) {
                           config.family = ModelFamily::gpt;
                           return make_model(resolved(config, 0, 0), grid);
                         }});
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.model.family = model_family("twisted");
  config.training.steps = 1;
  config.lr_scheduler.warmup_steps = 0;
  train_on_threads(config);
  config.model.own_values["twisted.turns"] = 2;
  const CheckpointReader reader(config.output.dir + "/checkpoints/step-1");
  const std::vector<StoredParameter> others;
  EXPECT_THAT([&] { check_continues(reader, config, others, {"master"}); },
              ThrowsMessage<UsageError>(HasSubstr("twisted.turns was 1 and is 2")));
}
