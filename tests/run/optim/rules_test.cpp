// SGD with momentum, Lion, Adafactor and schedule-free AdamW beside the values that their libraries
// compute, and clipping by norms and by value: on grids, resumed, and where the averaged weights
// are used.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/model_files.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/optim/optimizer_state.h"
#include "axonn/run/train/nonfinite.h"
#include "axonn/run/train/training.h"

#include "tests/support/group_gradients.h"
#include "tests/support/runs.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

constexpr int kWeights = 12, kMatrix = 8;
using Weights = std::array<float, kWeights>;

/// A matrix of kMatrix elements, which decay, and a vector of the others. In step s of twenty, the
/// gradient of weight i is h (w - t) + n, with h = 0.1 + 0.05 i, t = 0.2 i - 1 and
/// n = 0.1 ((i + 3 s) modulo 7 - 3).
class Problem {
 public:
  explicit Problem(const OptimizerConfig& config) {
    group_.add({.name = "matrix", .layout = {2, 4}, .decays = true});
    group_.add({.name = "vector", .layout = {.rows = kWeights - kMatrix}});
    group_.allocate(ctx_);
    group_.initialise(ctx_, 1);
    for (int i = 0; i < kWeights; ++i) at(group_.master(), i) = start(i);
    group_.publish_values(ctx_);
    state_ = std::make_unique<OptimizerState>(std::vector<ParameterGroup*>{&group_},
                                              make_optimizer(config));
    state_->allocate(ctx_);
  }

  /// `rate(s)` is the learning rate of step s.
  void twenty_steps(const auto& rate) {
    for (int s = 0; s < 20; ++s) {
      const Weights before = weights();
      compute_gradients(ctx_, group_, [&](Parameter& parameter) { parameter.gradient(ctx_); });
      for (int i = 0; i < kWeights; ++i) at(group_.gradient(), i) = gradient(before[i], i, s);
      Tensor scale = ctx_.empty(1, 1, DType::f32);
      *scale.view().as<float>() = 1;
      state_->update(ctx_, s, rate(s), scale.view());
    }
  }

  Weights weights() const { return values(group_.master()); }
  /// Those that are evaluated.
  Weights evaluated() {
    state_->exchange_evaluated(ctx_);
    const Weights found = weights();
    state_->exchange_evaluated(ctx_);
    return found;
  }

 private:
  static float start(int i) { return static_cast<float>(0.3 * (5 * i % 7 - 3) + 0.01 * i); }
  static float gradient(float w, int i, int s) {
    const auto h = static_cast<float>(0.1 + 0.05 * i), t = static_cast<float>(0.2 * i - 1),
               n = static_cast<float>(0.1 * ((i + 3 * s) % 7 - 3));
    return h * (w - t) + n;
  }
  float& at(const View& flat, int i) const {
    const auto& parameters = group_.parameters();
    return i < kMatrix ? flat.as<float>()[parameters[0]->offset() + i]
                       : flat.as<float>()[parameters[1]->offset() + i - kMatrix];
  }
  Weights values(const View& flat) const {
    Weights all;
    for (int i = 0; i < kWeights; ++i) all[i] = at(flat, i);
    return all;
  }

  std::unique_ptr<Communicator> world_ = make_self();
  Grid grid_{*world_, {}};
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  Arena arena_{backend_->device()};
  Context ctx_{*backend_, arena_, grid_};
  ParameterGroup group_{"group", grid_};
  std::unique_ptr<OptimizerState> state_;
};

/// Twenty steps of weights near 1 in f32, whose libraries round in another order.
constexpr float kTolerance = 1e-6F;

Weights after_twenty(const OptimizerConfig& config, double lr) {
  Problem problem(config);
  problem.twenty_steps([lr](int) { return lr; });
  return problem.weights();
}

auto are_near(const Weights& want) {
  return testing::Pointwise(testing::FloatNear(kTolerance), want);
}

OptimizerConfig sgd(double momentum, double dampening, bool nesterov) {
  return {.kind = OptimizerKind::sgd,
          .sgd_momentum = momentum,
          .sgd_dampening = dampening,
          .sgd_nesterov = nesterov};
}

/// A run of each new rule.
std::vector<Config> configs_of_rules(const std::string& folder) {
  std::vector<Config> configs;
  const auto add = [&](const OptimizerConfig& optimizer, double lr) {
    Config config = tiny_config(folder + "/" + std::to_string(configs.size()));
    config.optimizer = optimizer;
    config.optimizer.lr = lr;
    if (optimizer.kind == OptimizerKind::schedule_free_adamw)
      config.lr_scheduler.kind = ScheduleKind::constant;
    config.training.eval_every = 5;
    configs.push_back(config);
  };
  add(sgd(0.9, 0, true), 0.1);
  add(sgd(0.8, 0.3, false), 0.1);
  add({.kind = OptimizerKind::lion, .beta2 = 0.99}, 1e-3);
  add({.kind = OptimizerKind::adafactor}, 1e-2);
  add({.kind = OptimizerKind::adafactor,
       .adafactor_form = AdafactorForm::pytorch,
       .adafactor_beta1 = 0.9},
      1e-2);
  add({.kind = OptimizerKind::schedule_free_adamw}, 1e-2);
  return configs;
}

/// Trains without momentum for one step of rate `lr`, and returns all weights.
std::vector<float> weights_after_one_step(Config config, double lr) {
  config.optimizer = {.kind = OptimizerKind::sgd, .lr = lr, .weight_decay = 0};
  config.lr_scheduler = {.kind = ScheduleKind::constant};
  config.training.steps = 1;
  config.output.dir += "-" + std::to_string(lr > 1e-9);
  config.output.overwrite = true;
  train_on_threads(config);
  std::vector<float> all;
  for (const auto& [name, values] : weights_of(config.output.dir + "/checkpoints/step-1"))
    all.insert(all.end(), values.begin(), values.end());
  return all;
}

/// The gradient by which SGD steps in the first step of this config.
std::vector<double> step_of(const Config& config) {
  const std::vector<float> before = weights_after_one_step(config, 1e-30),
                           after = weights_after_one_step(config, 1);
  std::vector<double> step;
  for (std::size_t i = 0; i < before.size(); ++i) step.push_back(double{before[i]} - after[i]);
  return step;
}

double norm(const std::vector<double>& values, double p) {
  double sum = 0, most = 0;
  for (const double value : values) {
    sum += std::pow(std::abs(value), p);
    most = std::max(most, std::abs(value));
  }
  return std::isinf(p) ? most : std::pow(sum, 1 / p);
}

/// Grids on which x, y, z and data are cut; under sanitizers one, on which x and z are.
std::vector<GridShape> several_ranks() {
  if (sanitized()) return {{2, 1, 2, 1}};
  return {{2, 2, 1, 1}, {1, 1, 2, 2}};
}

std::vector<GridShape> one_rank_and_several() {
  std::vector<GridShape> shapes = several_ranks();
  shapes.insert(shapes.begin(), GridShape());
  return shapes;
}

}  // namespace

// torch.optim.SGD of PyTorch 2.13, lr 0.05, weight_decay 0.1 of the matrix.
TEST(SgdWithMomentum, HasPyTorchsWeightsAfterTwentySteps) {
  EXPECT_THAT(
      after_twenty(sgd(0.9, 0, false), 0.05),
      are_near({-0.535151243, -0.463620663, -0.427130818, -0.253927737, -0.453311861, -0.103138104,
                0.300271571, 0.728045404, 0.576563597, 1.06409204, 1.53070855, 1.25808179}));
  EXPECT_THAT(
      after_twenty(sgd(0.9, 0, true), 0.05),
      are_near({-0.535729766, -0.457271576, -0.409711391, -0.265357971, -0.401793778, -0.085091427,
                0.279152453, 0.624543607, 0.58095336, 1.00819492, 1.38111603, 1.22940755}));
  EXPECT_THAT(
      after_twenty(sgd(0.8, 0.3, false), 0.05),
      are_near({-0.688529968, 0.0217000134, -0.231275991, -0.38682735, 0.0737064779, 0.0534741841,
                0.104200058, 0.258827925, 0.624521732, 0.77047956, 0.94838357, 1.19428766}));
}

// lion_pytorch 0.2.5, lr 0.02, betas (0.9, 0.99), weight_decay 0.1 of the matrix.
TEST(Lion, HasTheWeightsOfLionPytorchAfterTwentySteps) {
  EXPECT_THAT(
      after_twenty({.kind = OptimizerKind::lion, .beta2 = 0.99}, 0.02),
      are_near({-0.826091945, 0.232229456, -0.216512769, -0.508734524, 0.510616183, 0.13935037,
                0.00608941168, -0.404933393, 0.640000045, 0.490000099, -0.0999999046, 1.16999984}));
}

// AdamWScheduleFree of schedulefree 1.4.1, lr 0.05, betas (0.9, 0.95), weight_decay 0.1 of the
// matrix, without and with warmup_steps = 5: its parameters in training, and after eval().
TEST(ScheduleFreeAdamW, HasTheAuthorsWeightsOfTrainingAndOfEvaluationAfterTwentySteps) {
  const OptimizerConfig config{.kind = OptimizerKind::schedule_free_adamw};
  Problem problem(config);
  problem.twenty_steps([](int) { return 0.05; });
  EXPECT_THAT(problem.weights(), are_near({-0.869209707, 0.172735617, -0.241621107, -0.468480945,
                                           0.459595174, 0.130614281, 0.0328060426, -0.332857877,
                                           0.624396682, 0.516823888, 0.0315524153, 1.17776382}));
  EXPECT_THAT(problem.evaluated(),
              are_near({-0.870539069, 0.203577965, -0.228956401, -0.474152863, 0.498057753,
                        0.148020074, 0.00814670976, -0.371955782, 0.630429864, 0.484775692,
                        -0.00913103949, 1.17617512}));
  Problem warm(config);
  warm.twenty_steps([](int s) { return 0.05 * std::min(1.0, (s + 1) / 5.0); });
  EXPECT_THAT(warm.weights(), are_near({-0.886790574, 0.20606859, -0.204970017, -0.46485579,
                                        0.487162322, 0.135858327, 0.04152143, -0.360610545,
                                        0.614432693, 0.487251848, -0.00257785036, 1.16650069}));
  const Weights before = warm.weights();
  EXPECT_THAT(warm.evaluated(), are_near({-0.888752639, 0.232407659, -0.193353847, -0.469072044,
                                          0.520281076, 0.151178852, 0.0216989871, -0.394109637,
                                          0.61701709, 0.459409595, -0.0370044857, 1.16328514}));
  EXPECT_EQ(warm.weights(), before);
}

// torch.optim.Adafactor of PyTorch 2.13, weight_decay 0.1 of the matrix: lr 0.05; and with eps
// (0.3, 0.5), d 2 and beta2_decay -0.5.
TEST(Adafactor, HasPyTorchsWeightsAfterTwentySteps) {
  OptimizerConfig config{
      .kind = OptimizerKind::adafactor, .adafactor_form = AdafactorForm::pytorch, .eps1 = 0x1p-23};
  EXPECT_THAT(
      after_twenty(config, 0.05),
      are_near({-0.811292768, 0.149661362, -0.202025548, -0.490320623, 0.487059385, 0.167374358,
                -0.0184524115, -0.335074246, 0.638126254, 0.547603309, 0.0808514059, 1.13188744}));
  config.eps1 = 0.3;
  config.eps2 = 0.5;
  config.clip_threshold = 2;
  config.beta2_decay = -0.5;
  EXPECT_THAT(
      after_twenty(config, 0.05),
      are_near({-0.827413738, 0.25829643, -0.134981573, -0.487311006, 0.401849002, 0.15939106,
                0.000908668851, -0.134821177, 0.631814778, 0.578277767, 0.118008159, 1.13029909}));
}

// Adafactor of transformers 5.23, weight_decay 0.1 of the matrix: lr None; lr 0.05 without
// scale_parameter and relative_step, with beta1 0.9, clip_threshold 0.5 and decay_rate -0.5; and
// lr 0.05 without relative_step, with eps (0.01, 0.6).
TEST(Adafactor, HasTheWeightsOfTransformersAfterTwentySteps) {
  EXPECT_THAT(
      after_twenty({.kind = OptimizerKind::adafactor}, 0.01),
      are_near({-0.88712126, 0.489356309, -0.0457785949, -0.554647624, 0.830993474, 0.301802933,
                -0.180399001, -0.70906657, 0.669204414, 0.19602932, -0.380226135, 1.05834913}));
  EXPECT_THAT(
      after_twenty({.kind = OptimizerKind::adafactor,
                    .adafactor_beta1 = 0.9,
                    .beta2_decay = -0.5,
                    .clip_threshold = 0.5,
                    .scale_parameter = false,
                    .relative_step = false},
                   0.05),
      are_near({-0.819252491, 0.294200718, -0.13547112, -0.490128249, 0.607945144, 0.205523923,
                -0.102059983, -0.46307981, 0.661129951, 0.364843369, -0.180957243, 1.10724735}));
  EXPECT_THAT(
      after_twenty(
          {.kind = OptimizerKind::adafactor, .eps1 = 0.01, .eps2 = 0.6, .relative_step = false},
          0.05),
      are_near({-0.852388859, 0.118760362, -0.217286199, -0.500641108, 0.454580575, 0.158969089,
                0.0129230041, -0.280078053, 0.637947202, 0.540531635, 0.0812173337, 1.12856555}));
}

TEST(Rules, HaveTheLossesOfOneRankOnGrids) {
  test::TemporaryPath folder;
  for (const Config& one : configs_of_rules(folder / "one")) {
    train_on_threads(one);
    const auto losses = column(metrics_of(one), "loss");
    EXPECT_LT(losses.back(), losses.front());
    for (const GridShape& shape : several_ranks()) {
      Config grid = on_grid(one, shape);
      grid.output.dir += "-" + to_string(shape);
      train_on_threads(grid);
      // The sign of a mean near 0 may differ between sums of another order.
      const double allowed = one.optimizer.kind == OptimizerKind::lion ? 1e-3 : 1e-5;
      EXPECT_LT(largest_difference(losses, column(metrics_of(grid), "loss")), allowed)
          << to_string(shape) << ' ' << static_cast<int>(one.optimizer.kind);
    }
  }
}

TEST(Rules, ResumeToTheBit) {
  test::TemporaryPath folder;
  for (Config whole : configs_of_rules(folder / "whole")) {
    whole = on_grid(whole, {.x = 2, .z = 2});
    whole.training.dtype = DType::bf16;
    train_on_threads(whole);
    Config resumed = whole;
    resumed.output.dir += "-resumed";
    resumed.checkpoint.resume = whole.output.dir + "/checkpoints/step-5";
    train_on_threads(resumed);
    for (const std::string& kind : stored_kinds(whole.optimizer))
      EXPECT_TRUE(weights_of(resumed.output.dir + "/checkpoints/step-10", kind) ==
                  weights_of(whole.output.dir + "/checkpoints/step-10", kind))
          << kind;
    const auto losses = column(metrics_of(whole), "loss");
    EXPECT_EQ(column(metrics_of(resumed), "loss"),
              std::vector<double>(losses.begin() + 5, losses.end()));
    EXPECT_EQ(metrics_of(resumed).back().at("val_loss"), metrics_of(whole).back().at("val_loss"));
  }
}

TEST(ScheduleFreeAdamW, ValidatesAndExportsTheAverageAndTrainsOnAsIfItHadNot) {
  test::TemporaryPath folder;
  Config config = configs_of_rules(folder / "run").back();
  train_on_threads(config);
  const std::string end = config.output.dir + "/checkpoints/step-10";
  EXPECT_FALSE(weights_of(end) == weights_of(end, "y"));
  // The stored weights have the loss that the run reported.
  const auto loss_of = [](const Config& given) {
    double loss = 0;
    run_ranks(1, [&](Communicator& world) {
      Training training(prepared(given), world);
      training.model.initialise();
      loss = training.validate();
    });
    return loss;
  };
  Config stored = config_of_model(end);
  stored.optimizer = config.optimizer;
  stored.lr_scheduler = config.lr_scheduler;
  EXPECT_EQ(loss_of(stored), metrics_of(config).back().at("val_loss").get<double>());

  Config rarely = config;
  rarely.output.dir += "-rarely";
  rarely.training.eval_every = 0;
  train_on_threads(rarely);
  EXPECT_EQ(column(metrics_of(rarely), "loss"), column(metrics_of(config), "loss"));
}

TEST(ScheduleFreeAdamW, IsSavedBeforeItsFirstUpdateAndContinuesFromThere) {
  test::TemporaryPath folder;
  const Config config = configs_of_rules(folder / "run").back();
  const auto losses = [&](bool saved) {
    std::vector<double> all;
    run_ranks(1, [&](Communicator& world) {
      Training training(prepared(config), world);
      training.model.initialise();
      if (saved) save_checkpoint(training, folder / "saved", 0);
      Training other(prepared(config), world);
      if (saved) load_checkpoint(other, folder / "saved");
      for (int step = 0; step < 3; ++step) all.push_back((saved ? other : training).run(step).loss);
    });
    return all;
  };
  EXPECT_EQ(losses(true), losses(false));
}

TEST(ScheduleFreeAdamW, SavesAStepWithTheWeightsThatComputedIt) {
  test::TemporaryPath folder;
  const Config config = configs_of_rules(folder / "run").back();
  run_ranks(1, [&](Communicator& world) {
    Training training(prepared(config), world);
    training.model.initialise();
    for (int step = 0; step < 3; ++step) training.run(step);
    save_step(training, training.input(3), folder / "saved",
              {{"config.toml", config_toml(config, Origins())}, {"state.json", "{}"}});
    const double loss = training.run(3).loss;
    EXPECT_EQ(
        replay(prepared(config_of_step(folder / "saved")), folder / "saved", world).result.loss,
        loss);
  });
}

TEST(Rules, RefuseKeysThatContradictThem) {
  const auto refusal = [](const auto& change) {
    Config config = tiny_config("unused");
    change(config);
    try {
      validate(config);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal([](Config& c) { c.optimizer.kind = OptimizerKind::schedule_free_adamw; }),
              HasSubstr("set [lr_scheduler] kind = \"constant\""));
  EXPECT_THAT(refusal([](Config& c) {
                c.optimizer.kind = OptimizerKind::schedule_free_adamw;
                c.lr_scheduler.kind = ScheduleKind::constant;
                c.optimizer.ema_decay = 0.9;
              }),
              HasSubstr("set ema_decay = 0"));
  EXPECT_THAT(refusal([](Config& c) {
                c.optimizer.kind = OptimizerKind::sgd;
                c.optimizer.sgd_nesterov = true;
              }),
              HasSubstr("wants a momentum without dampening"));
  EXPECT_THAT(refusal([](Config& c) { c.training.clip_value = 0.1; }),
              HasSubstr("set max_norm = 0, or leave clip_value out"));
  EXPECT_THAT(refusal([](Config& c) { c.training.norm_type = 40; }),
              HasSubstr("a number from 1 to 32, or inf, got 40"));
  EXPECT_THAT(refusal([](Config& c) {
                c.training.norm_type = 3;
                c.training.cuda_graph = true;
              }),
              HasSubstr("norm_type = 3 exclude one another"));
}

TEST(Rules, SayWhichKeysTheyDoNotRead) {
  Config config = tiny_config("unused");
  Origins origins;
  for (const char* key : {"optimizer.momentum", "optimizer.sgd_nesterov", "optimizer.eps"})
    origins.set(key, "a.toml");
  const auto lines = [&](OptimizerKind kind) {
    config.optimizer.kind = kind;
    return warnings(config, origins);
  };
  EXPECT_THAT(lines(OptimizerKind::sgd),
              testing::IsSupersetOf(
                  {HasSubstr("optimizer.momentum (a.toml) has no effect: optimizer.kind is sgd, "
                             "whose keys are sgd_momentum"),
                   HasSubstr("optimizer.sgd_nesterov (a.toml) has no effect: "
                             "optimizer.sgd_momentum is 0")}));
  for (const char* key : {"optimizer.eps2", "optimizer.beta1"}) origins.set(key, "a.toml");
  config.optimizer.scale_parameter = false;
  EXPECT_THAT(lines(OptimizerKind::adafactor),
              testing::IsSupersetOf({HasSubstr("optimizer.beta1 (a.toml) has no effect: "
                                               "optimizer.kind is adafactor, whose keys are"),
                                     HasSubstr("optimizer.scale_parameter is false")}));
  EXPECT_THAT(lines(OptimizerKind::lion),
              testing::IsSupersetOf({HasSubstr("optimizer.kind is lion, which divides by nothing"),
                                     HasSubstr("optimizer.kind is not sgd"),
                                     HasSubstr("optimizer.kind is not muon")}));
}

TEST(Clipping, ByEveryNormScalesTheStepAsPyTorchDoesOnEveryGrid) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "free");
  config.training.max_norm = 0;
  const std::vector<double> free = step_of(config);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const GridShape& shape : one_rank_and_several())
    for (const double p : {1.0, 1.5, 3.0, kInf}) {
      Config clipped = on_grid(config, shape);
      clipped.output.dir = folder / "clipped";
      clipped.training.norm_type = p;
      const double whole = norm(free, p);
      clipped.training.max_norm = whole / 2;
      const std::vector<double> half = step_of(clipped);
      // Steps are differences of weights below 2 in f32.
      for (std::size_t i = 0; i < free.size(); ++i) ASSERT_NEAR(half[i], free[i] / 2, 5e-7) << p;
      if (shape.ranks() > 1) continue;
      clipped.training.max_norm = whole * 1.01;
      const std::vector<double> same = step_of(clipped);
      for (std::size_t i = 0; i < free.size(); ++i) ASSERT_NEAR(same[i], free[i], 5e-7) << p;
    }
}

TEST(Clipping, ByValueLimitsEachElementAndReportsTheNormBeforeIt) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "free");
  config.training.max_norm = 0;
  const std::vector<double> free = step_of(config);
  config.output.dir = folder / "clipped";
  config.training.clip_value = norm(free, std::numeric_limits<double>::infinity()) / 3;
  const double limit = config.training.clip_value;
  for (const GridShape& shape : one_rank_and_several()) {
    const Config grid = on_grid(config, shape);
    const std::vector<double> clipped = step_of(grid);
    for (std::size_t i = 0; i < free.size(); ++i)
      ASSERT_NEAR(clipped[i], std::clamp(free[i], -limit, limit), 5e-7);
    Config last = grid;
    last.output.dir += "-1";
    EXPECT_NEAR(metrics_of(last).back().at("grad_norm").get<double>(), norm(free, 2), 1e-4);
  }
}
