#include "axonn/parallel/var.h"

#include "axonn/base/check.h"

namespace axonn {

void Gradient::add(const Context& ctx, Tensor d) {
  if (sum_.empty()) {
    sum_ = std::move(d);
  } else if (sum_.unique()) {
    ctx.backend.add(sum_.view(), sum_.view(), d.view());
  } else {
    Tensor total = ctx.like(sum_);
    ctx.backend.add(total.view(), sum_.view(), d.view());
    sum_ = std::move(total);
  }
}

Tensor Gradient::take() {
  AXONN_CHECK(!sum_.empty(), "backward: a value was used in no later operation, so it has no ",
              "gradient; run backward from the loss");
  return std::exchange(sum_, Tensor());
}

Chunk make_chunk(const Context& ctx, const Chunk& from, Tensor value, Placement placement) {
  return {std::move(value), placement, from.rows,
          ctx.tape ? std::make_shared<Gradient>() : nullptr};
}

}  // namespace axonn
