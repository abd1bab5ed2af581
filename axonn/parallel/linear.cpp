#include "axonn/parallel/linear.h"

#include "axonn/base/check.h"

namespace axonn {

Linear::Linear(ParameterGroup& group, const std::string& name, Options options)
    : in_axis_(options.orientation == Orientation::normal ? Axis::y : Axis::x),
      out_axis_(options.orientation == Orientation::normal ? Axis::x : Axis::y) {
  const Layout layout{.rows = options.out,
                      .cols = options.in,
                      .row_axis = out_axis_,
                      .col_axis = in_axis_,
                      .segments = options.segments};
  weight_ = &group.add(
      {.name = name + ".weight", .layout = layout, .init_std = options.init_std, .decays = true});
  if (!options.bias) return;
  Layout vector = layout;
  vector.cols = 1;
  vector.col_axis.reset();
  bias_ = &group.add({.name = name + ".bias", .layout = vector});
}

Var Linear::operator()(const Context& ctx, const Var& inp) const {
  Var out;
  for (const Chunk& chunk : inp) out.push_back(forward(ctx, chunk));
  return out;
}

Chunk Linear::forward(const Context& ctx, const Chunk& inp) const {
  AXONN_CHECK(inp.placement.cols == in_axis_ && inp.value.cols() == weight_->local_cols(),
              weight_->spec().name, ": the input has ", inp.value.cols(), " columns over ",
              inp.placement.cols ? name_of(*inp.placement.cols) : "no axis", ", wanted ",
              weight_->local_cols(), " over ", name_of(in_axis_),
              "; alternate Orientation::normal and Orientation::transposed");
  ctx.backend.mark(weight_->spec().name);
  const bool adds_bias = bias_ && ctx.grid.coord(in_axis_) == 0;
  Tensor value = ctx.empty(inp.value.rows(), weight_->local_rows(), ctx.dtype);
  ctx.backend.matmul({.out = value.view(),
                      .a = inp.value.view(),
                      .b = weight_->weight(),
                      .b_transposed = true,
                      .bias = adds_bias ? bias_->weight() : View{}});
  Placement placement{inp.placement.rows, out_axis_, in_axis_};
  settle(ctx, value, placement);
  Chunk out = make_chunk(ctx, inp, value, placement);
  if (!ctx.tape) return out;

  ctx.tape->record([this, ctx, in = inp, gradient = out.gradient] {
    const Tensor d_out = gradient->take();
    ctx.backend.mark(weight_->spec().name);
    if (in.gradient) {
      Tensor d_inp = ctx.like(in.value);
      ctx.backend.matmul({.out = d_inp.view(), .a = d_out.view(), .b = weight_->weight()});
      Placement placement_in{in.placement.rows, in_axis_, out_axis_};
      settle(ctx, d_inp, placement_in);
      if (!ctx.overlap.input_gradients) d_inp.wait();
      in.gradient->add(ctx, std::move(d_inp));
    }
    ctx.backend.matmul({.out = weight_->gradient(),
                        .a = d_out.view(),
                        .b = in.value.view(),
                        .a_transposed = true,
                        .accumulate = true});
    if (bias_) ctx.backend.column_sum(bias_->gradient(), d_out.view());
  });
  return out;
}

}  // namespace axonn
