#include "layer_scale.h"

using namespace axonn;

namespace {

/// out = inp · gamma (R, C) of f32 or bf16, which T is; gamma (1, C) of the same type.
template <typename T>
void multiply_columns(const View& out, const View& inp, const View& gamma) {
  const T* const factors = gamma.as<T>();
  for (std::int64_t r = 0; r < out.rows; ++r) {
    T* const to = out.row<T>(r);
    const T* const from = inp.row<T>(r);
    for (std::int64_t c = 0; c < out.cols; ++c) put(to[c], get(from[c]) * get(factors[c]));
  }
}

/// d_gamma (1, C) f32 += the sum over rows of d_out · inp, (R, C) of f32 or bf16.
template <typename T>
void sum_gradient(const View& d_gamma, const View& d_out, const View& inp) {
  float* const sums = d_gamma.as<float>();
  for (std::int64_t r = 0; r < inp.rows; ++r) {
    const T *const d = d_out.row<T>(r), *const x = inp.row<T>(r);
    for (std::int64_t c = 0; c < inp.cols; ++c) sums[c] += get(d[c]) * get(x[c]);
  }
}

void multiply_columns(const Context& ctx, const View& out, const View& inp, const View& gamma) {
  const auto run = inp.dtype == DType::bf16 ? multiply_columns<bf16> : multiply_columns<float>;
  ctx.backend.on_host(
      {.name = "layer_scale",
       .results = {out},
       .inputs = {inp, gamma},
       .compute = [run](Views results, Views inputs) { run(results[0], inputs[0], inputs[1]); }});
}

}  // namespace

/// gamma is cut as the columns of its input are, over y. Where x cuts the rows, each rank has only
/// a part of the gradient's sum: it is partial on x.
LayerScale::LayerScale(ParameterGroup& group, const std::string& name, Options options)
    : gamma_(group.add({.name = name + ".gamma",
                        .layout = {.rows = options.width, .row_axis = Axis::y, .partial = Axis::x},
                        .init_mean = options.init})) {}

Var LayerScale::operator()(const Context& ctx, const Var& inp) const {
  return each_later(
      ctx, inp, [this](const Context& here, const Chunk& chunk) { return forward(here, chunk); },
      {.reads_parameters = true});
}

Chunk LayerScale::forward(const Context& ctx, const Chunk& inp) const {
  AXONN_CHECK(inp.placement.cols == AxisSet(Axis::y) && inp.value.cols() == gamma_.local_rows(),
              gamma_.spec().name, ": the input has ", inp.value.cols(), " columns here, wanted ",
              gamma_.local_rows(), " over y");
  ctx.backend.mark(gamma_.spec().name);
  const Tensor value = ctx.like(inp.value);
  multiply_columns(ctx, value.view(), inp.value.view(), gamma_.weight());
  Chunk out = make_chunk(ctx, inp, value, inp.placement);
  if (!gamma_.frozen()) need_gradient(ctx, out);
  return with_backward(ctx, out, [this, ctx, kept = SavedChunk(ctx, inp)](const Tensor& d_out) {
    backward(ctx, kept.get(), d_out);
  });
}

void LayerScale::backward(const Context& ctx, const Chunk& inp, const Tensor& d_out) const {
  ctx.backend.mark(gamma_.spec().name);
  if (adds_gradient(ctx, gamma_, inp.placement)) {
    const auto run = d_out.dtype() == DType::bf16 ? sum_gradient<bf16> : sum_gradient<float>;
    ctx.backend.on_host(
        {.name = "layer_scale_gradient",
         .results = {gamma_.gradient(ctx)},
         .inputs = {d_out.view(), inp.value.view()},
         .compute = [run](Views results, Views inputs) { run(results[0], inputs[0], inputs[1]); }});
  }
  if (!inp.gradient) return;
  Tensor d_inp = ctx.like(inp.value);
  multiply_columns(ctx, d_inp.view(), d_out.view(), gamma_.weight());
  inp.gradient->add(ctx, std::move(d_inp));
}
