#include "axonn/network/nn/layer_inputs.h"

#include <cmath>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/pointwise.h"
#include "axonn/ranks/parallel/block.h"

namespace axonn {

namespace {

/// Runs of columns, one for each layer.
Runs runs_of(const LayerInputs::Options& options) {
  return Runs(static_cast<std::size_t>(options.layers), options.input);
}

/// A value (R, L·P) whose columns are cut over y, as an Embedding makes it, with each run of P cut
/// over x and the rows of a Linear's output.
Var runs_over_x(const Context& context, const Var& inp, const Runs& runs) {
  return each_later(context, inp, [runs](const Context& ctx, const Chunk& in) {
    const std::int64_t x = ctx.grid.extent(Axis::x), y = ctx.grid.extent(Axis::y),
                       layers = std::ssize(runs), part = runs.front() / x,
                       begin = part * ctx.grid.coord(Axis::x);
    Placement placement{in.placement.rows.without(Axis::x), Axis::x};
    if (x * y == 1) {
      Chunk same = in;
      same.placement = placement;
      return same;
    }
    const Cut in_rows = cut_over(in.placement, Axis::x);
    const Tensor rows = Gather(ctx, in.value, Axis::x, in_rows).whole(ctx, {});
    const std::int64_t R = rows.rows(), width = rows.cols() * y;
    const Cut out_rows = row_cut(ctx, R, Axis::y);
    const Tensor whole = Gather(ctx, rows, Axis::y, Cut::columns).whole(ctx, {width});
    const auto mine = [](const Context& of, std::int64_t count, Axis axis, Cut cut) {
      const std::int64_t each = cut == Cut::rows ? count / of.grid.extent(axis) : count;
      return std::pair{cut == Cut::rows ? each * of.grid.coord(axis) : 0, each};
    };
    const auto [first, count] = mine(ctx, R, Axis::y, out_rows);
    const Tensor value = ctx.empty(count, layers * part, in.value.dtype());
    const View from = whole.view().row_range(first, count);
    ctx.backend.run(ops::CopyHeads{value.view(), from.col_range(begin, width - begin), layers, part,
                                   part, runs.front()});
    if (out_rows == Cut::rows) placement.rows = placement.rows | Axis::y;
    Chunk out = make_chunk(ctx, in, value, placement);
    const auto backward = [=, to = in.gradient](const Tensor& d_out) {
      const Tensor d_rows = Gather(ctx, d_out, Axis::y, out_rows).whole(ctx, {});
      const Tensor d = Gather(ctx, d_rows, Axis::x, Cut::columns).whole(ctx, runs);
      const auto [at, here] = mine(ctx, R, Axis::x, in_rows);
      const std::int64_t cols = width / y;
      Tensor d_inp = ctx.empty(here, cols, d.dtype());
      ctx.backend.run(ops::Cast{d_inp.view(), d.view().row_range(at, here).col_range(
                                                  cols * ctx.grid.coord(Axis::y), cols)});
      to->add(ctx, std::move(d_inp));
    };
    return with_backward(ctx, out, backward);
  });
}

float root(std::int64_t number) { return std::sqrt(static_cast<float>(number)); }

const LayerInputs::Options& divided(const LayerInputs::Options& options, const Grid& grid) {
  if (options.input % grid.extent(Axis::x) != 0)
    refuse("[parallelism] x = ", grid.extent(Axis::x),
           " does not divide model.layer_input = ", options.input, "; take an x that does");
  return options;
}

}  // namespace

LayerInputs::LayerInputs(const Grid& grid, const Options& options)
    : options_(divided(options, grid)),
      group_("layer inputs", grid),
      embedding_(group_, {"model.embed_tokens_per_layer.weight", ""},
                 {.vocab = options.vocab,
                  .width = options.layers * options.input,
                  .init_std = options.init_std}),
      projection_(group_, "model.per_layer_model_projection",
                  {.in = options.width,
                   .out = options.layers * options.input,
                   .bias = false,
                   .init_std = options.init_std,
                   .segments = std::vector<Segment>(static_cast<std::size_t>(options.layers),
                                                    {.rows = options.input})}),
      norm_(group_, "model.per_layer_projection_norm",
            {.width = options.input,
             .kind = Norm::Kind::rms,
             .bias = false,
             .eps = options.eps,
             .axis = Axis::x}) {}

std::vector<Var> LayerInputs::operator()(const Context& ctx, const Tokens& tokens, const Var& x) {
  GatheredWeights weights(ctx, group_);
  const Context& here = weights.context();
  const Runs runs = runs_of(options_);
  const Var known =
      runs_over_x(here, scale(here, embedding_(here, tokens), root(options_.input)), runs);
  const Var seen = scale(here, projection_(here, x), 1 / root(options_.width));
  std::vector<Var> inputs;
  for (std::size_t layer = 0; layer < runs.size(); ++layer)
    inputs.push_back(scale(here,
                           add(here, norm_(here, slice_columns(here, seen, runs, layer)),
                               slice_columns(here, known, runs, layer)),
                           1 / root(2)));
  weights.release();
  return inputs;
}

std::int64_t LayerInputs::active_parameters() const {
  return options_.layers * options_.input * options_.width + options_.input;
}

}  // namespace axonn
