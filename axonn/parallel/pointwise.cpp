#include "axonn/parallel/pointwise.h"

#include "axonn/base/check.h"

namespace axonn {

Var gelu(const Context& ctx, const Var& inp) {
  Var outs;
  for (const Chunk& in : inp) {
    Tensor value = ctx.like(in.value);
    ctx.backend.gelu(value.view(), in.value.view());
    outs.push_back(make_chunk(ctx, in, value, in.placement));
    if (!ctx.tape) continue;
    ctx.tape->record([ctx, in, gradient = outs.back().gradient] {
      const Tensor d_out = gradient->take();
      Tensor d_inp = d_out.unique() ? d_out : ctx.like(in.value);
      ctx.backend.gelu_backward(d_inp.view(), d_out.view(), in.value.view());
      in.gradient->add(ctx, std::move(d_inp));
    });
  }
  return outs;
}

Var swiglu(const Context& ctx, const Var& inp) {
  Var outs;
  for (const Chunk& in : inp) {
    Tensor value = ctx.empty(in.value.rows(), in.value.cols() / 2, ctx.dtype);
    ctx.backend.swiglu(value.view(), in.value.view());
    outs.push_back(make_chunk(ctx, in, value, in.placement));
    if (!ctx.tape) continue;
    ctx.tape->record([ctx, in, gradient = outs.back().gradient] {
      const Tensor d_out = gradient->take();
      const View gate_up = in.value.view();
      Tensor d_inp = in.value.unique() ? in.value : ctx.like(in.value);
      ctx.backend.swiglu_backward(d_inp.view(), d_out.view(), gate_up);
      in.gradient->add(ctx, std::move(d_inp));
    });
  }
  return outs;
}

Var add(const Context& ctx, const Var& a, const Var& b) {
  AXONN_CHECK(a.size() == b.size(), "add: ", a.size(), " and ", b.size(), " chunks");
  Var outs;
  for (std::size_t i = 0; i < a.size(); ++i) {
    AXONN_CHECK(a[i].placement == b[i].placement && a[i].value.cols() == b[i].value.cols() &&
                    a[i].value.rows() == b[i].value.rows(),
                "add: ", a[i].value.raw_view(), " and ", b[i].value.raw_view(),
                " do not lie alike on the grid");
    Tensor value = ctx.like(a[i].value), moments = ctx.empty(value.rows(), 2, DType::f32);
    ctx.backend.add_moments(value.view(), moments.view(), a[i].value.view(), b[i].value.view());
    outs.push_back(make_chunk(ctx, a[i], value, a[i].placement));
    outs.back().moments = moments;
    if (!ctx.tape) continue;
    ctx.tape->record(
        [ctx, to_a = a[i].gradient, to_b = b[i].gradient, gradient = outs.back().gradient] {
          const Tensor d_out = gradient->take();
          to_a->add(ctx, d_out);
          to_b->add(ctx, d_out);
        });
  }
  return outs;
}

}  // namespace axonn
