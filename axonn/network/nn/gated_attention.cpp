#include "axonn/network/nn/gated_attention.h"

namespace axonn {

namespace {

/// The columns of heads that have gates.
struct GatedColumns {
  LocalHeads at;
  std::int64_t queries, rest;  // columns of all query heads; and of keys and values

  GatedColumns(const Context& ctx, const Heads& heads, AxisSet over)
      : at(ctx, heads, over), queries(at.heads * at.dim), rest(2 * at.room * at.dim) {}

  View last(const View& all) const { return all.col_range(all.cols - rest, rest); }
  /// Copies the queries, or the gates, between the product and a value of their own.
  void copy(const Context& ctx, const View& own, const View& product, bool gates, bool back) const {
    const View of_half = product.col_range(gates ? at.dim : 0, product.cols - (gates ? at.dim : 0));
    if (back)
      ctx.backend.run(ops::CopyHeads{of_half, own, at.heads, at.dim, 2 * at.dim, at.dim});
    else
      ctx.backend.run(ops::CopyHeads{own, of_half, at.heads, at.dim, at.dim, 2 * at.dim});
  }
};

}  // namespace

std::vector<HeadFeatures> gated_features(const Heads& heads) {
  return {{2 * heads.head_dim}, {heads.head_dim, true}, {heads.head_dim, true}};
}

Var without_gates(const Context& context, const Var& product, const Heads& heads) {
  return each_later(context, product, [heads](const Context& ctx, const Chunk& in) {
    const GatedColumns columns(ctx, heads, in.placement.cols);
    const auto of = [ctx, columns](const Tensor& from) {
      Tensor value = ctx.empty(from.rows(), columns.at.width(), from.dtype());
      columns.copy(ctx, value.view().col_range(0, columns.queries), from.view(), false, false);
      ctx.backend.run(ops::Cast{columns.last(value.view()), columns.last(from.view())});
      return value;
    };
    Chunk out = make_chunk(ctx, in, of(in.value), in.placement);
    let_remake(ctx, out, Remade::heads, in, of);
    return with_backward(
        ctx, out, [ctx, columns, cols = in.value.cols(), to = in.gradient](const Tensor& d_out) {
          Tensor d = ctx.zeros(d_out.rows(), cols, d_out.dtype());
          columns.copy(ctx, d_out.view().col_range(0, columns.queries), d.view(), false, true);
          ctx.backend.run(ops::Cast{columns.last(d.view()), columns.last(d_out.view())});
          to->add(ctx, std::move(d));
        });
  });
}

Var gates_of_heads(const Context& context, const Var& product, const Heads& heads) {
  return each_later(context, product, [heads](const Context& ctx, const Chunk& in) {
    const GatedColumns columns(ctx, heads, in.placement.cols);
    const auto of = [ctx, columns](const Tensor& from) {
      Tensor value = ctx.empty(from.rows(), columns.queries, from.dtype());
      columns.copy(ctx, value.view(), from.view(), true, false);
      return value;
    };
    Chunk out = make_chunk(ctx, in, of(in.value), in.placement);
    let_remake(ctx, out, Remade::heads, in, of);
    return with_backward(
        ctx, out, [ctx, columns, cols = in.value.cols(), to = in.gradient](const Tensor& d_out) {
          Tensor d = ctx.zeros(d_out.rows(), cols, d_out.dtype());
          columns.copy(ctx, d_out.view(), d.view(), true, true);
          to->add(ctx, std::move(d));
        });
  });
}

}  // namespace axonn
