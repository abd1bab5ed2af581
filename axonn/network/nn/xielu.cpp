#include "axonn/network/nn/xielu.h"

#include <cmath>

#include "axonn/ranks/parallel/block.h"
#include "axonn/ranks/parallel/recompute.h"

namespace axonn {

namespace {

/// The number whose softplus is x.
double inverse_softplus(double x) { return std::log(std::expm1(x)); }

}  // namespace

Xielu::Xielu(ParameterGroup& group, const std::string& name) {
  constexpr double kInitial = 0.8;  // of ap and an, as published
  const Layout layout{.rows = 1, .partial = {Axis::x, Axis::y}};
  p_ = &group.add(
      {.name = name + ".alpha_p", .layout = layout, .init_mean = inverse_softplus(kInitial)});
  n_ = &group.add({.name = name + ".alpha_n",
                   .layout = layout,
                   .init_mean = inverse_softplus(kInitial - kBeta)});
}

Var Xielu::operator()(const Context& context, const Var& inp) const {
  const auto forward = [this](const Context& ctx, const Chunk& in) {
    const auto of = [this, ctx](const Tensor& from) {
      ctx.backend.mark(p_->spec().name);
      Tensor value = ctx.like(from);
      ctx.backend.run(ops::Xielu{value.view(), from.view(), p_->weight(), n_->weight()});
      return value;
    };
    Chunk out = make_chunk(ctx, in, of(in.value), in.placement);
    if (!p_->frozen()) need_gradient(ctx, out);
    let_remake(ctx, out, Remade::activations, in, of);
    return with_backward(ctx, out, [this, ctx, kept = SavedChunk(ctx, in)](const Tensor& d_out) {
      const Chunk whole = kept.get();
      Tensor d_inp = backward(ctx, whole, d_out);
      if (whole.gradient) whole.gradient->add(ctx, std::move(d_inp));
    });
  };
  return each_later(context, inp, forward, {.reads_parameters = true});
}

Tensor Xielu::backward(const Context& ctx, const Chunk& inp, const Tensor& d_out) const {
  ctx.backend.mark(p_->spec().name);
  Tensor d_inp = d_out.unique() ? d_out : ctx.like(inp.value);
  const bool counts = adds_gradient(ctx, *p_, inp.placement);
  Tensor sums;
  if (counts) sums = ctx.empty(d_out.rows(), 2, DType::f32);
  ctx.backend.run(ops::XieluBackward{.forward = {{}, inp.value.view(), p_->weight(), n_->weight()},
                                     .d_inp = d_inp.view(),
                                     .d_out = d_out.view(),
                                     .sums = sums.view(),
                                     .d_p = counts ? p_->gradient(ctx) : View{},
                                     .d_n = counts ? n_->gradient(ctx) : View{}});
  return d_inp;
}

}  // namespace axonn
