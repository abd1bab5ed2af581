#include "axonn/network/nn/experts/experts.h"

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/experts/routing.h"
#include "axonn/ranks/parallel/block.h"
#include "axonn/ranks/parallel/scheduling.h"

// Forward:  A = gather(exchange(spread(whole(inp))));  H = A · [W1; W3]ᵀ;  D = f(H) · W2ᵀ;
//           out = sum(combine(back(D), p))
// Backward: the same steps the other way, with the transposed weights. A is made again: from inp,
// or from what exchange() returned.

namespace axonn {

/// The router's results for the r rows of a chunk here.
struct Experts::Routed {
  Tensor ids, weights;              // (r, k) i32 and f32
  Tensor logits, scores, log_sums;  // (r, E), (r, E), (r, 1) f32
  Tensor score_sums;                // (r, 1) f32; empty for softmax, whose scores add up to 1
};

/// Values that a forward pass keeps for backward. R rows are those of all ranks of x.
struct Experts::Pass {
  Routed routed;
  Tensor copy_rows, weights;  // (R, k) i32 and f32
  std::shared_ptr<ExpertPath> path;
  // Empty if backward makes them again:
  Tensor exchanged;  // (m, W); also empty if the path does not exchange
  Tensor gate_up;    // (m, 2F/Gx)
  Tensor activated;  // (m, F/Gx)
  Tensor results;    // (n, W), of each routed row
};

Experts::Experts(ParameterGroup& dense, ParameterGroup& held, const std::string& name,
                 const Options& options)
    : options_(options) {
  const GridShape& shape = dense.grid().shape();
  if (shape.experts > 1 && options.width % (shape.x * shape.y) != 0)
    refuse("[parallelism] experts = ", shape.experts, ": a width of ", options.width,
           " cannot be cut over x = ", shape.x, " times y = ", shape.y,
           "; take x and y whose product divides it, or experts = 1");
  gate_ = &dense.add({.name = name + ".gate.weight",
                      .layout = {.rows = options.experts,
                                 .cols = options.width,
                                 .col_axis = Axis::y,
                                 .partial = Axis::x},
                      .init_std = options.init_std,
                      .decays = true,
                      .hidden = true});
  if (options.logit_bias)
    logit_bias_ = &dense.add({.name = name + ".gate.bias",
                              .layout = {.rows = options.experts, .partial = {Axis::x, Axis::y}},
                              .init_std = options.init_std});
  if (options.factors)
    factors_ = &dense.add({.name = name + ".gate.per_expert_scale",
                           .layout = {.rows = options.experts, .partial = {Axis::x, Axis::y}},
                           .init_mean = 1});
  if (options.bias)
    bias_ = &dense.add(
        {.name = name + ".gate.e_score_correction_bias", .layout = {.rows = options.experts}});
  for (std::int64_t i = 0; i < options.experts; ++i) {
    const std::string expert = name + ".experts." + std::to_string(i) + '.';
    const Layout up{.rows = options.ffn,
                    .cols = options.width,
                    .row_axis = Axis::x,
                    .col_axis = Axis::y,
                    .segments = {{.rows = options.ffn, .kind = Segment::Kind::padded}},
                    .expert = ExpertNumber{i, options.experts}};
    const Layout down{.rows = options.width,
                      .cols = options.ffn,
                      .row_axis = Axis::y,
                      .col_axis = Axis::x,
                      .col_unit = 1,
                      .expert = up.expert};
    const auto spec = [&](const char* part, const Layout& layout, double std) {
      return ParameterSpec{.name = expert + part + ".weight",
                           .layout = layout,
                           .init_std = std,
                           .decays = true,
                           .hidden = true};
    };
    Weights weights{&held.add_joined(expert + "gate_proj|up_proj.weight",
                                     {spec("gate_proj", up, options.init_std),
                                      spec("up_proj", up, options.init_std)}),
                    &held.add(spec("down_proj", down, options.down_init_std))};
    if (options.expert_bias) add_biases(held, expert, up, down, weights);
    if (up.held_at(shape, dense.grid().coords())) here_.push_back(weights);
  }
}

/// Declares the biases of products with these weights.
void Experts::add_biases(ParameterGroup& held, const std::string& expert, const Layout& up,
                         const Layout& down, Weights& weights) {
  const auto spec = [&](const char* part, const Layout& weight) {
    return ParameterSpec{.name = expert + part + ".bias",
                         .layout = {.rows = weight.rows,
                                    .row_axis = weight.row_axis,
                                    .segments = weight.segments,
                                    .partial = weight.col_axis.value(),
                                    .expert = weight.expert}};
  };
  weights.gate_up_bias = &held.add_joined(expert + "gate_proj|up_proj.bias",
                                          {spec("gate_proj", up), spec("up_proj", up)});
  weights.down_bias = &held.add(spec("down_proj", down));
}

Var Experts::operator()(const Context& ctx, const Var& inp) const {
  const Var outs = each_later(
      ctx, inp,
      [this](const Context& here, const Chunk& chunk) { return forward(here, chunk, chunk); },
      {.reads_parameters = true});
  outs.make();  // in the order of the chunks, which is the same on all ranks
  return outs;
}

Var Experts::operator()(const Context& ctx, const Var& inp, const Var& of_router) const {
  const Var outs = each_of(ctx, "experts", {inp, of_router},
                           [this](const Context& here, const std::vector<Chunk>& of) {
                             AXONN_CHECK(of[0].placement == of[1].placement, gate_->spec().name,
                                         ": its input lies otherwise than that of the experts");
                             return forward(here, of[0], of[1]);
                           });
  outs.make();
  return outs;
}

namespace {

/// A bias, or null, as the one rank adds it whose product is summed over the axis.
View once_over(const Context& ctx, Axis axis, const Parameter* bias) {
  return bias && ctx.grid.coord(axis) == 0 ? bias->weight() : View{};
}

}  // namespace

Tensor Experts::logits(const Context& ctx, const Chunk& inp) const {
  AXONN_CHECK(inp.placement.cols == AxisSet(Axis::y) && inp.value.cols() == gate_->local_cols(),
              gate_->spec().name, ": the input has ", inp.value.cols(), " columns over ",
              names_of(inp.placement.cols), ", wanted ", gate_->local_cols(), " over y");
  ctx.backend.mark(gate_->spec().name);
  Tensor logits = ctx.empty(inp.value.rows(), options_.experts, DType::f32);
  ctx.backend.matmul({.out = logits.view(),
                      .a = inp.value.view(),
                      .b = gate_->weight(),
                      .b_transposed = true,
                      .bias = once_over(ctx, Axis::y, logit_bias_)});
  sum_over(ctx, logits, Axis::y, Cut::same, {});
  return logits;
}

namespace {

ops::Route route_of(const Experts::Options& options, const auto& routed, const View& bias) {
  return {.ids = routed.ids.view(),
          .weights = routed.weights.view(),
          .scores = routed.scores.view(),
          .log_sums = routed.log_sums.view(),
          .score_sums = routed.score_sums.view(),
          .logits = routed.logits.view(),
          .bias = bias,
          .sigmoid = options.router == RouterKind::sigmoid,
          .normalise = options.normalised,
          .scale = static_cast<float>(options.scale),
          .groups = static_cast<int>(options.groups),
          .kept_groups = static_cast<int>(options.kept_groups),
          .group_best = static_cast<int>(options.group_best)};
}

}  // namespace

Experts::Routed Experts::route(const Context& ctx, const Chunk& inp) const {
  const std::int64_t r = inp.value.rows(), k = options_.per_token;
  Routed routed{.ids = ctx.empty(r, k, DType::i32),
                .weights = ctx.empty(r, k, DType::f32),
                .logits = logits(ctx, inp),
                .scores = ctx.empty(r, options_.experts, DType::f32),
                .log_sums = ctx.empty(r, 1, DType::f32)};
  if (options_.router == RouterKind::sigmoid) routed.score_sums = ctx.empty(r, 1, DType::f32);
  ops::Route route = route_of(options_, routed, bias_ ? bias_->weight() : View{});
  Routing* routing = ctx.find<Routing>();
  route.chosen = routing && routing->recall(ctx, options_.layer, inp, routed.ids);
  ctx.backend.run(route);
  if (routing)
    routing->note(ctx, options_.layer, inp,
                  {routed.ids, routed.scores, routed.log_sums, routed.score_sums});
  return routed;
}

/// The weights (r, k) of a row's experts.
Tensor Experts::weights_of(const Context& ctx, const Routed& routed) const {
  if (!factors_) return routed.weights;
  Tensor out = ctx.like(routed.weights);
  ctx.backend.run(
      ops::ExpertFactors{out.view(), routed.weights.view(), routed.ids.view(), factors_->weight()});
  return out;
}

/// Adds to the gradient of the factors; returns that of the weights without them.
Tensor Experts::d_weights_of(const Context& ctx, const Chunk& inp, const Routed& routed,
                             const Tensor& d_weights) const {
  if (!factors_) return d_weights;
  if (adds_gradient(ctx, *factors_, {inp.placement.rows, {}})) {
    const Tensor terms = ctx.empty(d_weights.rows(), options_.experts, DType::f32);
    ctx.backend.run(ops::ExpertFactorTerms{terms.view(), d_weights.view(), routed.weights.view(),
                                           routed.ids.view()});
    ctx.backend.run(ops::ColumnSum{factors_->gradient(ctx), terms.view()});
  }
  Tensor out = ctx.like(d_weights);
  ctx.backend.run(
      ops::ExpertFactors{out.view(), d_weights.view(), routed.ids.view(), factors_->weight()});
  return out;
}

Chunk Experts::forward(const Context& ctx, const Chunk& inp, const Chunk& of_router) const {
  Pass pass{.routed = route(ctx, of_router)};
  const Cut cut = cut_over(inp.placement, Axis::x);
  const Tensor ids = Gather(ctx, pass.routed.ids, Axis::x, cut).whole(ctx, {});
  pass.weights = Gather(ctx, weights_of(ctx, pass.routed), Axis::x, cut).whole(ctx, {});
  pass.copy_rows = ctx.like(ids);
  const Tensor counts = ctx.empty(1, options_.experts, DType::i32);
  ctx.backend.run(ops::ExpertOrder{pass.copy_rows.view(), counts.view(), ids.view()});
  pass.path = make_expert_path(ctx, inp.placement, counts, ids.count());

  compute(ctx, inp, pass);
  const std::int64_t R = ids.rows();
  Tensor combined = ctx.empty(R, pass.results.cols(), ctx.dtype);
  ctx.backend.run(ops::CombineRows{combined.view(), pass.results.view(), pass.copy_rows.view(),
                                   options_.scales_input ? View{} : pass.weights.view()});
  Chunk out = make_chunk(ctx, inp, pass.path->sum(combined), inp.placement);
  if (!gate_->frozen() || of_router.gradient) need_gradient(ctx, out);
  const Recompute& again = ctx.scheduling().scope.recompute;
  if (again.has(Remade::exchanged)) pass.exchanged = {};
  if (again.has(Remade::up)) pass.gate_up = {};
  if (again.has(Remade::activations)) pass.activated = {};
  const SavedChunk kept(ctx, inp), router(ctx, of_router);
  return with_backward(ctx, out, [this, ctx, kept, router, pass](const Tensor& d) {
    backward(ctx, kept.get(), router.get(), pass, d);
  });
}

/// The rows of the experts here, (m, W), of a chunk's input (r, C/Gy).
Tensor Experts::exchange(const Context& ctx, const Chunk& inp, const Pass& pass) const {
  if (!pass.exchanged.empty()) return pass.exchanged;
  Routing* routing = ctx.find<Routing>();
  if (routing) {
    const Tensor kept = routing->take_kept(ctx, options_.layer, inp);
    if (!kept.empty()) return kept;
  }
  const Tensor whole = pass.path->whole(inp.value);
  const Tensor routed = ctx.empty(pass.copy_rows.count(), whole.cols(), whole.dtype());
  ctx.backend.run(ops::SpreadRows{routed.view(), whole.view(), pass.copy_rows.view()});
  if (options_.scales_input) weigh(ctx, pass, whole, routed);
  Tensor rows = pass.path->exchange(routed);
  if (routing && pass.path->exchanges()) routing->keep(ctx, options_.layer, inp, rows);
  return rows;
}

/// Multiplies the copies of each row by the weights of its experts. Returns (R, k) f32: the sums of
/// the products of a row of `whole` with its copies.
Tensor Experts::weigh(const Context& ctx, const Pass& pass, const Tensor& whole,
                      const Tensor& routed) const {
  Tensor dots = ctx.like(pass.weights);
  ctx.backend.run(ops::CombineRowsBackward{.d_inp = routed.view(),
                                           .d_weights = dots.view(),
                                           .d_out = whole.view(),
                                           .inp = routed.view(),
                                           .copy_rows = pass.copy_rows.view(),
                                           .weights = pass.weights.view()});
  return dots;
}

template <typename Make>
void Experts::for_experts(const Context& ctx, const ExpertPath& path, const Make& make) const {
  std::vector<Matmul> products;
  products.reserve(here_.size());
  std::int64_t first = 0;
  for (std::size_t i = 0; i < here_.size(); ++i) {
    const std::int64_t count = path.rows_of()[i];
    const auto rows = [first, count](const Tensor& all) {
      return all.view().row_range(first, count);
    };
    if (count > 0) products.push_back(make(here_[i], rows));
    first += count;
  }
  ctx.backend.matmuls(products);
}

/// The forward products of the rows of the experts here with one of their matrices: of codes if the
/// backend reads those of all.
void Experts::multiply(const Context& ctx, const ExpertPath& path, const Matrix& matrix,
                       const Tensor& out, const Tensor& inp) const {
  std::vector<QuantizedMatmul> of_codes;
  std::vector<const Parameter*> parameters;
  std::vector<Matmul> of_values;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < here_.size(); ++i) {
    const std::int64_t count = path.rows_of()[i], begin = std::exchange(first, first + count);
    if (count == 0) continue;
    const Parameter& parameter = *parameters.emplace_back(here_[i].*matrix.weight);
    of_values.push_back({.out = out.view().row_range(begin, count),
                         .a = parameter.columns_read(inp.view().row_range(begin, count)),
                         .b = {},
                         .b_transposed = true,
                         .bias = once_over(ctx, matrix.summed, here_[i].*matrix.bias)});
    const Matmul& one = of_values.back();
    if (auto product = parameter.product_of_codes(ctx, one.out, one.a, one.bias))
      of_codes.push_back(*product);
  }
  if (of_codes.size() == parameters.size()) {
    for (const QuantizedMatmul& one : of_codes) ctx.backend.quantized_product(one);
    return;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) of_values[i].b = parameters[i]->weight();
  ctx.backend.matmuls(of_values);
}

/// Of the rows of the experts here, the products with gate and up.
Tensor Experts::gate_up_of(const Context& ctx, const Pass& pass, const Tensor& rows) const {
  Tensor gate_up = ctx.empty(rows.rows(), 2 * here_.front().down->input_cols(), ctx.dtype);
  if (rows.rows() == 0) return gate_up;
  multiply(ctx, *pass.path, {&Weights::gate_up, &Weights::gate_up_bias, Axis::y}, gate_up, rows);
  sum_over(ctx, gate_up, Axis::y, Cut::same, {});
  return gate_up;
}

Tensor Experts::activated_of(const Context& ctx, const Tensor& gate_up) const {
  Tensor activated = ctx.empty(gate_up.rows(), gate_up.cols() / 2, ctx.dtype);
  if (gate_up.rows() > 0)
    ctx.backend.run(ops::Swiglu{activated.view(), gate_up.view(), options_.activation});
  return activated;
}

/// Computes what the pass keeps of the experts.
void Experts::compute(const Context& ctx, const Chunk& inp, Pass& pass) const {
  const Tensor exchanged = exchange(ctx, inp, pass);
  if (pass.path->exchanges()) pass.exchanged = exchanged;
  const Tensor rows = pass.path->gather(exchanged);
  ctx.backend.mark(here_.front().gate_up->spec().name);
  const std::int64_t m = rows.rows();
  pass.gate_up = gate_up_of(ctx, pass, rows);
  pass.activated = activated_of(ctx, pass.gate_up);
  const bool reads = reads_activated();
  const Tensor results =
      reads ? ctx.empty(m, rows.cols(), ctx.dtype) : ctx.zeros(m, rows.cols(), ctx.dtype);
  if (m > 0 && reads)
    multiply(ctx, *pass.path, {&Weights::down, &Weights::down_bias, Axis::x}, results,
             pass.activated);
  pass.results = pass.path->back(results);
}

/// The gradient of the experts' results, and that of the weights (R, k) if they multiply these.
Tensor Experts::d_results_of(const Context& ctx, const Pass& pass, const Tensor& d_out,
                             const Tensor& d_weights) const {
  const Tensor d_combined = pass.path->whole(d_out);
  Tensor d_results = ctx.like(pass.results);
  if (options_.scales_input)
    ctx.backend.run(ops::SpreadRows{d_results.view(), d_combined.view(), pass.copy_rows.view()});
  else
    ctx.backend.run(ops::CombineRowsBackward{.d_inp = d_results.view(),
                                             .d_weights = d_weights.view(),
                                             .d_out = d_combined.view(),
                                             .inp = pass.results.view(),
                                             .copy_rows = pass.copy_rows.view(),
                                             .weights = pass.weights.view()});
  return d_results;
}

void Experts::backward(const Context& ctx, const Chunk& inp, const Chunk& of_router,
                       const Pass& pass, const Tensor& d_out) const {
  ctx.backend.mark(gate_->spec().name);
  const bool scales_input = options_.scales_input;
  const Cut cut = cut_over(inp.placement, Axis::x);
  Tensor d_weights = ctx.like(pass.weights);
  const Tensor d_results = d_results_of(ctx, pass, d_out, d_weights);
  if (!scales_input) sum_over(ctx, d_weights, Axis::x, cut, {});
  const Tensor d_routed = compute_backward(ctx, inp, pass, d_results);
  Tensor d_inp;
  if (inp.gradient) {  // its sum goes on during the router's backward
    const Tensor d_whole = ctx.empty(pass.copy_rows.rows(), d_routed.cols(), ctx.dtype);
    ctx.backend.run(ops::CombineRows{d_whole.view(), d_routed.view(), pass.copy_rows.view(),
                                     scales_input ? pass.weights.view() : View{}});
    d_inp = pass.path->sum(d_whole);
  }
  if (scales_input) {
    d_weights = weigh(ctx, pass, pass.path->whole(inp.value), d_routed);
    sum_over(ctx, d_weights, Axis::x, cut, {});
  }
  sum_over(ctx, d_weights, Axis::y, Cut::same, {});
  const Tensor d_router =
      route_backward(ctx, of_router, pass.routed, d_weights_of(ctx, inp, pass.routed, d_weights));
  const auto add_router = [&](const Tensor& to) {
    ctx.backend.run(ops::Add{to.view(), to.view(), d_router.view()});
  };
  const bool apart = of_router.gradient != inp.gradient;
  if (apart && of_router.gradient) {
    Tensor d = ctx.zeros(d_router.rows(), d_router.cols(), ctx.dtype);
    add_router(d);
    of_router.gradient->add(ctx, std::move(d));
  }
  if (!inp.gradient) return;
  if (!apart) add_router(d_inp);
  inp.gradient->add(ctx, std::move(d_inp));
}

/// Adds to the gradients of the experts' weights. Returns the gradients of the routed rows (n, W),
/// summands over x where ExpertPath::back() leaves such; nothing unless they are wanted.
bool Experts::reads_activated() const { return here_.front().down->local_cols() > 0; }

/// The gradient of the activated values (m, F/Gx), of which the columns of padding are zero.
Tensor Experts::d_activated_of(const Context& ctx, const Pass& pass, const Tensor& gate_up,
                               const Tensor& d_down) const {
  const Tensor d_activated = here_.front().down->empty_input(ctx, gate_up.rows());
  if (reads_activated())
    for_experts(ctx, *pass.path, [&](const Weights& weights, const auto& of) {
      return Matmul{.out = weights.down->columns_read(of(d_activated)),
                    .a = of(d_down),
                    .b = weights.down->weight()};
    });
  return d_activated;
}

Tensor Experts::compute_backward(const Context& ctx, const Chunk& inp, const Pass& pass,
                                 const Tensor& d_results) const {
  const bool wants_input = inp.gradient || options_.scales_input;
  const Tensor d_down = pass.path->gather(pass.path->exchange(d_results));
  const bool learns = !here_.front().down->frozen();
  const Tensor rows =
      learns || pass.gate_up.empty() ? pass.path->gather(exchange(ctx, inp, pass)) : Tensor();
  ctx.backend.mark(here_.front().gate_up->spec().name);
  const Tensor d_rows = ctx.like(d_down);
  if (d_down.rows() > 0) {
    const Tensor gate_up = pass.gate_up.empty() ? gate_up_of(ctx, pass, rows) : pass.gate_up;
    Tensor d_gate_up = ctx.like(gate_up);
    Tensor d_activated = d_activated_of(ctx, pass, gate_up, d_down);
    sum_over(ctx, d_activated, Axis::y, Cut::same, {});
    const auto add_weights = [&](const Parameter& weight, const View& d, const View& of,
                                 const View& d_bias) {
      const auto [d_weight, accumulate] = weight.gradient_of_all();
      return Matmul{.out = d_weight,
                    .a = d,
                    .b = of,
                    .a_transposed = true,
                    .accumulate = accumulate,
                    .bias_gradient = d_bias};
    };
    const auto d_bias = [&](const Parameter* bias, Axis axis) {
      return bias && ctx.grid.coord(axis) == 0 ? bias->gradient(ctx) : View{};
    };
    if (learns && reads_activated()) {
      const Tensor activated = pass.activated.empty() ? activated_of(ctx, gate_up) : pass.activated;
      for_experts(ctx, *pass.path, [&](const Weights& weights, const auto& of) {
        return add_weights(*weights.down, of(d_down), weights.down->columns_read(of(activated)),
                           d_bias(weights.down_bias, Axis::x));
      });
    }
    ctx.backend.run(ops::SwigluBackward{d_gate_up.view(), d_activated.view(), gate_up.view(),
                                        options_.activation});
    if (wants_input)
      for_experts(ctx, *pass.path, [&](const Weights& weights, const auto& of) {
        return Matmul{.out = of(d_rows), .a = of(d_gate_up), .b = weights.gate_up->weight()};
      });
    if (learns)
      for_experts(ctx, *pass.path, [&](const Weights& weights, const auto& of) {
        return add_weights(*weights.gate_up, of(d_gate_up), of(rows),
                           d_bias(weights.gate_up_bias, Axis::y));
      });
  }
  return wants_input ? pass.path->back(d_rows) : Tensor();
}

/// Adds to the gradient of the router's weight. Returns that of the input (r, C/Gy) f32, without
/// the experts' part.
Tensor Experts::route_backward(const Context& ctx, const Chunk& inp, const Routed& routed,
                               const Tensor& d_weights) const {
  ctx.backend.mark(gate_->spec().name);
  const std::int64_t r = inp.value.rows(), first = ctx.grid.coord(Axis::x) * r;
  const bool rows_cut = inp.placement.rows.has(Axis::x);
  const Routing* routing = ctx.find<Routing>();
  const Tensor d_logits = ctx.like(routed.logits);
  ctx.backend.run(
      ops::RouteBackward{.d_logits = d_logits.view(),
                         .d_weights = d_weights.view(),
                         .forward = route_of(options_, routed, {}),
                         .balance = routing ? routing->balance(options_.layer, inp.rows) : View{},
                         .counted = of_rows_here(ctx, inp, inp.rows.counted),
                         .first_row = rows_cut ? first : 0,
                         .positions = inp.rows.positions,
                         .z = routing ? routing->z_factor() : 0});
  const auto in_f32 = [&](const View& view) {
    Tensor copy = ctx.empty(view.rows, view.cols, DType::f32);
    ctx.backend.run(ops::Cast{copy.view(), view});
    return copy;
  };
  if (logit_bias_ && adds_gradient(ctx, *logit_bias_, {inp.placement.rows, {}}))
    ctx.backend.run(ops::ColumnSum{logit_bias_->gradient(ctx), d_logits.view()});
  const bool once = rows_cut || ctx.grid.coord(Axis::x) == 0;  // each row, among the ranks of x
  if (once && !gate_->frozen()) {
    const Tensor rows = in_f32(inp.value.view());
    const auto [d_gate, accumulate] = gate_->gradient_of_all();
    ctx.backend.matmul({.out = d_gate,
                        .a = d_logits.view(),
                        .b = rows.view(),
                        .a_transposed = true,
                        .accumulate = accumulate});
  }
  const Tensor weight = in_f32(gate_->weight());
  Tensor d_inp = ctx.empty(r, inp.value.cols(), DType::f32);
  ctx.backend.matmul({.out = d_inp.view(), .a = d_logits.view(), .b = weight.view()});
  return d_inp;
}

}  // namespace axonn
