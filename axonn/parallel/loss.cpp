#include "axonn/parallel/loss.h"

#include <algorithm>

#include "axonn/base/check.h"

namespace axonn {

Tensor CrossEntropy::logits(const Context& ctx, const View& hidden, Cut cut) const {
  Tensor out = ctx.empty(hidden.rows, table_.local_rows(), DType::f32, MemoryUse::logits);
  ctx.backend.matmul(
      {.out = out.view(), .a = hidden, .b = table_.weight(), .b_transposed = true, .bias = {}});
  sum_over(ctx, out, Axis::y, cut, {});
  return out;
}

Tensor CrossEntropy::logits_of_row(const Context& ctx, const Var& hidden, std::int64_t row) const {
  AXONN_CHECK(hidden.size() == 1, "logits_of_row: ", hidden.size(), " chunks, wanted one");
  const Tensor whole = whole_rows(ctx, hidden.front(), Axis::x);
  return logits(ctx, whole.view().row_range(row, 1));
}

void CrossEntropy::operator()(const Context& ctx, const Var& hidden, const Tensor& targets,
                              float scale, const Tensor& total) const {
  std::int64_t first = 0;
  ctx.backend.mark("loss");
  for (const Chunk& chunk : hidden) {
    AXONN_CHECK(
        chunk.placement.cols == AxisSet(Axis::y) && chunk.value.cols() == table_.local_cols(),
        "loss: hidden ", chunk.value.raw_view(), ", wanted ", table_.local_cols(),
        " columns over y");
    const Tensor whole = whole_rows(ctx, chunk, Axis::x);
    const View all = whole.view();
    const std::int64_t count = all.rows;
    Tensor d_hidden = ctx.tape ? ctx.like(whole) : Tensor();
    for (std::int64_t row = 0; row < count; row += options_.rows_at_once) {
      const std::int64_t n = std::min(options_.rows_at_once, count - row);
      rows(ctx, all.row_range(row, n), targets.view().col_range(first + row, n), scale, total,
           ctx.tape ? d_hidden.raw_view().row_range(row, n) : View{});
    }
    first += count;
    if (!ctx.tape) continue;
    ctx.tape->record(
        [ctx, d_hidden, cut = cut_over(chunk.placement, Axis::x), to = chunk.gradient]() mutable {
          sum_over(ctx, d_hidden, Axis::x, cut, {});
          to->add(ctx, std::move(d_hidden));
        });
  }
}

void CrossEntropy::rows(const Context& ctx, const View& hidden, const View& targets, float scale,
                        const Tensor& total, const View& d_hidden) const {
  const VocabularyPiece piece = vocabulary_piece(ctx.grid, options_.vocab);
  const Cut cut = row_cut(ctx, hidden.rows, Axis::y);
  const Tensor scores = logits(ctx, hidden, cut);
  const std::int64_t n = scores.rows(), at = cut == Cut::rows ? ctx.grid.coord(Axis::y) : 0;
  const View wanted = targets.col_range(at * n, n);
  const Communicator& across = ctx.grid.along(Axis::x);
  Tensor stats = ctx.empty(across.size() * n, 3, DType::f32);
  const View mine = stats.view().row_range(across.rank() * n, n);
  ctx.backend.softmax_stats(mine, scores.view(), wanted, piece);
  stats.set_pending(
      ctx.grid.along(Axis::x).all_gather(buffer_of(stats.raw_view()), buffer_of(mine), "loss"));
  Tensor loss = ctx.empty(n, 1, DType::f32), lse = ctx.empty(n, 1, DType::f32);
  ctx.backend.combine_softmax(loss.view(), lse.view(), stats.view(), wanted);
  const bool first_on_y = cut == Cut::rows || ctx.grid.coord(Axis::y) == 0;
  if (across.rank() == 0 && first_on_y) ctx.backend.sum(total.view(), loss.view());
  if (!d_hidden.data) return;

  Tensor d_piece = ctx.empty(n, scores.cols(), ctx.dtype, MemoryUse::logits);
  ctx.backend.cross_entropy_backward({.d_logits = d_piece.view(),
                                      .logits = scores.view(),
                                      .lse = lse.view(),
                                      .targets = wanted,
                                      .piece = piece,
                                      .scale = scale});
  const Tensor d_logits = Gather(ctx, d_piece, Axis::y, cut).whole(ctx, {});
  ctx.backend.matmul({.out = d_hidden, .a = d_logits.view(), .b = table_.weight(), .bias = {}});
  if (table_.frozen()) return;
  const auto [d_table, accumulate] = table_.gradient_of_all();
  ctx.backend.matmul({.out = d_table,
                      .a = d_logits.view(),
                      .b = hidden,
                      .a_transposed = true,
                      .bias = {},
                      .accumulate = accumulate});
}

}  // namespace axonn
