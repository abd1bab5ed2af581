#include "signum.h"

#include <cmath>

using namespace axonn;

/// All pieces lie alike: element i of each belongs to the same weight.
void Signum::update(const Context& ctx, const ParameterGroup& group, const Update& update) const {
  const auto lr = static_cast<float>(update.lr), beta = static_cast<float>(options_.beta),
             decay = static_cast<float>(options_.weight_decay);
  const std::int64_t decayed = group.decayed();
  const auto compute = [=](Views results, Views inputs) {
    float* const weights = results[0].as<float>();
    float* const means = results[1].as<float>();
    const float* const gradients = inputs[0].as<float>();
    const float scale = *inputs[1].as<float>();
    for (std::int64_t i = 0; i < results[0].cols; ++i) {
      means[i] = beta * means[i] + (1 - beta) * scale * gradients[i];
      const float sign = means[i] == 0 ? 0 : std::copysign(1.0f, means[i]);
      weights[i] -= lr * (sign + (i < decayed ? decay * weights[i] : 0));
    }
  };
  ctx.backend.on_host({.name = "signum",
                       .results = {group.master(), update.state[0]},
                       .inputs = {group.gradient(), update.scale},
                       .compute = compute});
  // With f32, the model computes with the master weights themselves.
  if (const View piece = group.piece_of_compute(); piece.data != group.master().data)
    ctx.backend.run(ops::Cast{.out = piece, .inp = group.master()});
}

namespace {

void check_beta(const OptimizerConfig& config) {
  if (const double beta = config.own<double>("signum.beta"); beta < 0 || beta >= 1)
    refuse("signum.beta = ", beta, "; wanted at least 0 and below 1");
}

std::unique_ptr<Optimizer> make_signum(const OptimizerConfig& config) {
  return std::make_unique<Signum>(Signum::Options{.beta = config.own<double>("signum.beta"),
                                                  .weight_decay = config.weight_decay});
}

}  // namespace

void register_signum() {
  register_optimizer(
      {.name = "signum",
       .help = "Signum moves each weight by the sign of a mean of its gradients",
       .keys = {{.name = "beta", .value = 0.9, .help = "decay rate of the mean of gradients"}},
       .reads = {"weight_decay"},
       .validate = check_beta,
       .make = make_signum});
}
