#include "axonn/network/nn/experts/row_gate.h"

#include "axonn/foundation/base/check.h"

namespace axonn {

/// Of R rows: as those of a router with one expert, which all rows choose.
struct RowGate::Factors {
  Tensor ids, logits, scores, log_sums, score_sums, weights;  // (R, 1)

  ops::Route route() const {
    return {.ids = ids.view(),
            .weights = weights.view(),
            .scores = scores.view(),
            .log_sums = log_sums.view(),
            .score_sums = score_sums.view(),
            .logits = logits.view(),
            .bias = {},
            .sigmoid = true,
            .normalise = false};
  }
};

RowGate::RowGate(ParameterGroup& group, const std::string& name, std::int64_t width,
                 double init_std)
    : weight_(
          &group.add({.name = name + ".weight",
                      .layout = {.rows = 1, .cols = width, .col_axis = Axis::y, .partial = Axis::x},
                      .init_std = init_std,
                      .decays = true,
                      .hidden = true})) {}

RowGate::Factors RowGate::factors(const Context& ctx, const Chunk& inp) const {
  AXONN_CHECK(inp.placement.cols == AxisSet(Axis::y) && inp.value.cols() == weight_->local_cols(),
              weight_->spec().name, ": the input has ", inp.value.cols(), " columns over ",
              names_of(inp.placement.cols), ", wanted ", weight_->local_cols(), " over y");
  ctx.backend.mark(weight_->spec().name);
  const auto column = [&](DType type) { return ctx.empty(inp.value.rows(), 1, type); };
  Factors made{column(DType::i32), column(DType::f32), column(DType::f32),
               column(DType::f32), column(DType::f32), column(DType::f32)};
  ctx.backend.matmul({.out = made.logits.view(),
                      .a = inp.value.view(),
                      .b = weight_->weight(),
                      .b_transposed = true});
  sum_over(ctx, made.logits, Axis::y, Cut::same, {});
  ctx.backend.run(made.route());
  return made;
}

Var RowGate::operator()(const Context& context, const Var& value, const Var& inp) const {
  const auto forward = [this](const Context& ctx, const std::vector<Chunk>& of) {
    AXONN_CHECK(of[0].placement == of[1].placement, weight_->spec().name,
                ": the value lies otherwise than the input");
    const Factors made = factors(ctx, of[1]);
    const std::int64_t rows = of[0].value.rows();
    const Tensor line = ctx.empty(1, rows, DType::i32), numbers = line.reshape(rows, 1);
    ctx.backend.run(ops::ChunkStarts{.out = line.view(), .chunk = 1, .length = rows});  // 0, 1, ...
    const Tensor scaled = ctx.like(of[0].value);
    ctx.backend.run(
        ops::CombineRows{scaled.view(), of[0].value.view(), numbers.view(), made.weights.view()});
    Chunk out = make_chunk(ctx, of[0], scaled, of[0].placement);
    if (!weight_->frozen() || of[1].gradient) need_gradient(ctx, out);
    const SavedChunk kept(ctx, of[0]), read(ctx, of[1]);
    return with_backward(ctx, out, [this, ctx, made, numbers, kept, read](const Tensor& d_out) {
      const Chunk gated = kept.get();
      Tensor d = ctx.like(gated.value), d_factors = ctx.like(made.weights);
      ctx.backend.run(ops::CombineRowsBackward{.d_inp = d.view(),
                                               .d_weights = d_factors.view(),
                                               .d_out = d_out.view(),
                                               .inp = gated.value.view(),
                                               .copy_rows = numbers.view(),
                                               .weights = made.weights.view()});
      if (gated.gradient) gated.gradient->add(ctx, std::move(d));
      sum_over(ctx, d_factors, Axis::y, Cut::same, {});
      backward(ctx, read.get(), made, d_factors);
    });
  };
  const Var outs = each_of(context, "row gate", {value, inp}, forward);
  outs.make();  // which reads a parameter of the block
  return outs;
}

/// Adds to the gradients of the weight and of the input.
void RowGate::backward(const Context& ctx, const Chunk& inp, const Factors& factors,
                       const Tensor& d_factors) const {
  ctx.backend.mark(weight_->spec().name);
  const Tensor d_logits = ctx.like(factors.logits);
  ctx.backend.run(ops::RouteBackward{.d_logits = d_logits.view(),
                                     .d_weights = d_factors.view(),
                                     .forward = factors.route(),
                                     .positions = inp.rows.positions});
  const auto in_f32 = [&](const View& view) {
    Tensor copy = ctx.empty(view.rows, view.cols, DType::f32);
    ctx.backend.run(ops::Cast{copy.view(), view});
    return copy;
  };
  if (adds_gradient(ctx, *weight_, inp.placement)) {
    const Tensor rows = in_f32(inp.value.view());
    const auto [d_weight, accumulate] = weight_->gradient_of_all();
    ctx.backend.matmul({.out = d_weight,
                        .a = d_logits.view(),
                        .b = rows.view(),
                        .a_transposed = true,
                        .accumulate = accumulate});
  }
  if (!inp.gradient) return;
  const Tensor weight = in_f32(weight_->weight());
  const Tensor d_rows = ctx.empty(inp.value.rows(), inp.value.cols(), DType::f32);
  ctx.backend.matmul({.out = d_rows.view(), .a = d_logits.view(), .b = weight.view()});
  Tensor d_inp = ctx.like(inp.value);
  ctx.backend.run(ops::Cast{d_inp.view(), d_rows.view()});
  inp.gradient->add(ctx, std::move(d_inp));
}

}  // namespace axonn
