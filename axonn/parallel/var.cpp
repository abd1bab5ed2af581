#include "axonn/parallel/var.h"

#include "axonn/base/check.h"
#include "axonn/parallel/scheduling.h"

namespace axonn {

Rows Rows::part(std::int64_t begin, std::int64_t end) const {
  const auto piece = [&](const Tensor& all) {
    return all.empty() ? all : all.col_range(begin * positions, (end - begin) * positions);
  };
  return {end - begin, positions, first + begin * positions, piece(position), piece(start), reach};
}

void Gradient::add(const Context& ctx, Tensor d) {
  if (sum_.empty()) {
    sum_ = std::move(d);
  } else if (sum_.unique()) {
    ctx.backend.run(ops::Add{sum_.view(), sum_.view(), d.view()});
  } else {
    Tensor total = ctx.like(sum_);
    ctx.backend.run(ops::Add{total.view(), sum_.view(), d.view()});
    sum_ = std::move(total);
  }
}

void Gradient::add_columns(const Context& ctx, std::int64_t cols, std::int64_t begin,
                           const Tensor& d) {
  if (sum_.empty()) {
    sum_ = ctx.zeros(d.rows(), cols, d.dtype(), d.use());
  } else if (!sum_.unique()) {
    const Tensor before = std::exchange(sum_, ctx.like(sum_));
    ctx.backend.run(ops::Cast{sum_.view(), before.view()});
  }
  const View part = sum_.view().col_range(begin, d.cols());
  ctx.backend.run(ops::Add{part, part, d.view()});
}

Tensor Gradient::take() {
  AXONN_CHECK(!sum_.empty(), "backward: a value was used in no later operation, so it has no ",
              "gradient; run backward from the loss");
  return std::exchange(sum_, Tensor());
}

Var Var::part(std::size_t i) const {
  Var one;
  one.slots_.push_back(slots_.at(i));
  return one;
}

void Var::make_before_release(const Context& ctx) const {
  auto* before_release = ctx.scheduling().scope.before_release;
  if (!before_release) return;
  before_release->push_back(
      [slots = std::vector<std::weak_ptr<Slot>>(slots_.begin(), slots_.end())] {
        for (const auto& slot : slots)
          if (const auto wanted = slot.lock()) wanted->get();
      });
}

Chunk Var::take() {
  AXONN_CHECK(size() == 1, "Var::take: ", size(), " chunks, wanted one");
  Chunk& chunk = slots_.front()->get();
  return slots_.front().use_count() == 1 ? std::move(chunk) : chunk;
}

Chunk make_chunk(const Context& ctx, const Chunk& from, Tensor value, Placement placement) {
  return {std::move(value), placement, from.rows,
          ctx.tape && from.gradient ? std::make_shared<Gradient>() : nullptr};
}

void need_gradient(const Context& ctx, Chunk& chunk) {
  if (ctx.tape && !chunk.gradient) chunk.gradient = std::make_shared<Gradient>();
}

}  // namespace axonn
