#include "axonn/network/nn/attention/head_exchange.h"

#include <numeric>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

namespace {

/// Columns [begin, begin + rows · cols) of a row as a matrix (rows, cols).
View matrix_of(const View& row, std::int64_t begin, std::int64_t rows, std::int64_t cols) {
  View matrix = row.col_range(begin, rows * cols);
  matrix.rows = rows;
  matrix.cols = matrix.stride = cols;
  return matrix;
}

}  // namespace

HeadExchange::HeadExchange(const Context& ctx, const Chunk& chunk)
    : ctx_(ctx),
      group_(ctx.grid.context()),
      here_(chunk.value.rows()),
      sequences_(here_ / chunk.rows.positions) {
  const SequenceShare& share = *chunk.rows.share;
  AXONN_CHECK(!share.has_halo(), "HeadExchange: ranks have the keys of a window alone");
  const std::int64_t first =
      chunk.placement.rows.has(Axis::y) ? ctx.grid.coord(Axis::y) * sequences_ : 0;
  const std::int64_t each = share.slots.cols() / chunk.rows.sequences;
  slots_ = share.slots.view().col_range(first * each, sequences_ * each);
  starts_ = of_rows_here(ctx, chunk, chunk.rows.start);
}

Tensor HeadExchange::gather(const std::vector<std::int64_t>& cols, DType dtype,
                            const std::function<void(int, const View&)>& fill) const {
  std::vector<std::int64_t> to, from(cols.size(), here_ * cols[rank()]);
  for (const std::int64_t count : cols) to.push_back(here_ * count);
  const Tensor sent = ctx_.empty(1, std::accumulate(to.begin(), to.end(), std::int64_t{0}), dtype);
  std::int64_t at = 0;
  for (int i = 0; i < ranks(); at += to[i++])
    if (cols[i] > 0) fill(i, matrix_of(sent.view(), at, here_, cols[i]));
  const Tensor got = exchanged(sent, to, from);
  if (cols[rank()] == 0) return {};
  return reordered(got.reshape(rows(), cols[rank()]), false);
}

void HeadExchange::scatter(const Tensor& whole, const std::vector<std::int64_t>& cols,
                           const std::function<void(int, const View&)>& take) const {
  std::vector<std::int64_t> from, to(cols.size(), here_ * cols[rank()]);
  for (const std::int64_t count : cols) from.push_back(here_ * count);
  const Tensor got = exchanged(whole.empty() ? whole : reordered(whole, true), to, from);
  std::int64_t at = 0;
  for (int i = 0; i < ranks(); at += from[i++])
    if (cols[i] > 0) take(i, matrix_of(got.view(), at, here_, cols[i]));
}

Tensor HeadExchange::starts() const {
  if (!starts_.data) return {};
  const Tensor stacked = ctx_.empty(rows(), 1, DType::i32);
  group_
      .all_gather(buffer_of(stacked.raw_view()), buffer_of(starts_), ctx_.scheduling().scope.label)
      .wait();
  Tensor out = ctx_.like(stacked);
  const auto as_floats = [](View view) {  // which are moved bit by bit
    view.dtype = DType::f32;
    return view;
  };
  order(as_floats(out.view()), as_floats(stacked.view()), false);
  return out.reshape(1, rows());
}

/// `inp` has a piece for each rank, and the result one of each; inp may be empty if all of its
/// pieces are. (1, n).
Tensor HeadExchange::exchanged(const Tensor& inp, const std::vector<std::int64_t>& to,
                               const std::vector<std::int64_t>& from) const {
  const std::int64_t sent = std::accumulate(to.begin(), to.end(), std::int64_t{0}),
                     got = std::accumulate(from.begin(), from.end(), std::int64_t{0});
  const Tensor none = ctx_.empty(1, 1, inp.empty() ? ctx_.dtype : inp.dtype());
  Tensor out = got > 0 ? ctx_.empty(1, got, none.dtype()) : none;
  Buffer from_here = buffer_of((inp.empty() ? none : inp).view()), here = buffer_of(out.raw_view());
  from_here.count = sent;
  here.count = got;
  Work work =
      group_.all_to_all(here, from_here, {.to = to, .from = from}, ctx_.scheduling().scope.label);
  if (!inp.empty()) work.keep(inp.owner());
  out.set_pending(std::move(work));
  return out;
}

Tensor HeadExchange::reordered(const Tensor& inp, bool inverse) const {
  Tensor out = ctx_.like(inp);
  order(out.view(), inp.view(), inverse);
  return out;
}

void HeadExchange::order(const View& out, const View& inp, bool inverse) const {
  ctx_.backend.run(ops::OrderBlocks{.out = out,
                                    .inp = inp,
                                    .slots = slots_,
                                    .sequences = sequences_,
                                    .ways = ranks(),
                                    .inverse = inverse});
}

}  // namespace axonn
