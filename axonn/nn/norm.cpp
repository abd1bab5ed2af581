#include "axonn/nn/norm.h"

#include "axonn/base/check.h"

namespace axonn {

namespace {

constexpr Axis kAxis = Axis::y;  // cuts the width of the residual stream

}  // namespace

LayerNorm::LayerNorm(ParameterGroup& group, const std::string& name, Options options)
    : options_(options) {
  const Layout layout{.rows = options.width, .cols = 1, .row_axis = kAxis, .partial = Axis::x};
  weight_ = &group.add({.name = name + ".weight", .layout = layout, .init_mean = 1});
  if (options.bias) bias_ = &group.add({.name = name + ".bias", .layout = layout});
}

Var LayerNorm::operator()(const Context& ctx, const Var& inp) const {
  // With two chunks neither can start early: each would wait for the sum in flight.
  return each_later_in_two(
      ctx, inp, ctx.grid.extent(kAxis) > 1 && inp.size() > 2,
      [this](const Context& here, const Chunk& chunk) { return gather_moments(here, chunk); },
      [this](const Context& here, const Chunk& chunk, const Tensor& moments) {
        return forward(here, chunk, moments);
      });
}

Tensor LayerNorm::gather_moments(const Context& ctx, const Chunk& inp) const {
  AXONN_CHECK(inp.placement.cols == AxisSet(kAxis) && inp.value.cols() == weight_->local_rows(),
              weight_->spec().name, ": the input has ", inp.value.cols(), " columns here, wanted ",
              weight_->local_rows(), " over y");
  ctx.backend.mark(weight_->spec().name);
  const Communicator& group = ctx.grid.along(kAxis);
  const std::int64_t rows = inp.value.rows();
  Tensor moments = ctx.empty(group.size() * rows, 2, DType::f32);
  const View mine = moments.view().row_range(group.rank() * rows, rows);
  if (inp.moments.empty())
    ctx.backend.run(ops::RowMoments{mine, inp.value.view()});
  else
    ctx.backend.run(ops::Cast{mine, inp.moments.view()});
  if (options_.about_zero) ctx.backend.run(ops::MomentsAboutZero{mine, mine, inp.value.cols()});
  moments.set_pending(ctx.grid.along(kAxis).all_gather(buffer_of(moments.raw_view()),
                                                       buffer_of(mine), weight_->spec().name));
  return moments;
}

Chunk LayerNorm::forward(const Context& ctx, const Chunk& inp, const Tensor& moments) const {
  ctx.backend.mark(weight_->spec().name);
  Tensor stats = ctx.empty(inp.value.rows(), 2, DType::f32);
  ctx.backend.run(
      ops::CombineMoments{stats.view(), moments.view(), inp.value.cols(), options_.eps});

  Tensor value = ctx.like(inp.value);
  ctx.backend.run(ops::LayerNorm{value.view(), inp.value.view(), weight_->weight(),
                                 bias_ ? bias_->weight() : View{}, stats.view()});
  Chunk out = make_chunk(ctx, inp, value, inp.placement);
  if (!ctx.tape) return out;
  const auto sums = std::make_shared<Sums>();
  ctx.tape->record([this, ctx, inp, stats, sums] { backward(ctx, inp, stats, *sums); });
  if (ctx.grid.extent(kAxis) > 1) ctx.tape->pause();
  ctx.tape->record([this, ctx, inp, stats, sums, gradient = out.gradient] {
    *sums = start_backward(ctx, inp, stats, gradient->take());
  });
  return out;
}

LayerNorm::Sums LayerNorm::start_backward(const Context& ctx, const Chunk& inp, const Tensor& stats,
                                          Tensor d_out) const {
  ctx.backend.mark(weight_->spec().name);
  Tensor sums = ctx.empty(d_out.rows(), 2, DType::f32);
  if (options_.about_zero)
    ctx.backend.run(ops::RmsNormSums{sums.view(), d_out.view(), inp.value.view(), weight_->weight(),
                                     stats.view()});
  else
    ctx.backend.run(ops::LayerNormSums{sums.view(), d_out.view(), inp.value.view(),
                                       weight_->weight(), stats.view()});
  sums.set_pending(
      ctx.grid.along(kAxis).all_reduce(buffer_of(sums.raw_view()), weight_->spec().name));
  // Counts each row once among the ranks of x.
  const bool once = inp.placement.rows.has(Axis::x) || ctx.grid.coord(Axis::x) == 0;
  if (once && !weight_->frozen())
    ctx.backend.run(ops::LayerNormWeightBackward{weight_->gradient(ctx),
                                                 bias_ ? bias_->gradient(ctx) : View{},
                                                 d_out.view(), inp.value.view(), stats.view()});
  return {std::move(d_out), std::move(sums)};
}

void LayerNorm::backward(const Context& ctx, const Chunk& inp, const Tensor& stats,
                         const Sums& sums) const {
  const Tensor residual = inp.gradient->take_if_any();  // from the residual connection
  Tensor d_inp = ctx.like(inp.value);
  ctx.backend.run(ops::LayerNormBackward{.d_inp = d_inp.view(),
                                         .d_out = sums.d_out.view(),
                                         .inp = inp.value.view(),
                                         .weight = weight_->weight(),
                                         .stats = stats.view(),
                                         .sums = sums.sums.view(),
                                         .residual = residual.empty() ? View{} : residual.view(),
                                         .width = options_.width});
  inp.gradient->add(ctx, std::move(d_inp));
}

}  // namespace axonn
