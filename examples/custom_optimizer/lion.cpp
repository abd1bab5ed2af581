#include "lion.h"

#include <cmath>

using namespace axonn;

/// All pieces lie alike: element i of each belongs to the same weight.
void Lion::update(const Context& ctx, const ParameterGroup& group, const Update& update) const {
  const auto lr = static_cast<float>(update.lr), b1 = static_cast<float>(options_.beta1),
             b2 = static_cast<float>(options_.beta2),
             decay = static_cast<float>(options_.weight_decay);
  const std::int64_t decayed = group.decayed();
  const auto compute = [=](Views results, Views inputs) {
    float* const weights = results[0].as<float>();
    float* const means = results[1].as<float>();
    const float* const gradients = inputs[0].as<float>();
    const float scale = *inputs[1].as<float>();
    for (std::int64_t i = 0; i < results[0].cols; ++i) {
      const float g = scale * gradients[i], direction = b1 * means[i] + (1 - b1) * g;
      const float sign = direction == 0 ? 0 : std::copysign(1.0f, direction);
      weights[i] -= lr * (sign + (i < decayed ? decay * weights[i] : 0));
      means[i] = b2 * means[i] + (1 - b2) * g;
    }
  };
  ctx.backend.on_host({.name = "lion",
                       .results = {group.master(), update.state[0]},
                       .inputs = {group.gradient(), update.scale},
                       .compute = compute});
  // With f32, the model computes with the master weights themselves.
  if (const View piece = group.piece_of_compute(); piece.data != group.master().data)
    ctx.backend.run(ops::Cast{.out = piece, .inp = group.master()});
}

namespace {

void check_betas(const OptimizerConfig& config) {
  for (const char* key : {"lion.beta1", "lion.beta2"})
    if (const double beta = config.own<double>(key); beta < 0 || beta >= 1)
      refuse(key, " = ", beta, "; wanted at least 0 and below 1");
}

std::unique_ptr<Optimizer> make_lion(const OptimizerConfig& config) {
  return std::make_unique<Lion>(Lion::Options{.beta1 = config.own<double>("lion.beta1"),
                                              .beta2 = config.own<double>("lion.beta2"),
                                              .weight_decay = config.weight_decay});
}

}  // namespace

void register_lion() {
  register_optimizer(
      {.name = "lion",
       .help = "Lion moves each weight by the sign of a mean of its gradients",
       .keys = {{.name = "beta1", .value = 0.9, .help = "share of the mean in the direction"},
                {.name = "beta2", .value = 0.99, .help = "decay rate of the mean of gradients"}},
       .reads = {"weight_decay"},
       .validate = check_betas,
       .make = make_lion});
}
