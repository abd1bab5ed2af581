// Muon and AdEMAMix beside plain loops in double, in checkpoints, and what they refuse.
#include "axonn/run/optim/muon.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/optim/adamw.h"

#include "tests/support/group_gradients.h"
#include "tests/support/reference.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using reference::Matrix;
using testing::HasSubstr;

namespace {

constexpr double kRounding = 0x1p-24;
constexpr double kClip = 0.5, kRate = 0.01;

Matrix normal_values(const std::string& name, std::int64_t rows, std::int64_t cols) {
  const Random random(7, name);
  Matrix values(rows, cols);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    values.values[i] = static_cast<float>(random.normal(i));
  return values;
}

Matrix row_range(const Matrix& all, std::int64_t row, std::int64_t rows) {
  Matrix part(rows, all.cols);
  std::copy_n(all.values.begin() + row * all.cols, rows * all.cols, part.values.begin());
  return part;
}

std::vector<std::array<double, 3>> in_double(const NewtonSchulzSteps& steps) {
  std::vector<std::array<double, 3>> wide;
  for (const auto& [a, b, c] : steps) wide.push_back({a, b, c});
  return wide;
}

/// How much Newton-Schulz steps may enlarge an error: the slope at 0 of each step's polynomial.
double enlargement(const NewtonSchulzSteps& steps) {
  double product = 1;
  for (const auto& step : steps) product *= step[0];
  return product;
}

/// One rank's group with a wide and a tall hidden matrix, three joined ones, a matrix that is not
/// hidden, and a vector; its optimizer does steps with made-up gradients.
class OneGroup {
 public:
  explicit OneGroup(const OptimizerConfig& config) {
    group_.add({.name = "wide", .layout = {24, 40}, .init_std = 1, .decays = true, .hidden = true});
    group_.add({.name = "tall", .layout = {40, 24}, .init_std = 1, .decays = true, .hidden = true});
    const Segment segment{.rows = 12};
    group_.add({.name = "joined",
                .layout = {.rows = 36, .cols = 16, .segments = {segment, segment, segment}},
                .init_std = 1,
                .decays = true,
                .hidden = true});
    group_.add({.name = "table", .layout = {9, 16}, .init_std = 1, .decays = true});
    group_.add({.name = "norm", .layout = {.rows = 40}, .init_mean = 1});
    group_.allocate(ctx_);
    group_.initialise(ctx_, 3);
    state_ = std::make_unique<OptimizerState>(std::vector<ParameterGroup*>{&group_},
                                              make_optimizer(config));
    state_->allocate(ctx_);
    for (const auto& parameter : group_.parameters()) gradients_.push_back(shape_of(*parameter));
  }

  /// All gradients of a step are kClip times normal_values() of their names and the step.
  void step(std::int64_t step) {
    auto next = gradients_.begin();
    compute_gradients(ctx_, group_, [&](const Parameter& parameter) {
      Matrix& gradient = *next++;
      gradient =
          normal_values(parameter.spec().name + std::to_string(step), gradient.rows, gradient.cols);
      std::ranges::copy(gradient.values, parameter.gradient(ctx_).as<float>());
      for (double& value : gradient.values) value *= kClip;
    });
    Tensor scale = ctx_.empty(1, 1, DType::f32);
    *scale.view().as<float>() = kClip;
    state_->update(ctx_, step, kRate, scale.view());
  }

  Matrix weight(std::size_t i) const {
    const Parameter& parameter = *group_.parameters()[i];
    Matrix values = shape_of(parameter);
    const float* from = group_.master().as<float>() + parameter.offset();
    std::copy_n(from, values.values.size(), values.values.begin());
    return values;
  }
  const Matrix& gradient(std::size_t i) const { return gradients_[i]; }

 private:
  static Matrix shape_of(const Parameter& parameter) {
    return {parameter.spec().layout.rows, parameter.spec().layout.cols};
  }

  std::unique_ptr<Communicator> world_ = make_self();
  Grid grid_{*world_, {}};
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  Arena arena_{backend_->device()};
  Context ctx_{*backend_, arena_, grid_};
  ParameterGroup group_{"group", grid_};
  std::unique_ptr<OptimizerState> state_;
  std::vector<Matrix> gradients_;
};

double largest_difference(const Matrix& a, const Matrix& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    most = std::max(most, std::abs(a.values[i] - b.values[i]));
  return most;
}

/// One step of Muon on rows of a matrix, in double.
void muon_step(Matrix& weight, Matrix& momentum, const Matrix& gradient,
               const OptimizerConfig& config) {
  Matrix u = gradient;
  for (std::size_t i = 0; i < u.values.size(); ++i) {
    momentum.values[i] = config.momentum * momentum.values[i] + gradient.values[i];
    u.values[i] = config.nesterov ? gradient.values[i] + config.momentum * momentum.values[i]
                                  : momentum.values[i];
  }
  const Matrix x = reference::orthogonalised(u, in_double(newton_schulz_steps(config)));
  const auto rows = static_cast<double>(u.rows), cols = static_cast<double>(u.cols);
  const double factor = config.muon_scale == MuonScale::rms ? 0.2 * std::sqrt(std::max(rows, cols))
                                                            : std::sqrt(std::max(1.0, rows / cols));
  for (std::size_t i = 0; i < u.values.size(); ++i)
    weight.values[i] -= kRate * (factor * x.values[i] + config.weight_decay * weight.values[i]);
}

/// Expects ten steps of a rule like Muon's to follow plain loops.
void expect_plain_muon(const OptimizerConfig& config) {
  struct Part {
    std::size_t parameter;
    std::int64_t row, rows;
    Matrix weight, momentum;
  };
  OneGroup group(config);
  std::vector<Part> parts;
  for (const auto& [parameter, row, rows] :
       {std::tuple<std::size_t, std::int64_t, std::int64_t>{0, 0, 24},
        {1, 0, 40},
        {2, 0, 12},
        {2, 12, 12},
        {2, 24, 12}}) {
    const Matrix weight = row_range(group.weight(parameter), row, rows);
    parts.push_back({parameter, row, rows, weight, Matrix(weight.rows, weight.cols)});
  }
  std::vector<Matrix> others{group.weight(3), group.weight(4)}, first(2), second(2);
  for (int i = 0; i < 2; ++i) first[i] = second[i] = Matrix(others[i].rows, others[i].cols);
  for (std::int64_t step = 0; step < 10; ++step) {
    group.step(step);
    for (Part& part : parts)
      muon_step(part.weight, part.momentum,
                row_range(group.gradient(part.parameter), part.row, part.rows), config);
    for (int i = 0; i < 2; ++i)
      for (std::size_t e = 0; e < others[i].values.size(); ++e)
        reference::adamw(others[i].values[e], first[i].values[e], second[i].values[e],
                         group.gradient(3 + i).values[e],
                         {kRate, config.beta1, config.beta2, config.eps,
                          i == 0 ? config.weight_decay : 0, step + 1});
  }
  // A step's sums of 40 terms have eight roundings or so, which later steps enlarge; the factor is
  // at most 1.3. A weight below 4 is rounded twice a step.
  const double of_x = 8 * kRounding * enlargement(newton_schulz_steps(config)),
               error = 10 * (kRate * 1.3 * of_x + 2 * 4 * kRounding);
  for (const Part& part : parts)
    EXPECT_LT(largest_difference(row_range(group.weight(part.parameter), part.row, part.rows),
                                 part.weight),
              error);
  // As in AdamW's own test: 1 - beta2 in f32 has a relative error of 2^-25 / 0.05.
  for (int i = 0; i < 2; ++i)
    EXPECT_LT(largest_difference(group.weight(3 + i), others[i]),
              10 * (kRate * 30 * kRounding + 2 * 4 * kRounding));
}

/// Trains ten steps on a grid where ranks share key-value heads, and again from step 5.
void expect_resumes_to_the_bit(OptimizerKind kind, DType dtype) {
  test::TemporaryPath folder;
  Config whole = on_grid(tiny_config(folder / "whole"), {3, 1, 2, 1});
  whole.model.kv_heads = 2;
  whole.training.dtype = dtype;
  whole.optimizer.kind = kind;
  train_on_threads(whole);
  Config resumed = whole;
  resumed.output.dir = folder / "resumed";
  resumed.checkpoint.resume = whole.output.dir + "/checkpoints/step-5";
  train_on_threads(resumed);
  const auto losses = column(metrics_of(whole), "loss");
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(column(metrics_of(resumed), "loss"),
            std::vector<double>(losses.begin() + 5, losses.end()));
  for (const std::string& state : make_optimizer({.kind = kind})->state_names())
    EXPECT_EQ(weights_of(resumed.output.dir + "/checkpoints/step-10", state),
              weights_of(whole.output.dir + "/checkpoints/step-10", state));
}

std::string refusal_of(const Config& config) {
  try {
    validate(config);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST(Muon, NewtonSchulzFollowsThePlainLoopsForWideTallAndOddMatrices) {
  const auto world = make_self();
  const Grid grid(*world, {});
  const auto backend = make_cpu_backend(1);
  Arena arena(backend->device());
  const Context ctx(*backend, arena, grid);
  for (const MuonCoefficients coefficients : {MuonCoefficients::keller, MuonCoefficients::schedule})
    for (const auto& [rows, cols] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 9}, {17, 5}, {32, 32}, {48, 96}}) {
      const NewtonSchulzSteps steps =
          newton_schulz_steps({.muon_coefficients = coefficients, .muon_steps = 5});
      Matrix u = normal_values("u", rows, cols);
      double squares = 0;
      for (const double value : u.values) squares += value * value;
      Tensor x = ctx.empty(rows, cols, DType::f32);
      for (std::size_t i = 0; i < u.values.size(); ++i)
        x.view().as<float>()[i] = static_cast<float>(u.values[i] / (std::sqrt(squares) + 1e-7));
      orthogonalise(ctx, x, steps);
      Matrix got(rows, cols);
      std::copy_n(x.view().as<float>(), got.values.size(), got.values.begin());
      EXPECT_LT(largest_difference(got, reference::orthogonalised(u, in_double(steps))),
                8 * kRounding * enlargement(steps))
          << rows << " x " << cols;
    }
}

TEST(Muon, SchedulesRepeatTheirLastStep) {
  const OptimizerConfig config{.muon_coefficients = MuonCoefficients::schedule, .muon_steps = 7};
  const NewtonSchulzSteps steps = newton_schulz_steps(config);
  ASSERT_EQ(steps.size(), 7);
  EXPECT_FLOAT_EQ(steps[0][0], 4.0848F);
  EXPECT_EQ(steps[6], steps[4]);
}

TEST(Muon, TenStepsFollowPlainLoopsAndOtherParametersFollowAdamW) {
  for (const MuonScale scale : {MuonScale::rms, MuonScale::shape})
    for (const bool nesterov : {true, false})
      expect_plain_muon({.kind = OptimizerKind::muon, .nesterov = nesterov, .muon_scale = scale});
  expect_plain_muon({.kind = OptimizerKind::muon, .muon_coefficients = MuonCoefficients::schedule});
}

TEST(Muon, ResumesToTheBit) {
  for (const DType dtype : {DType::f32, DType::bf16})
    expect_resumes_to_the_bit(OptimizerKind::muon, dtype);
}

TEST(Muon, KeepsTheSameMomentumOnAllRanksThatHoldARouter) {
  test::TemporaryPath folder;
  Config config = on_grid(tiny_config(folder / "run"), {2, 1, 2, 1});
  config.model.family = ModelFamily::llama;
  config.model.tied = false;
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 24;
  config.training.verify_every = 3;
  config.optimizer.kind = OptimizerKind::muon;
  EXPECT_EQ(failure_of(config), "");
}

TEST(Muon, RefusesAdapters) {
  Config config = tiny_config("unused");
  config.optimizer.kind = OptimizerKind::muon;
  EXPECT_EQ(refusal_of(config), "accepted");
  config.model.lora.rank = 2;
  EXPECT_THAT(refusal_of(config), HasSubstr("set kind = \"adamw\", or train without [lora]"));
}

TEST(AdEMAMix, SixtyStepsFollowPlainLoopsThroughBothWarmUps) {
  const OptimizerConfig config{
      .kind = OptimizerKind::ademamix, .alpha = 5, .alpha_warmup = 40, .beta3_warmup = 50};
  OneGroup group(config);
  std::vector<Matrix> weights, first, slow, second;
  for (std::size_t i = 0; i < 5; ++i) {
    weights.push_back(group.weight(i));
    for (auto* state : {&first, &slow, &second})
      state->emplace_back(weights[i].rows, weights[i].cols);
  }
  for (std::int64_t step = 0; step < 60; ++step) {
    group.step(step);
    const auto t = static_cast<double>(step + 1);
    double beta3 = config.beta3;
    if (t < 50) {  // ln(0.5) / ln(beta3) is the half-life, which the warm-up makes nearly linear
      const double a = std::log(config.beta1), b = std::log(config.beta3), r = t / 50;
      beta3 = std::exp(a * b / ((1 - r) * b + r * a));
    }
    for (std::size_t i = 0; i < 5; ++i)
      for (std::size_t e = 0; e < weights[i].values.size(); ++e)
        reference::ademamix(weights[i].values[e], first[i].values[e], slow[i].values[e],
                            second[i].values[e], group.gradient(i).values[e],
                            {{kRate, config.beta1, config.beta2, config.eps,
                              i < 4 ? config.weight_decay : 0, step + 1},
                             beta3,
                             5 * std::min(1.0, t / 40)});
  }
  // Each step has AdamW's errors, and the slow mean's, of as many roundings, times at most 5.
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_LT(largest_difference(group.weight(i), weights[i]),
              60 * (kRate * 6 * 30 * kRounding + 2 * 4 * kRounding));
}

TEST(AdEMAMix, WarmUpsEndAtTheConfiguredValues) {
  const OptimizerConfig config{
      .kind = OptimizerKind::ademamix, .alpha_warmup = 4, .beta3_warmup = 100};
  EXPECT_DOUBLE_EQ(slow_mean(config, 0).alpha, 2);
  EXPECT_DOUBLE_EQ(slow_mean(config, 10).alpha, 8);
  EXPECT_NEAR(slow_mean(config, 0).beta3, 0.9, 0.1);
  EXPECT_LT(slow_mean(config, 50).beta3, 0.9999);
  EXPECT_DOUBLE_EQ(slow_mean(config, 99).beta3, 0.9999);
}

TEST(AdEMAMix, ResumesToTheBit) {
  for (const DType dtype : {DType::f32, DType::bf16})
    expect_resumes_to_the_bit(OptimizerKind::ademamix, dtype);
}

TEST(AdEMAMix, RefusesAWarmUpFromABeta1OfZero) {
  Config config = tiny_config("unused");
  config.optimizer.kind = OptimizerKind::ademamix;
  config.optimizer.beta1 = 0;
  EXPECT_EQ(refusal_of(config), "accepted");
  config.optimizer.beta3_warmup = 10;
  EXPECT_THAT(refusal_of(config), HasSubstr("set beta1 above 0, or beta3_warmup to 0"));
}
