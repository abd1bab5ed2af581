#include "lion.h"

#include <cmath>

using namespace axonn;

/// On a CPU, whose memory a View points to. All pieces lie alike: element i of each belongs to the
/// same weight.
void Lion::update(const Context& ctx, const ParameterGroup& group, const Update& update) const {
  const View master = group.master(), gradient = group.gradient();
  float* const weights = master.as<float>();
  const float* const gradients = gradient.as<float>();
  float* const means = update.state[0].as<float>();
  const float scale = *update.scale.as<float>();
  const auto lr = static_cast<float>(update.lr), b1 = static_cast<float>(options_.beta1),
             b2 = static_cast<float>(options_.beta2),
             decay = static_cast<float>(options_.weight_decay);
  for (std::int64_t i = 0; i < master.count(); ++i) {
    const float g = scale * gradients[i], direction = b1 * means[i] + (1 - b1) * g;
    const float sign = direction == 0 ? 0 : std::copysign(1.0f, direction);
    weights[i] -= lr * (sign + (i < group.decayed() ? decay * weights[i] : 0));
    means[i] = b2 * means[i] + (1 - b2) * g;
  }
  // With f32, the model computes with the master weights themselves.
  if (const View compute = group.piece_of_compute(); compute.data != master.data)
    ctx.backend.run(ops::Cast{.out = compute, .inp = master});
}
