#include "axonn/ranks/parallel/var.h"

#include <numeric>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

Rows Rows::part(std::int64_t begin, std::int64_t end) const {
  const auto piece = [&](const Tensor& all) {  // of a tensor with as many elements per sequence
    if (all.empty()) return all;
    const std::int64_t each = all.count() / sequences;
    return all.col_range(begin * each, (end - begin) * each);
  };
  std::shared_ptr<SequenceShare> part_of_share;
  if (share) {
    part_of_share = std::make_shared<SequenceShare>(*share);
    const std::int64_t each = positions / kContextBlock;
    part_of_share->numbers.assign(share->numbers.begin() + begin * each,
                                  share->numbers.begin() + end * each);
    part_of_share->blocks = piece(share->blocks);
    part_of_share->slots = piece(share->slots);
  }
  return {.sequences = end - begin,
          .positions = positions,
          .first = first + begin * whole(),
          .position = piece(position),
          .start = piece(start),
          .counted = piece(counted),
          .rotary = piece(rotary),
          .branches = piece(branches),
          .reach = reach,
          .share = std::move(part_of_share)};
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
  one.slots_.push_back(slot(i));
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

Var Var::kept() const {
  Var outs;
  for (std::size_t i = 0; i < size(); ++i)
    outs.push_back_later([one = part(i)]() mutable {
      Chunk chunk = one.take();
      chunk.again = {};
      return chunk;
    });
  return outs;
}

Chunk make_chunk(const Context& ctx, const Chunk& from, Tensor value, Placement placement) {
  return {std::move(value), placement, from.rows,
          ctx.tape && from.gradient ? std::make_shared<Gradient>() : nullptr};
}

void need_gradient(const Context& ctx, Chunk& chunk) {
  if (ctx.tape && !chunk.gradient) chunk.gradient = std::make_shared<Gradient>();
}

const Tensor& Saved::get() const {
  if (!again_) return kept_;
  if (again_->make) again_->value = std::exchange(again_->make, nullptr)();
  return again_->value;
}

Tensor Saved::take() const {
  const Tensor& value = get();
  return again_ && unique() ? std::exchange(again_->value, Tensor()) : value;
}

bool Saved::unique() const {
  return again_ ? again_.use_count() == 1 && again_->value.unique() : kept_.unique();
}

void fail_in_block(const Context& ctx, const AccessError& error) {
  const std::string_view block = ctx.scheduling().scope.label;
  fail(Where::here(), block.empty() ? "outside of a block: " : concat("in block ", block, ": "),
       error.what());
}

void let_remake(const Context& ctx, Chunk& chunk, Remade kind, std::function<Tensor()> make) {
  const BlockScope& scope = ctx.scheduling().scope;
  if (chunk.gradient && scope.recompute.has(kind))
    chunk.again = Saved(std::move(make), scope.label);
}

Saved saved(const Context& ctx, const Chunk& chunk) {
  return chunk.again.made_in(ctx.scheduling().scope.label) ? chunk.again : Saved(chunk.value);
}

namespace {

/// Copies between (R, sum of runs) and G stacked pieces (G · R, sum of runs / G), piece i being
/// the i-th part of every run.
template <typename Copy>
void for_each_part(const View& whole, const View& pieces, const Runs& runs, const Copy& copy) {
  const std::int64_t ways = pieces.rows / whole.rows;
  for (std::int64_t i = 0; i < ways; ++i) {
    const View piece = pieces.row_range(i * whole.rows, whole.rows);
    std::int64_t from = 0, to = 0;
    for (std::int64_t run : runs) {
      const std::int64_t n = run / ways;
      copy(whole.col_range(from + i * n, n), piece.col_range(to, n));
      from += run;
      to += n;
    }
  }
}

void check_runs(const Runs& runs, std::int64_t cols, int ways) {
  AXONN_CHECK(std::accumulate(runs.begin(), runs.end(), std::int64_t{0}) == cols,
              "exchange: runs of columns do not add up to ", cols);
  for (std::int64_t run : runs)
    AXONN_CHECK(run % ways == 0, "exchange: a run of ", run, " columns cannot be cut over ", ways,
                " ranks");
}

}  // namespace

Cut cut_over(const Placement& placement, Axis axis) {
  if (placement.rows.has(axis)) return Cut::rows;
  return placement.cols.has(axis) ? Cut::columns : Cut::same;
}

Cut row_cut(const Context& ctx, std::int64_t rows, Axis axis) {
  const int ways = ctx.grid.extent(axis);
  return ctx.scheduling().run.sequence_parallel && ways > 1 && rows % ways == 0 ? Cut::rows
                                                                                : Cut::same;
}

void sum_over(const Context& ctx, Tensor& value, Axis axis, Cut cut, const Runs& runs) {
  Communicator& group = ctx.grid.along(axis);
  const int ways = group.size();
  if (ways == 1) return;
  if (cut == Cut::same) {
    const View all = value.view();
    return value.set_pending(group.all_reduce(buffer_of(all), ctx.scheduling().scope.label));
  }
  Tensor parts = value;
  if (cut == Cut::columns) {
    check_runs(runs, value.cols(), ways);
    parts = ctx.empty(ways * value.rows(), value.cols() / ways, value.dtype(), value.use());
    for_each_part(value.view(), parts.view(), runs, [&](const View& whole, const View& piece) {
      ctx.backend.run(ops::Cast{piece, whole});
    });
  }
  Tensor mine = ctx.empty(parts.rows() / ways, parts.cols(), value.dtype(), value.use());
  Work work = group.reduce_scatter(buffer_of(mine.raw_view()), buffer_of(parts.view()),
                                   ctx.scheduling().scope.label);
  work.keep(parts.owner());
  mine.set_pending(std::move(work));
  value = std::move(mine);
}

Gather::Gather(const Context& ctx, const Tensor& piece, Axis axis, Cut cut)
    : ways_(ctx.grid.extent(axis)), cut_(ways_ == 1 ? Cut::same : cut), gathered_(piece) {
  if (cut_ == Cut::same) return;
  gathered_ = ctx.empty(ways_ * piece.rows(), piece.cols(), piece.dtype(), piece.use());
  Work work = ctx.grid.along(axis).all_gather(
      buffer_of(gathered_.raw_view()), buffer_of(piece.view()), ctx.scheduling().scope.label);
  work.keep(piece.owner());
  gathered_.set_pending(std::move(work));
}

Tensor Gather::whole(const Context& ctx, const Runs& runs) const {
  if (cut_ != Cut::columns) return gathered_;
  check_runs(runs, gathered_.cols() * ways_, ways_);
  Tensor out = ctx.empty(gathered_.rows() / ways_, gathered_.cols() * ways_, gathered_.dtype(),
                         gathered_.use());
  for_each_part(out.view(), gathered_.view(), runs, [&](const View& whole, const View& piece) {
    ctx.backend.run(ops::Cast{whole, piece});
  });
  return out;
}

View of_rows_here(const Context& ctx, const Chunk& chunk, const Tensor& of_all) {
  if (of_all.empty()) return {};
  const std::int64_t here = chunk.value.rows();
  for (Axis axis : {Axis::x, Axis::y})
    if (chunk.placement.rows.has(axis))
      return of_all.view().col_range(ctx.grid.coord(axis) * here, here);
  return of_all.view();
}

Tensor whole_rows(const Context& ctx, const Chunk& chunk, Axis axis) {
  AXONN_CHECK(cut_over(chunk.placement, axis) != Cut::columns,
              "whole_rows: wanted a value whose rows may be cut, got columns cut over ",
              name_of(axis));
  return Gather(ctx, chunk.value, axis, cut_over(chunk.placement, axis)).whole(ctx, {});
}

}  // namespace axonn
