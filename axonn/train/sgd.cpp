#include "axonn/train/sgd.h"

namespace axonn {

void Sgd::update(const Context& ctx, const ParameterGroup& group, const Update& update) const {
  ctx.backend.run(ops::Sgd{.master = group.master(),
                           .gradient = group.gradient(),
                           .out = group.piece_of_compute(),
                           .scale = update.scale,
                           .lr = static_cast<float>(update.lr),
                           .weight_decay = static_cast<float>(config_.weight_decay),
                           .decayed = group.decayed()});
}

}  // namespace axonn
