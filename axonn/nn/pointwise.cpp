#include "axonn/nn/pointwise.h"

#include "axonn/base/check.h"

namespace axonn {

Chunk gelu_chunk(const Context& ctx, const Chunk& inp, Tensor value) {
  Chunk out = make_chunk(ctx, inp, std::move(value), inp.placement);
  if (!out.gradient) return out;
  out.gelu_of = {inp.value, inp.gradient};
  ctx.tape->record([ctx, of = out.gelu_of, gradient = out.gradient] {
    const Tensor d_out = gradient->take_if_any();
    if (d_out.empty()) return;  // a product's epilogue has added to of.gradient instead
    Tensor d_inp = d_out.unique() ? d_out : ctx.like(of.value);
    ctx.backend.gelu_backward(d_inp.view(), d_out.view(), of.value.view());
    of.gradient->add(ctx, std::move(d_inp));
  });
  return out;
}

Var gelu(const Context& context, const Var& inp) {
  return each_later(context, inp, [](const Context& ctx, const Chunk& in) {
    Tensor value = ctx.like(in.value);
    ctx.backend.gelu(value.view(), in.value.view());
    return gelu_chunk(ctx, in, std::move(value));
  });
}

Var swiglu(const Context& context, const Var& inp) {
  return each_later(context, inp, [](const Context& ctx, const Chunk& in) {
    Tensor value = ctx.empty(in.value.rows(), in.value.cols() / 2, ctx.dtype);
    ctx.backend.swiglu(value.view(), in.value.view());
    Chunk out = make_chunk(ctx, in, value, in.placement);
    if (!out.gradient) return out;
    ctx.tape->record([ctx, in, gradient = out.gradient] {
      const Tensor d_out = gradient->take();
      const View gate_up = in.value.view();
      Tensor d_inp = in.value.unique() ? in.value : ctx.like(in.value);
      ctx.backend.swiglu_backward(d_inp.view(), d_out.view(), gate_up);
      in.gradient->add(ctx, std::move(d_inp));
    });
    return out;
  });
}

namespace {

Chunk add_chunks(const Context& ctx, const Chunk& a, const Chunk& b) {
  AXONN_CHECK(a.placement == b.placement && a.value.cols() == b.value.cols() &&
                  a.value.rows() == b.value.rows(),
              "add: ", a.value.raw_view(), " and ", b.value.raw_view(),
              " differ in shape or in placement on the grid");
  Tensor value = ctx.like(a.value), moments = ctx.empty(value.rows(), 2, DType::f32);
  ctx.backend.add_moments(value.view(), moments.view(), a.value.view(), b.value.view());
  Chunk out = make_chunk(ctx, a, value, a.placement);
  if (b.gradient) need_gradient(ctx, out);
  out.moments = moments;
  if (!out.gradient) return out;
  ctx.tape->record([ctx, to_a = a.gradient, to_b = b.gradient, gradient = out.gradient] {
    const Tensor d_out = gradient->take();
    for (const auto& to : {to_a, to_b})
      if (to) to->add(ctx, d_out);
  });
  return out;
}

}  // namespace

Var add(const Context& context, const Var& a, const Var& b) {
  AXONN_CHECK(a.size() == b.size(), "add: ", a.size(), " and ", b.size(), " chunks");
  Var outs;
  for (std::size_t i = 0; i < a.size(); ++i)
    outs.push_back_later(later(context, i, [a = a.part(i), b = b.part(i)](const Context& ctx) {
      return add_chunks(ctx, a.front(), b.front());
    }));
  return outs;
}

}  // namespace axonn
