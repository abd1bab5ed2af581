// Logits, loss and gradients of every variant of the family against an independent implementation
// as plain loops in double.
#include "tests/support/llama_reference.h"

#include <cmath>

#include <gmock/gmock.h>

#include "axonn/base/random.h"
#include "axonn/comm/self.h"
#include "axonn/model/llama.h"

using namespace axonn;
using reference::Matrix;
using reference::Weights;

namespace {

constexpr std::int64_t kSequences = 3, kPositions = 9;

/// A Llama on one rank whose weights, norms and biases included, are random and large enough to
/// matter.
class RandomLlama {
 public:
  explicit RandomLlama(const ModelConfig& config)
      : config_(resolved(config, config.vocab, kPositions)), model_(config_, grid_) {
    const Random numbers(3, "tokens");
    for (std::int64_t i = 0; i < kSequences * kPositions; ++i) {
      ids_.push_back(static_cast<std::int32_t>(numbers.below(2 * i, config_.vocab)));
      targets_.push_back(static_cast<std::int32_t>(numbers.below(2 * i + 1, config_.vocab)));
    }
    for (ParameterGroup* group : model_.groups()) {
      group->allocate(ctx_);
      group->initialise(ctx_, 1);
      float* master = group->master().as<float>();
      for (const auto& [spec, slice] : group->piece_slices()) {
        const Random noise(5, spec->name);
        Matrix& kept = weights_[spec->name];
        const bool vector = spec->layout.cols == 1;
        if (kept.values.empty())
          kept =
              vector ? Matrix(1, spec->layout.rows) : Matrix(spec->layout.rows, spec->layout.cols);
        for (std::int64_t i = 0; i < slice.count(); ++i) {
          const std::int64_t index = slice.row * slice.cols + slice.begin + i;
          float& value = master[slice.offset + i];
          value += static_cast<float>(0.2 * noise.normal(index));
          kept.values[index] = value;
        }
      }
      group->publish_from_master(ctx_);
    }
  }

  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }

  /// Logits of the last position of sequence s.
  std::vector<float> logits(std::int64_t s) {
    const std::span<const std::int32_t> ids(ids_.data() + s * kPositions, kPositions);
    const Tensor out =
        model_.next_logits(ctx_, make_tokens(ctx_, ids, {}, {1, kPositions}), kPositions - 1);
    const float* data = out.view().as<float>();
    return {data, data + config_.vocab};
  }

  /// The sum of the losses, and every parameter's gradient.
  std::pair<double, Weights> backward() {
    for (ParameterGroup* group : model_.groups()) group->begin_step(ctx_);
    Tape tape;
    Context ctx = ctx_;
    ctx.tape = &tape;
    ctx.last_micro_batch = true;
    const Tensor total = ctx.zeros(1, 1, DType::f64);
    const Tokens tokens = make_tokens(ctx, ids_, targets_, {kSequences, kPositions});
    model_.loss(ctx, tokens, 1, total);
    tape.backward();
    Weights gradients = weights_;
    for (ParameterGroup* group : model_.groups()) {
      group->reduce_over_data(ctx_);
      const float* gradient = group->gradient().as<float>();
      for (const auto& [spec, slice] : group->piece_slices())
        for (std::int64_t i = 0; i < slice.count(); ++i)
          gradients[spec->name].values[slice.row * slice.cols + slice.begin + i] =
              gradient[slice.offset + i];
    }
    return {*total.view().as<double>(), gradients};
  }

  Matrix reference_logits(const Weights& weights) const {
    return llama_logits(config_, weights, ids_, kPositions);
  }
  double reference_loss(const Weights& weights) const {
    double sum = 0;
    for (double loss : cross_entropy(reference_logits(weights), targets_).values) sum += loss;
    return sum;
  }

 private:
  ModelConfig config_;
  std::unique_ptr<Communicator> world_ = make_self();
  Grid grid_{*world_, {}};
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  Arena arena_{backend_->device()};
  Context ctx_{.backend = *backend_, .arena = arena_, .grid = grid_};
  Llama model_;
  std::vector<std::int32_t> ids_, targets_;
  Weights weights_;
};

ModelConfig small() {
  return {.family = ModelFamily::llama,
          .layers = 2,
          .hidden = 24,
          .heads = 6,
          .kv_heads = 2,
          .ffn = 40,
          .vocab = 31,
          .tied = false,
          .norm_eps = 1e-3};
}

ModelConfig llama31() {
  ModelConfig config = small();
  config.rope_theta = 50;
  config.rope_scaling = RopeScalingKind::llama3;
  config.rope_original_positions = 12;
  return config;
}

ModelConfig mistral() {
  ModelConfig config = small();
  config.window = 4;
  config.head_dim = 10;
  return config;
}

ModelConfig qwen2() {
  ModelConfig config = small();
  config.qkv_bias = true;
  config.tied = true;
  return config;
}

ModelConfig qwen3() {
  ModelConfig config = small();
  config.qk_norm = true;
  config.kv_heads = 1;
  return config;
}

struct Family {
  const char* name;
  ModelConfig (*config)();
};
class LlamaReference : public testing::TestWithParam<Family> {};

}  // namespace

TEST_P(LlamaReference, LogitsAreThoseOfPlainLoops) {
  RandomLlama llama(GetParam().config());
  const Matrix want = llama.reference_logits(llama.weights());
  double largest = 0;
  for (double value : want.values) largest = std::max(largest, std::abs(value));
  for (std::int64_t s = 0; s < kSequences; ++s) {
    const std::vector<float> got = llama.logits(s);
    for (std::int64_t c = 0; c < want.cols; ++c)  // f32 through two blocks: 1e-6 of the largest
      EXPECT_NEAR(got[c], want((s + 1) * kPositions - 1, c), 1e-5 * largest) << s << ',' << c;
  }
}

TEST_P(LlamaReference, LossAndEveryParametersGradientAreThoseOfPlainLoops) {
  RandomLlama llama(GetParam().config());
  const auto [loss, gradients] = llama.backward();
  EXPECT_NEAR(loss, llama.reference_loss(llama.weights()), 1e-5 * loss);
  EXPECT_EQ(gradients.size(), llama.weights().size());
  for (const auto& [name, gradient] : gradients) {
    // Along one random direction, by central differences in double: their own error is step²
    // relative, 1e-8, and f32's is 1e-6 of the sum of magnitudes.
    constexpr double kStep = 1e-4;
    const Random direction(9, name);
    double want = 0, size = 0;
    for (std::size_t i = 0; i < gradient.values.size(); ++i) {
      want += gradient.values[i] * direction.normal(i);
      size += std::abs(gradient.values[i]);
    }
    const auto loss_at = [&, &parameter = name](double step) {
      Weights moved = llama.weights();
      auto& values = moved[parameter].values;
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += step * direction.normal(i);
      return llama.reference_loss(moved);
    };
    EXPECT_NEAR((loss_at(kStep) - loss_at(-kStep)) / (2 * kStep), want, 2e-5 * size) << name;
    EXPECT_GT(size, 0) << name << " has no gradient";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LlamaReference,
                         testing::Values(Family{"Llama2", small}, Family{"Llama31", llama31},
                                         Family{"Mistral", mistral}, Family{"Qwen2", qwen2},
                                         Family{"Qwen3", qwen3}),
                         [](const auto& family) { return std::string(family.param.name); });
