#include "axonn/network/nn/attention/gated_attention.h"

namespace axonn {

namespace {

/// A head's features are its query's, then its gate's.
enum class Half { queries, gates };

/// One half of every head of a product, as a value of its own. The queries keep the keys and values
/// behind them.
struct HalfOfHeads {
  LocalHeads at;
  Half half;
  std::int64_t columns, rest;  // columns of the half; and of the keys and values behind it

  HalfOfHeads(const Context& ctx, const Heads& heads, AxisSet over, Half which)
      : at(ctx, heads, over),
        half(which),
        columns(at.heads * at.dim),
        rest(which == Half::queries ? 2 * at.room * at.dim : 0) {}

  View within(const View& product) const {
    const std::int64_t begin = half == Half::gates ? at.dim : 0;
    return product.col_range(begin, product.cols - begin);
  }
  View behind(const View& all) const { return all.col_range(all.cols - rest, rest); }

  Tensor take(const Context& ctx, const Tensor& product) const {
    Tensor value = ctx.empty(product.rows(), columns + rest, product.dtype());
    const View own = value.view().col_range(0, columns);
    ctx.backend.run(
        ops::CopyHeads{own, within(product.view()), at.heads, at.dim, at.dim, 2 * at.dim});
    if (rest > 0) ctx.backend.run(ops::Cast{behind(value.view()), behind(product.view())});
    return value;
  }
  /// The gradient of a product of `cols` columns, of which this half has gradient `d`.
  Tensor give_back(const Context& ctx, const Tensor& d, std::int64_t cols) const {
    Tensor product = ctx.zeros(d.rows(), cols, d.dtype());
    const View own = d.view().col_range(0, columns);
    ctx.backend.run(
        ops::CopyHeads{within(product.view()), own, at.heads, at.dim, 2 * at.dim, at.dim});
    if (rest > 0) ctx.backend.run(ops::Cast{behind(product.view()), behind(d.view())});
    return product;
  }
};

Var half_of_heads(const Context& context, const Var& product, const Heads& heads, Half half) {
  return each_later(context, product, [heads, half](const Context& ctx, const Chunk& in) {
    const HalfOfHeads part(ctx, heads, in.placement.cols, half);
    const auto of = [ctx, part](const Tensor& from) { return part.take(ctx, from); };
    Chunk out = make_chunk(ctx, in, of(in.value), in.placement);
    let_remake(ctx, out, Remade::heads, in, of);
    return with_backward(ctx, out,
                         [ctx, part, cols = in.value.cols(), to = in.gradient](const Tensor& d) {
                           to->add(ctx, part.give_back(ctx, d, cols));
                         });
  });
}

}  // namespace

std::vector<HeadFeatures> gated_features(const Heads& heads) {
  return {{2 * heads.head_dim}, {heads.head_dim, true}, {heads.head_dim, true}};
}

Var without_gates(const Context& context, const Var& product, const Heads& heads) {
  return half_of_heads(context, product, heads, Half::queries);
}

Var gates_of_heads(const Context& context, const Var& product, const Heads& heads) {
  return half_of_heads(context, product, heads, Half::gates);
}

}  // namespace axonn
