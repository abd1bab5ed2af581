#include "tests/support/one_rank_model.h"

#include <algorithm>

#include "axonn/foundation/base/random.h"
#include "axonn/network/model/mtp_layer.h"
#include "axonn/network/nn/experts/routing.h"
#include "axonn/network/nn/loss.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/run/config/resolve.h"

namespace axonn::testing_support {

using reference::Matrix;
using reference::Weights;

namespace {

/// Calls f(matrix, index of an element in it, its index in the group's piece) for all elements of a
/// group.
template <typename F>
void for_each_element(const ParameterGroup& group, Weights& weights, const F& f) {
  for (const auto& [spec, slice] : group.piece_slices())
    for (std::int64_t i = 0; i < slice.count(); ++i)
      f(weights[spec->name], slice.row * slice.cols + slice.begin + i, slice.offset + i);
}

}  // namespace

Weights weights_of(const std::vector<ParameterGroup*>& groups) {
  Weights weights;
  for (const ParameterGroup* group : groups) {
    const float* master = group->master().as<float>();
    for (const auto& parameter : group->parameters()) {
      const Layout& layout = parameter->spec().layout;
      weights[parameter->spec().name] =
          layout.cols == 1 ? Matrix(1, layout.rows) : Matrix(layout.rows, layout.cols);
    }
    for_each_element(*group, weights, [&](Matrix& kept, std::int64_t index, std::int64_t at) {
      kept.values[index] = master[at];
    });
  }
  return weights;
}

OneRankModel::OneRankModel(const ModelConfig& config)
    : config_(resolved(config, config.vocab, kPositions)), model_(make_model(config_, grid_)) {
  const Random numbers(3, "tokens");
  for (std::int64_t i = 0; i < kSequences * kPositions; ++i) {
    ids_.push_back(static_cast<std::int32_t>(numbers.below(2 * i, config_.vocab)));
    targets_.push_back(static_cast<std::int32_t>(numbers.below(2 * i + 1, config_.vocab)));
  }
  Weights noisy;
  for (ParameterGroup* group : model_->groups()) {
    group->allocate(ctx_);
    group->initialise(ctx_, 1);
  }
  weights_ = weights_of(model_->groups());
  for (const auto& [name, matrix] : weights_) {
    const Random noise(5, name);
    Matrix& values = noisy[name] = matrix;
    for (std::size_t i = 0; i < values.values.size(); ++i)
      values.values[i] = static_cast<float>(values.values[i] + 0.2 * noise.normal(i));
  }
  set(noisy);
}

void OneRankModel::set(const Weights& weights) {
  for (const auto& [name, values] : weights) weights_.at(name) = values;
  for (ParameterGroup* group : model_->groups()) {
    float* master = group->master().as<float>();
    for_each_element(*group, weights_, [&](Matrix& kept, std::int64_t index, std::int64_t at) {
      master[at] = static_cast<float>(kept.values[index]);
    });
    group->publish_values(ctx_);
  }
}

std::vector<float> OneRankModel::logits(std::int64_t s) {
  const std::span<const std::int32_t> ids(ids_.data() + s * kPositions, kPositions);
  const std::int64_t last = kPositions - 1;
  const Tensor out =
      model_->next_logits(ctx_, make_tokens(ctx_, ids, {}, {1, kPositions}), std::span(&last, 1));
  const float* data = out.view().as<float>();
  return {data, data + config_.vocab};
}

Matrix OneRankModel::target_losses(float factor) {
  Context ctx = ctx_;
  ctx.attach(std::make_shared<LogitFactor>(LogitFactor{factor}));
  const Tokens tokens = make_tokens(ctx_, ids_, targets_, {kSequences, kPositions});
  const Tensor out = model_->target_losses(ctx, tokens);
  Matrix result(out.rows(), out.cols());
  std::copy_n(out.view().as<float>(), result.values.size(), result.values.begin());
  return result;
}

std::pair<double, Weights> OneRankModel::backward() {
  return backward([this](const Context& ctx) {
    return make_tokens(ctx, ids_, targets_, {kSequences, kPositions},
                       {.further = static_cast<int>(config_.mtp_layers)});
  });
}

std::pair<double, Weights> OneRankModel::backward(
    const std::function<Tokens(const Context&)>& make) {
  const auto groups = trained_groups(*model_);
  for (ParameterGroup* group : groups) group->begin_step(ctx_);
  Tape tape;
  Context ctx = ctx_;
  ctx.tape = &tape;
  StepState state;
  ctx.own_scheduling().step = &state;
  const Tensor total = ctx.zeros(1, 1, DType::f64);
  const Tokens tokens = make(ctx);
  const Routers routers = model_->routers();
  const auto routing =
      std::make_shared<Routing>(Routing::Options{.balance = balance_.value_or(BalanceConfig{}),
                                                 .layers = std::ssize(routers.biases),
                                                 .experts = routers.experts,
                                                 .per_row = routers.per_row});
  if (balance_) {
    ctx.attach(routing);
    routing->begin_step(tokens.rows.count());
    routing->begin_pass(ctx, tokens.rows);
  }
  const Tensor further = ctx.zeros(1, 1, DType::f64);
  if (mtp_weight_ > 0) ctx.attach(std::make_shared<MtpLoss>(MtpLoss{mtp_weight_, further.view()}));
  model_->loss(ctx, tokens, 1, total);
  mtp_loss_ = *further.view().as<double>();
  if (balance_) {
    routing->finish_pass(ctx);
    router_losses_ = {routing->sums().balance, routing->sums().z};
  }
  tape.backward();
  Weights gradients = weights_;
  for (ParameterGroup* group : groups) {
    group->reduce_over_data(ctx_);
    const float* gradient = group->gradient().as<float>();
    for_each_element(*group, gradients, [&](Matrix& kept, std::int64_t index, std::int64_t at) {
      kept.values[index] = gradient[at];
    });
  }
  return {*total.view().as<double>(), gradients};
}

}  // namespace axonn::testing_support
