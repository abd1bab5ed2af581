#include "axonn/nn/qk_norm.h"

#include "axonn/base/check.h"

namespace axonn {

QkNorm::QkNorm(ParameterGroup& group, const std::string& name, const Heads& heads, float eps)
    : heads_(heads), eps_(eps) {
  const Layout layout{.rows = heads.head_dim, .partial = {Axis::x, Axis::y}};
  q_weight_ = &group.add({.name = name + ".q_norm.weight", .layout = layout, .init_mean = 1});
  k_weight_ = &group.add({.name = name + ".k_norm.weight", .layout = layout, .init_mean = 1});
}

QkNorm::Norms QkNorm::norms(const LocalHeads& at, const View& out, const View& inp,
                            const View& rstd) const {
  return {.q = {.out = at.q(out),
                .inp = at.q(inp),
                .weight = q_weight_->weight(),
                .rstd = rstd.col_range(0, at.heads),
                .eps = eps_},
          .k = {.out = at.k(out),
                .inp = at.k(inp),
                .weight = k_weight_->weight(),
                .rstd = rstd.col_range(at.heads, at.room),
                .eps = eps_}};
}

Var QkNorm::operator()(const Context& context, const Var& qkv) const {
  const auto forward = [this](const Context& ctx, const Chunk& in) {
    const LocalHeads at(ctx, heads_, in.placement.cols);
    AXONN_CHECK(in.value.cols() == at.width(), q_weight_->spec().name, ": qkv ",
                in.value.raw_view(), ", wanted ", at.width(), " columns");
    ctx.backend.mark(q_weight_->spec().name);
    Tensor value = ctx.like(in.value);
    Tensor rstd = ctx.empty(in.value.rows(), at.heads + at.room, DType::f32);
    const Norms both = norms(at, value.view(), in.value.view(), rstd.view());
    ctx.backend.run(both.q);
    ctx.backend.run(both.k);
    ctx.backend.run(ops::Cast{at.v(value.view()), at.v(in.value.view())});
    Chunk out = make_chunk(ctx, in, value, in.placement);
    if (ctx.tape)
      ctx.tape->record([this, ctx, at, in, rstd, gradient = out.gradient] {
        in.gradient->add(ctx, backward(ctx, at, gradient->take(), in, rstd));
      });
    return out;
  };
  return each_later(context, qkv, forward, true);
}

Tensor QkNorm::backward(const Context& ctx, const LocalHeads& at, const Tensor& d_out,
                        const Chunk& qkv, const Tensor& rstd) const {
  ctx.backend.mark(q_weight_->spec().name);
  Tensor d_qkv = ctx.like(qkv.value);
  const View d = d_out.view(), to = d_qkv.view();
  const Norms forward = norms(at, to, qkv.value.view(), rstd.view());
  const AxisSet cut = qkv.placement.rows | qkv.placement.cols;
  const bool counts = !q_weight_->frozen() &&
                      (cut.has(Axis::y) || ctx.grid.coord(Axis::y) == 0);  // once among ranks of y
  const auto gradient = [&](const Parameter* weight) {
    return counts ? weight->gradient(ctx) : View{};
  };
  ctx.backend.run(ops::HeadNormBackward{
      .forward = forward.q, .d_out = at.q(d), .d_inp = at.q(to), .d_weight = gradient(q_weight_)});
  ctx.backend.run(ops::HeadNormBackward{
      .forward = forward.k, .d_out = at.k(d), .d_inp = at.k(to), .d_weight = gradient(k_weight_)});
  ctx.backend.run(ops::Cast{at.v(to), at.v(d)});
  return d_qkv;
}

}  // namespace axonn
