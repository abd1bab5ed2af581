#include "axonn/network/nn/gathered.h"

#include <utility>

namespace axonn {

Var gathered(const Context& context, const Var& inp, Axis axis, const Runs& runs) {
  return each_later(context, inp, [axis, runs](const Context& ctx, const Chunk& in) {
    const Axis of_rows = axis == Axis::x ? Axis::y : Axis::x;
    const Tensor rows =
        Gather(ctx, in.value, of_rows, cut_over(in.placement, of_rows)).whole(ctx, {});
    const Tensor value = Gather(ctx, rows, axis, Cut::columns).whole(ctx, runs);
    Chunk out = make_chunk(ctx, in, value, {in.placement.rows.without(of_rows), {}});
    return with_backward(
        ctx, out,
        [ctx, axis, of_rows, runs, rows_cut = in.placement.rows.has(of_rows),
         to = in.gradient](const Tensor& d_out) {
          const std::int64_t ways = ctx.grid.extent(axis), at = ctx.grid.coord(axis),
                             count =
                                 rows_cut ? d_out.rows() / ctx.grid.extent(of_rows) : d_out.rows(),
                             first = rows_cut ? count * ctx.grid.coord(of_rows) : 0;
          Tensor d_inp = ctx.empty(count, d_out.cols() / ways, d_out.dtype());
          std::int64_t whole = 0, here = 0;
          for (const std::int64_t run : runs) {
            const std::int64_t part = run / ways;
            ctx.backend.run(
                ops::Cast{d_inp.view().col_range(here, part),
                          d_out.view().row_range(first, count).col_range(whole + at * part, part)});
            whole += run;
            here += part;
          }
          to->add(ctx, std::move(d_inp));
        });
  });
}

Var columns_over(const Context& context, const Var& inp, Axis axis, std::int64_t first,
                 std::int64_t width) {
  return each_later(context, inp, [axis, first, width](const Context& ctx, const Chunk& in) {
    const std::int64_t part = width / ctx.grid.extent(axis),
                       begin = first + part * ctx.grid.coord(axis);
    Tensor value = ctx.empty(in.value.rows(), part, in.value.dtype());
    ctx.backend.run(ops::Cast{value.view(), in.value.view().col_range(begin, part)});
    Chunk out = make_chunk(ctx, in, value, {in.placement.rows, axis});
    return with_backward(
        ctx, out,
        [ctx, axis, first, width, cols = in.value.cols(), to = in.gradient](const Tensor& d_out) {
          const Tensor d = Gather(ctx, d_out, axis, Cut::columns).whole(ctx, {width});
          Tensor d_inp = ctx.zeros(d.rows(), cols, d.dtype());
          ctx.backend.run(ops::Cast{d_inp.view().col_range(first, width), d.view()});
          to->add(ctx, std::move(d_inp));
        });
  });
}

}  // namespace axonn
