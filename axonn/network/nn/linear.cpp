#include "axonn/network/nn/linear.h"

#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/adapters/magnitudes.h"
#include "axonn/network/nn/pointwise.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

namespace {

/// Declares spec.name + kind; with parts, a parameter for each segment, joined.
std::vector<const Parameter*> declare(ParameterGroup& group, ParameterSpec spec,
                                      const std::string& kind,
                                      const std::vector<std::string>& parts) {
  if (parts.empty()) {
    spec.name += kind;
    return {&group.add(std::move(spec))};
  }
  AXONN_CHECK(parts.size() == spec.layout.segments.size(), spec.name, ": ", parts.size(),
              " parts for ", spec.layout.segments.size(), " segments");
  std::vector<ParameterSpec> all;
  std::string names;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Segment& segment = spec.layout.segments[i];
    ParameterSpec part = spec;
    part.name = spec.name + '.' + parts[i] + kind;
    part.layout.rows = segment.rows;
    part.layout.segments = {segment};
    all.push_back(std::move(part));
    names += (i > 0 ? "|" : "") + parts[i];
  }
  return group.add_runs(spec.name + '.' + names + kind, std::move(all));
}

}  // namespace

Linear::Linear(ParameterGroup& group, const std::string& name, Options options)
    : in_axis_(options.orientation == Orientation::normal ? Axis::y : Axis::x),
      out_axis_(options.orientation == Orientation::normal ? Axis::x : Axis::y),
      heads_(options.heads),
      again_(name + " (input again)") {
  const Layout layout{
      .rows = options.out,
      .cols = options.in,
      .row_axis = out_axis_,
      .col_axis = in_axis_,
      .segments = heads_ ? heads_->qkv_segments() : options.segments,
      .col_unit = options.in_unit,
  };
  weights_ = declare(group,
                     {.name = name,
                      .layout = layout,
                      .init_std = options.init_std,
                      .decays = true,
                      .hidden = true},
                     ".weight", options.parts);
  if (options.adapters) adapt(*options.adapters, name, layout, options.parts);
  if (!options.bias) return;
  Layout vector = layout;
  vector.cols = 1;
  vector.col_axis.reset();
  vector.col_unit = 0;
  vector.partial = in_axis_;
  bias_ = declare(group, {.name = name, .layout = vector}, ".bias", options.parts).front();
}

void Linear::adapt(Adapters& adapters, const std::string& name, const Layout& layout,
                   const std::vector<std::string>& parts) {
  if (parts.empty()) return adapters.add_to(adapters_, {name, layout, weight()});
  std::int64_t row = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Layout part = layout;
    part.segments = {layout.segments[i]};
    part.rows = part.segments.front().rows;
    adapters.add_to(adapters_, {name + '.' + parts[i], part, weight(), row});
    row += part.local_rows(adapters.shape());
  }
}

Var Linear::operator()(const Context& ctx, const Var& inp) const {
  return apply(ctx, inp, Then::nothing);
}

Var Linear::gelu(const Context& ctx, const Var& inp) const {
  const bool whole = adapters_.empty() && ctx.grid.extent(in_axis_) == 1;
  return whole ? apply(ctx, inp, Then::gelu) : axonn::gelu(ctx, (*this)(ctx, inp));
}

Var Linear::apply(const Context& ctx, const Var& inp, Then then) const {
  const int in = ctx.grid.extent(in_axis_), out = ctx.grid.extent(out_axis_);
  const bool ahead = ctx.scheduling().run.sequence_parallel && out > 1;
  const Var outs = each_later(
      ctx, inp, {.ahead = ahead, .reads_parameters = true},
      [this](const Context& here, const Chunk& chunk) { return gather(here, chunk); },
      [this, then](const Context& here, const Chunk& chunk, const Gather& gathered) {
        return forward(here, chunk, gathered.whole(here, {weight().input_cols()}), then);
      });
  // A layer with a sum (in > 1) computes now, so that the sum starts early. One without a sum
  // stays lazy if the next layer has one (out > 1): then each chunk goes from the previous sum to
  // the next without waiting for other chunks.
  if (in > 1 || out == 1) outs.make();
  return outs;
}

const Parameter& Linear::only_weight() const {
  AXONN_CHECK(adapters_.empty() && !bias_ && weights_.size() == 1, weight().spec().name,
              ": its product has more than the weight: adapters, or a bias");
  return weight();
}

Gather Linear::gather(const Context& ctx, const Chunk& inp) const {
  return {ctx, inp.value, out_axis_, cut_over(inp.placement, out_axis_)};
}

Runs Linear::out_runs(const Context& ctx) const {
  return heads_ ? heads_->qkv_runs(ctx.grid) : Runs{out_cols()};
}

Cut Linear::out_cut(const Context& ctx, const Rows& rows, std::int64_t count) const {
  return heads_ ? heads_->cut_over_y(ctx, rows) : row_cut(ctx, count, in_axis_);
}

/// This rank's columns of the output.
std::int64_t Linear::out_cols() const {
  std::int64_t cols = 0;
  for (const Parameter* weight : weights_) cols += weight->local_rows();
  return cols;
}

/// Calls f(weight, the first of its columns of the output) for each weight.
void Linear::for_weights(const auto& f) const {
  std::int64_t begin = 0;
  for (const Parameter* weight : weights_) {
    f(*weight, begin);
    begin += weight->local_rows();
  }
}

/// The product of the gathered input, whose sum is pending, and GELU of it.
Linear::Product Linear::product(const Context& ctx, const Tensor& whole, const Rows& rows,
                                Then then) const {
  ctx.backend.mark(weight().spec().name);
  auto magnitudes = Magnitudes::of(ctx, adapters_, weight());
  const bool adds_bias = bias_ && ctx.grid.coord(in_axis_) == 0, keeps = then == Then::kept_gelu;
  const View bias = adds_bias ? bias_->weight() : View{};
  const bool reads = weight().local_cols() > 0;  // else the input is padding
  Tensor value = reads ? ctx.empty(whole.rows(), out_cols(), ctx.dtype)
                       : ctx.zeros(whole.rows(), out_cols(), ctx.dtype);
  Tensor after = keeps ? ctx.like(value) : value;
  const View inp = weight().columns_read(whole.view()), added = magnitudes ? View{} : bias;
  for_weights([&](const Parameter& weight, std::int64_t begin) {
    const auto part = [&](const View& all) {
      return all.data ? all.col_range(begin, weight.local_rows()) : View{};
    };
    const View out = part(value.view()), activated = part(after.view());
    const auto of_codes =
        reads ? weight.product_of_codes(ctx, out, inp, part(added)) : std::nullopt;
    if (of_codes) {
      ctx.backend.quantized_product(*of_codes);
      if (then != Then::nothing) ctx.backend.run(ops::Gelu{activated, out});
    } else if (reads) {
      ctx.backend.matmul({.out = activated,
                          .a = inp,
                          .b = weight.weight(),
                          .b_transposed = true,
                          .bias = part(added),
                          .gelu = then != Then::nothing,
                          .gelu_input = keeps ? out : View{}});
    }
  });
  for (const Adapter& adapter : adapters_) adapter.forward(ctx, value.view(), whole, rows);
  if (magnitudes) value = magnitudes->scale(ctx, std::move(value), bias);
  sum_over(ctx, value, in_axis_, out_cut(ctx, rows, whole.rows()), out_runs(ctx));
  return {std::move(value), std::move(after), std::move(magnitudes)};
}

/// Lets backward make the product again; with GELU, stores its output in `after`, else null.
void Linear::let_remake_product(const Context& ctx, Chunk& out, const Chunk& inp,
                                std::shared_ptr<Tensor> after) const {
  const Remade kind = heads_ ? Remade::qkv : in_axis_ == Axis::y ? Remade::up : Remade::residual;
  let_remake(ctx, out, kind, [this, ctx, kept = SavedChunk(ctx, inp), after] {
    Context again = ctx;
    again.own_scheduling().scope.label = again_;
    const Tensor whole = gather(again, kept.get()).whole(again, {weight().input_cols()});
    Product made = product(again, whole, kept.rest().rows, after ? Then::kept_gelu : Then::nothing);
    if (after) *after = std::move(made.after);
    return std::move(made.value);
  });
}

Chunk Linear::forward(const Context& ctx, const Chunk& inp, const Tensor& whole, Then then) const {
  AXONN_CHECK(inp.placement.cols.has(in_axis_) && whole.cols() == weight().input_cols(),
              weight().spec().name, ": the input has ", inp.value.cols(), " columns over ",
              names_of(inp.placement.cols), ", wanted ", weight().input_cols(), " over ",
              name_of(in_axis_), "; alternate Orientation::normal and Orientation::transposed");
  if (then == Then::gelu && ctx.tape && (inp.gradient || learns())) then = Then::kept_gelu;
  auto [value, after, magnitudes] = product(ctx, whole, inp.rows, then);
  const Cut cut = out_cut(ctx, inp.rows, whole.rows());
  Placement placement{inp.placement.rows.without(out_axis_), out_axis_};
  if (cut == Cut::rows) placement.rows = placement.rows | in_axis_;
  if (cut == Cut::columns) placement.cols = placement.cols | in_axis_;
  Chunk out = make_chunk(ctx, inp, std::move(value), placement);
  if (learns()) need_gradient(ctx, out);
  if (!out.gradient) return out;
  if (ctx.grid.extent(out_axis_) > 1) ctx.tape->pause();  // in backward, while d_inp is summed
  Kept kept{SavedChunk(ctx, inp), std::move(magnitudes)};
  ctx.tape->record([this, ctx, kept = std::move(kept), placement, gradient = out.gradient] {
    backward(ctx, kept, placement, gradient->take());
  });
  const auto again = then == Then::nothing ? nullptr : std::make_shared<Tensor>();
  let_remake_product(ctx, out, inp, again);
  if (!again) return out;
  Chunk activated = gelu_chunk(ctx, out, std::move(after));
  if (out.again.made_in(ctx.scheduling().scope.label))
    activated.again = Saved(
        [before = out.again, again] {
          before.get();  // the same product
          return std::exchange(*again, Tensor());
        },
        ctx.scheduling().scope.label);
  return activated;
}

/// The gradient of the input, of which the columns of padding are zero.
Tensor Linear::d_input(const Context& ctx, const Tensor& d_out, const GeluInput& before) const {
  Tensor d_inp = weight().empty_input(ctx, d_out.rows());
  if (weight().local_cols() == 0) return d_inp;
  AXONN_CHECK(weights_.size() == 1 || !before.gradient, weight().spec().name,
              ": a product of several weights gets no output of GELU");
  for_weights([&](const Parameter& weight, std::int64_t begin) {
    ctx.backend.matmul({.out = weight.columns_read(d_inp.view()),
                        .a = d_out.view().col_range(begin, weight.local_rows()),
                        .b = weight.weight(),
                        .accumulate = begin > 0,
                        .gelu_derivative_at = before.gradient
                                                  ? weight.columns_read(before.value.get().view())
                                                  : View{}});
  });
  return d_inp;
}

void Linear::backward(const Context& ctx, const Kept& kept, const Placement& out,
                      const Tensor& d_piece) const {
  ctx.backend.mark(weight().spec().name);
  const Gather out_gather(ctx, d_piece, in_axis_, cut_over(out, in_axis_));
  Context again = ctx;  // only this rank's piece of the input was kept
  again.own_scheduling().scope.label = again_;
  const Chunk& inp = kept.inp.rest();
  std::optional<Gather> inp_gather;
  if (learns()) inp_gather = gather(again, kept.inp.get());
  const bool overlaps = ctx.scheduling().run.overlap.input_gradients;
  if (learns() && !overlaps) inp_gather->wait();
  const Cut cut = cut_over(out, in_axis_);
  const bool sums_bias = bias_ && !bias_->frozen();
  // The product of the weight's gradient reads d_out too, so it can also make the bias's.
  const bool along = sums_bias && cut == Cut::same && !weight().frozen();
  if (sums_bias && !along) bias_backward(ctx, cut, d_piece);
  Tensor d_out = out_gather.whole(ctx, out_runs(ctx));
  if (kept.magnitudes) d_out = kept.magnitudes->backward(ctx, d_out);
  const GeluInput before =
      adapters_.empty() && ctx.grid.extent(out_axis_) == 1 ? inp.gelu_of : GeluInput{};
  Tensor d_inp;
  if (inp.gradient) d_inp = d_input(ctx, d_out, before);
  if (!adapters_.empty()) {  // they add to d_inp before its sum
    const Tensor whole = inp_gather->whole(ctx, {weight().input_cols()});
    for (const Adapter& adapter : adapters_)
      adapter.backward(ctx, d_inp.view(), d_out, whole, inp.rows);
  }
  if (inp.gradient) {
    sum_over(ctx, d_inp, out_axis_, cut_over(inp.placement, out_axis_), {weight().input_cols()});
    if (!overlaps) d_inp.wait();
    (before.gradient ? before.gradient : inp.gradient)->add(ctx, std::move(d_inp));
  }
  if (weight().frozen() || weight().local_cols() == 0) return;
  const Tensor whole = inp_gather->whole(ctx, {weight().input_cols()});
  AXONN_CHECK(weights_.size() == 1, weight().spec().name, ": several weights are not trained");
  const auto [d_weight, accumulate] = weight().gradient_of_all();
  ctx.backend.matmul(
      {.out = d_weight,
       .a = d_out.view(),
       .b = weight().columns_read(whole.view()),
       .a_transposed = true,
       .accumulate = accumulate,
       .bias_gradient = along && ctx.grid.coord(in_axis_) == 0 ? bias_->gradient(ctx) : View{}});
}

/// Adds this rank's summand of the bias's gradient: that of its rows or of its columns. If d_piece
/// is the same on all ranks, only the first adds.
void Linear::bias_backward(const Context& ctx, Cut cut, const Tensor& d_piece) const {
  const int ways = ctx.grid.extent(in_axis_), at = ctx.grid.coord(in_axis_);
  if (cut != Cut::columns) {
    if (cut == Cut::rows || at == 0)
      ctx.backend.run(ops::ColumnSum{bias_->gradient(ctx), d_piece.view()});
    return;
  }
  std::int64_t from = 0, to = 0;
  for (std::int64_t run : out_runs(ctx)) {
    const std::int64_t n = run / ways;
    ctx.backend.run(ops::ColumnSum{bias_->gradient(ctx).col_range(to + at * n, n),
                                   d_piece.view().col_range(from, n)});
    from += n;
    to += run;
  }
}

}  // namespace axonn
