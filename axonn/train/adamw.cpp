#include "axonn/train/adamw.h"

namespace axonn {

void AdamW::update(const Context& ctx, const ParameterGroup& group, const Update& update) const {
  ctx.backend.run(ops::AdamW{.master = group.master(),
                             .first = update.state[0],
                             .second = update.state[1],
                             .gradient = group.gradient(),
                             .out = group.piece_of_compute(),
                             .scale = update.scale,
                             .lr = static_cast<float>(update.lr),
                             .beta1 = static_cast<float>(config_.beta1),
                             .beta2 = static_cast<float>(config_.beta2),
                             .eps = static_cast<float>(config_.eps),
                             .weight_decay = static_cast<float>(config_.weight_decay),
                             .step = update.step + 1,
                             .decayed = group.decayed()});
}

}  // namespace axonn
