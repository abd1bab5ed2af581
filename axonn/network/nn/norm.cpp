#include "axonn/network/nn/norm.h"

#include <optional>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/block.h"
#include "axonn/ranks/parallel/recompute.h"

namespace axonn {

namespace {

/// A vector of a norm: as it is stored, or with plus_one in f32, a weight with 1 added.
class Factors {
 public:
  Factors(const Context& ctx, const Parameter& vector, bool plus_one, float added = 1)
      : view_(vector.weight()) {
    if (!plus_one) return;
    sums_ = ctx.empty(view_.rows, view_.cols, DType::f32);
    ctx.backend.run(ops::AddNumber{sums_.view(), view_, added});
    view_ = sums_.view();
  }
  /// Of a bias, which may be null.
  static std::optional<Factors> of_bias(const Context& ctx, const Parameter* bias, bool plus_one) {
    return bias ? std::optional<Factors>(std::in_place, ctx, *bias, plus_one, 0.0f) : std::nullopt;
  }

  const View& view() const { return view_; }

 private:
  Tensor sums_;
  View view_;
};

float initial_weight(bool plus_one) { return plus_one ? 0 : 1; }

}  // namespace

Norm::Norm(ParameterGroup& group, const std::string& name, Options options) : options_(options) {
  const Layout layout{.rows = options.width,
                      .cols = 1,
                      .row_axis = options.axis,
                      .partial = options.axis == Axis::y ? Axis::x : Axis::y};
  weight_ = &group.add(
      {.name = name + ".weight", .layout = layout, .init_mean = initial_weight(options.plus_one)});
  if (options.bias && options.kind == Kind::layer)
    bias_ = &group.add({.name = name + ".bias", .layout = layout});
}

Var Norm::operator()(const Context& ctx, const Var& inp) const {
  if (ctx.grid.extent(options_.axis) == 1)
    return each_later(ctx, inp,
                      [this](const Context& here, const Chunk& chunk) {
                        check_columns(chunk);
                        return forward(here, chunk, {});
                      },
                      {.reads_parameters = true});
  // With two chunks neither can start early: each would wait for the sum in flight.
  return each_later(
      ctx, inp, {.ahead = inp.size() > 2, .reads_parameters = true},
      [this](const Context& here, const Chunk& chunk) { return gather_moments(here, chunk); },
      [this](const Context& here, const Chunk& chunk, const Tensor& moments) {
        return forward(here, chunk, moments);
      });
}

void Norm::check_columns(const Chunk& inp) const {
  AXONN_CHECK(
      inp.placement.cols == AxisSet(options_.axis) && inp.value.cols() == weight_->local_rows(),
      weight_->spec().name, ": the input has ", inp.value.cols(), " columns here, wanted ",
      weight_->local_rows(), " over y");
}

Tensor Norm::gather_moments(const Context& ctx, const Chunk& inp) const {
  check_columns(inp);
  ctx.backend.mark(weight_->spec().name);
  const Communicator& group = ctx.grid.along(options_.axis);
  const std::int64_t rows = inp.value.rows();
  Tensor moments = ctx.empty(group.size() * rows, 2, DType::f32);
  const View mine = moments.view().row_range(group.rank() * rows, rows);
  if (inp.moments.empty())
    ctx.backend.run(ops::RowMoments{mine, inp.value.view()});
  else
    ctx.backend.run(ops::Cast{mine, inp.moments.view()});
  if (options_.kind == Kind::rms)
    ctx.backend.run(ops::MomentsAboutZero{mine, mine, inp.value.cols()});
  moments.set_pending(
      ctx.grid.along(options_.axis)
          .all_gather(buffer_of(moments.raw_view()), buffer_of(mine), weight_->spec().name));
  return moments;
}

Chunk Norm::forward(const Context& ctx, const Chunk& inp, const Tensor& moments) const {
  ctx.backend.mark(weight_->spec().name);
  const bool whole = moments.empty();
  Tensor stats = ctx.empty(inp.value.rows(), 2, DType::f32);
  if (!whole)
    ctx.backend.run(
        ops::CombineMoments{stats.view(), moments.view(), inp.value.cols(), options_.eps});

  const auto of = [this, ctx, stats](const Tensor& from) {
    Tensor value = ctx.like(from);
    const Factors factors(ctx, *weight_, options_.plus_one);
    const auto bias = Factors::of_bias(ctx, bias_, options_.plus_one);
    ctx.backend.run(ops::LayerNorm{value.view(), from.view(), factors.view(),
                                   bias ? bias->view() : View{}, stats.view()});
    return value;
  };
  const auto first = [&] {
    if (!whole) return of(inp.value);
    Tensor value = ctx.like(inp.value);
    const Factors factors(ctx, *weight_, options_.plus_one);
    const auto bias = Factors::of_bias(ctx, bias_, options_.plus_one);
    ctx.backend.run(ops::NormForward{.out = value.view(),
                                     .stats = stats.view(),
                                     .inp = inp.value.view(),
                                     .moments = inp.moments.view(),
                                     .weight = factors.view(),
                                     .bias = bias ? bias->view() : View{},
                                     .eps = options_.eps,
                                     .about_zero = options_.kind == Kind::rms});
    return value;
  };
  Chunk out = make_chunk(ctx, inp, first(), inp.placement);
  if (!weight_->frozen()) need_gradient(ctx, out);
  if (!out.gradient) return out;
  let_remake(ctx, out, Remade::norms, inp, of);
  const SavedChunk kept(ctx, inp);
  if (inp.gradient && ctx.grid.extent(options_.axis) == 1) {
    ctx.tape->record([this, ctx, kept, stats, gradient = out.gradient] {
      backward_of_whole_rows(ctx, kept.get(), stats, gradient->take());
    });
    return out;
  }
  const auto sums = std::make_shared<Sums>();
  if (inp.gradient) {
    ctx.tape->record([this, ctx, kept, stats, sums] { backward(ctx, kept.get(), stats, *sums); });
    ctx.tape->pause();
  }
  ctx.tape->record([this, ctx, kept, stats, sums, gradient = out.gradient] {
    *sums = start_backward(ctx, kept.get(), stats, gradient->take());
  });
  return out;
}

void Norm::backward_of_whole_rows(const Context& ctx, const Chunk& inp, const Tensor& stats,
                                  const Tensor& d_out) const {
  ctx.backend.mark(weight_->spec().name);
  const bool counts = adds_gradient(ctx, *weight_, inp.placement);
  const Tensor residual = inp.gradient->take_if_any();  // from the residual connection
  Tensor d_inp = ctx.like(inp.value);
  const Factors factors(ctx, *weight_, options_.plus_one);
  ctx.backend.run(ops::NormBackward{.d_inp = d_inp.view(),
                                    .d_weight = counts ? weight_->gradient(ctx) : View{},
                                    .d_bias = counts && bias_ ? bias_->gradient(ctx) : View{},
                                    .d_out = d_out.view(),
                                    .inp = inp.value.view(),
                                    .weight = factors.view(),
                                    .stats = stats.view(),
                                    .residual = residual.view(),
                                    .about_zero = options_.kind == Kind::rms});
  inp.gradient->add(ctx, std::move(d_inp));
}

Norm::Sums Norm::start_backward(const Context& ctx, const Chunk& inp, const Tensor& stats,
                                Tensor d_out) const {
  ctx.backend.mark(weight_->spec().name);
  Tensor sums;
  if (inp.gradient) {
    sums = ctx.empty(d_out.rows(), 2, DType::f32);
    const Factors factors(ctx, *weight_, options_.plus_one);
    if (options_.kind == Kind::rms)
      ctx.backend.run(ops::RmsNormSums{sums.view(), d_out.view(), inp.value.view(), factors.view(),
                                       stats.view()});
    else
      ctx.backend.run(ops::LayerNormSums{sums.view(), d_out.view(), inp.value.view(),
                                         factors.view(), stats.view()});
    sums.set_pending(
        ctx.grid.along(options_.axis).all_reduce(buffer_of(sums.raw_view()), weight_->spec().name));
  }
  if (adds_gradient(ctx, *weight_, inp.placement))
    ctx.backend.run(ops::LayerNormWeightBackward{weight_->gradient(ctx),
                                                 bias_ ? bias_->gradient(ctx) : View{},
                                                 d_out.view(), inp.value.view(), stats.view()});
  return {std::move(d_out), std::move(sums)};
}

void Norm::backward(const Context& ctx, const Chunk& inp, const Tensor& stats,
                    const Sums& sums) const {
  const Tensor residual = inp.gradient->take_if_any();  // from the residual connection
  Tensor d_inp = ctx.like(inp.value);
  const Factors factors(ctx, *weight_, options_.plus_one);
  ctx.backend.run(ops::LayerNormBackward{.d_inp = d_inp.view(),
                                         .d_out = sums.d_out.view(),
                                         .inp = inp.value.view(),
                                         .weight = factors.view(),
                                         .stats = stats.view(),
                                         .sums = sums.sums.view(),
                                         .residual = residual.view(),
                                         .width = options_.width});
  inp.gradient->add(ctx, std::move(d_inp));
}

QkNorm::QkNorm(ParameterGroup& group, const std::string& name, const Heads& heads,
               const QkNormOptions& options)
    : heads_(heads), options_(options) {
  const Layout layout{.rows = heads.head_dim, .partial = {Axis::x, Axis::y}};
  const auto add = [&](const char* which) {
    return &group.add(
        {.name = name + which, .layout = layout, .init_mean = initial_weight(options.plus_one)});
  };
  q_weight_ = add(".q_norm.weight");
  if (heads.makes_keys()) k_weight_ = add(".k_norm.weight");
}

/// `all`: out, inp and rstd of queries and keys together. f also gets the weight, and the views of
/// a value's columns.
template <typename F>
void QkNorm::with_norms(const Context& ctx, const LocalHeads& at, ops::HeadNorm all,
                        const F& f) const {
  const auto run = [&](const Parameter& weight, std::int64_t first, std::int64_t heads,
                       View (LocalHeads::*of)(const View&) const) {
    const Factors factors(ctx, weight, options_.plus_one);
    f(ops::HeadNorm{.out = (at.*of)(all.out),
                    .inp = (at.*of)(all.inp),
                    .weight = factors.view(),
                    .rstd = all.rstd.col_range(first, heads),
                    .eps = options_.eps},
      weight, of);
  };
  run(*q_weight_, 0, at.heads, &LocalHeads::q);
  if (k_weight_) run(*k_weight_, at.heads, at.room, &LocalHeads::k);
}

Var QkNorm::operator()(const Context& context, const Var& qkv) const {
  const auto forward = [this](const Context& ctx, const Chunk& in) {
    const LocalHeads at(ctx, heads_, in.placement.cols);
    AXONN_CHECK(in.value.cols() == at.width(), q_weight_->spec().name, ": qkv ",
                in.value.raw_view(), ", wanted ", at.width(), " columns");
    ctx.backend.mark(q_weight_->spec().name);
    const Tensor rstd = ctx.empty(in.value.rows(), at.heads + at.room, DType::f32);
    const auto of = [this, ctx, at, rstd](const Tensor& from) {
      Tensor value = ctx.like(from);
      with_norms(ctx, at, {.out = value.view(), .inp = from.view(), .rstd = rstd.view()},
                 [&](const ops::HeadNorm& norm, auto&&...) { ctx.backend.run(norm); });
      if (k_weight_) ctx.backend.run(ops::Cast{at.v(value.view()), at.v(from.view())});
      return value;
    };
    Chunk out = make_chunk(ctx, in, of(in.value), in.placement);
    if (!q_weight_->frozen()) need_gradient(ctx, out);
    let_remake(ctx, out, Remade::heads, in, of);
    const auto backward = [this, ctx, at, rstd, kept = SavedChunk(ctx, in)](const Tensor& d_out) {
      const Chunk inp = kept.get();
      Tensor d_qkv = this->backward(ctx, at, d_out, inp, rstd);
      if (inp.gradient) inp.gradient->add(ctx, std::move(d_qkv));
    };
    return with_backward(ctx, out, backward);
  };
  return each_later(context, qkv, forward, {.reads_parameters = true});
}

Tensor QkNorm::backward(const Context& ctx, const LocalHeads& at, const Tensor& d_out,
                        const Chunk& qkv, const Tensor& rstd) const {
  ctx.backend.mark(q_weight_->spec().name);
  Tensor d_qkv = ctx.like(qkv.value);
  const View d = d_out.view(), to = d_qkv.view();
  const bool counts = adds_gradient(ctx, *q_weight_, qkv.placement);
  with_norms(
      ctx, at, {.out = to, .inp = qkv.value.view(), .rstd = rstd.view()},
      [&](const ops::HeadNorm& norm, const Parameter& weight, auto of) {
        ctx.backend.run(ops::HeadNormBackward{.forward = norm,
                                              .d_out = (at.*of)(d),
                                              .d_inp = (at.*of)(to),
                                              .d_weight = counts ? weight.gradient(ctx) : View{}});
      });
  if (k_weight_) ctx.backend.run(ops::Cast{at.v(to), at.v(d)});
  return d_qkv;
}

/// The queries or the keys on this rank: columns [begin, begin + cols) of qkv.
struct QkWidthNorm::Part {
  const Parameter* parameter;
  std::int64_t begin, cols;
  std::int64_t skipped;       ///< leading columns that an earlier rank of x counts
  std::int64_t width;         ///< columns of all ranks, each once
  std::int64_t first_weight;  ///< where the columns begin in the weight here

  View of(const View& qkv) const { return qkv.col_range(begin, cols); }
  View weights(const View& all) const { return all.col_range(first_weight, cols); }
  /// The columns that this rank counts, of a view of all `cols`.
  View counted(const View& mine) const { return mine.col_range(skipped, cols - skipped); }
};

QkWidthNorm::QkWidthNorm(ParameterGroup& group, const std::string& name, const Heads& heads,
                         const QkNormOptions& options)
    : heads_(heads), options_(options) {
  const std::vector<Segment> segments = heads.qkv_segments();
  const auto add = [&](const char* which, const Segment& segment) {
    return &group.add({.name = name + which,
                       .layout = {.rows = segment.rows,
                                  .row_axis = Axis::x,
                                  .segments = {segment},
                                  .partial = Axis::y},
                       .init_mean = initial_weight(options.plus_one)});
  };
  q_weight_ = add(".q_norm.weight", segments[0]);
  k_weight_ = add(".k_norm.weight", segments[1]);
}

std::array<QkWidthNorm::Part, 2> QkWidthNorm::parts(const Context& ctx, const LocalHeads& at,
                                                    AxisSet over) const {
  const std::int64_t q = at.heads * at.dim, k = at.room * at.dim,
                     part = over.has(Axis::y) ? ctx.grid.coord(Axis::y) : 0;
  const std::int64_t queries = at.real_heads * at.dim, keys = at.real_room * at.dim;
  // Queries before the rank's own read its first key head if an earlier rank has a copy of it.
  const std::int64_t skipped = at.first_query > 0 ? std::min(at.dim, keys) : 0;
  return {Part{q_weight_, 0, queries, 0, heads_.out_width(), part * q},
          Part{k_weight_, q, keys, skipped, heads_.kv_heads * heads_.head_dim, part * k}};
}

/// A value like qkv, in which the columns of heads that do not exist are zero.
Tensor QkWidthNorm::padded_like(const Context& ctx, const LocalHeads& at, const Tensor& qkv) {
  if (at.real_heads == at.heads && at.real_room == at.room) return ctx.like(qkv);
  return ctx.zeros(qkv.rows(), qkv.cols(), qkv.dtype(), qkv.use());
}

/// Starts the sum over the axes that cut the heads.
void QkWidthNorm::sum(const Context& ctx, Tensor& sums, AxisSet over) const {
  for (const Axis axis : {Axis::x, Axis::y}) {
    if (!over.has(axis)) continue;
    sums.wait();
    sums.set_pending(
        ctx.grid.along(axis).all_reduce(buffer_of(sums.raw_view()), q_weight_->spec().name));
  }
}

Var QkWidthNorm::operator()(const Context& ctx, const Var& qkv) const {
  return each_later(
      ctx, qkv, {.ahead = ctx.grid.extent(Axis::x) > 1 && qkv.size() > 2, .reads_parameters = true},
      [this](const Context& here, const Chunk& in) { return start_sums(here, in); },
      [this](const Context& here, const Chunk& in, const Tensor& sums) {
        return forward(here, in, sums);
      });
}

/// Returns (R, 4) f32, pending: 0 and the sum of squares of all ranks' queries, then of keys.
Tensor QkWidthNorm::start_sums(const Context& ctx, const Chunk& in) const {
  const LocalHeads at(ctx, heads_, in.placement.cols);
  AXONN_CHECK(in.value.cols() == at.width(), q_weight_->spec().name, ": qkv ", in.value.raw_view(),
              ", wanted ", at.width(), " columns");
  ctx.backend.mark(q_weight_->spec().name);
  Tensor sums = ctx.zeros(in.value.rows(), 4, DType::f32);
  std::int64_t column = 0;
  for (const Part& part : parts(ctx, at, in.placement.cols)) {
    const View counted = part.counted(part.of(in.value.view())),
               out = sums.view().col_range(column, 2);
    column += 2;
    if (counted.cols == 0) continue;
    ctx.backend.run(ops::RowMoments{out, counted});
    ctx.backend.run(ops::MomentsAboutZero{out, out, counted.cols});
  }
  sum(ctx, sums, in.placement.cols);
  return sums;
}

Chunk QkWidthNorm::forward(const Context& ctx, const Chunk& in, const Tensor& sums) const {
  const LocalHeads at(ctx, heads_, in.placement.cols);
  ctx.backend.mark(q_weight_->spec().name);
  const std::array<Part, 2> both = parts(ctx, at, in.placement.cols);
  const Tensor stats = ctx.empty(in.value.rows(), 4, DType::f32);
  const auto of_part = [](const Tensor& pairs, std::size_t i) {
    return pairs.view().col_range(2 * static_cast<std::int64_t>(i), 2);
  };
  for (std::size_t i = 0; i < both.size(); ++i)
    ctx.backend.run(
        ops::CombineMoments{of_part(stats, i), of_part(sums, i), both[i].width, options_.eps});
  const auto of = [this, ctx, at, both, of_part, stats](const Tensor& from) {
    Tensor value = padded_like(ctx, at, from);
    for (std::size_t i = 0; i < both.size(); ++i) {
      if (both[i].cols == 0) continue;
      const Factors factors(ctx, *both[i].parameter, options_.plus_one);
      ctx.backend.run(ops::LayerNorm{.out = both[i].of(value.view()),
                                     .inp = both[i].of(from.view()),
                                     .weight = both[i].weights(factors.view()),
                                     .stats = of_part(stats, i)});
    }
    ctx.backend.run(ops::Cast{at.v(value.view()), at.v(from.view())});
    return value;
  };
  Chunk out = make_chunk(ctx, in, of(in.value), in.placement);
  if (!q_weight_->frozen()) need_gradient(ctx, out);
  let_remake(ctx, out, Remade::heads, in, of);
  const auto backward = [this, ctx, stats, kept = SavedChunk(ctx, in)](const Tensor& d_out) {
    const Chunk inp = kept.get();
    Tensor d_qkv = this->backward(ctx, d_out, inp, stats);
    if (inp.gradient) inp.gradient->add(ctx, std::move(d_qkv));
  };
  return with_backward(ctx, out, backward);
}

/// Of a key head with several copies, each has a summand of the gradient. The term with the sum
/// over the row is subtracted from the copy that counts; the other copies' gradient is
/// d_out · weight · rstd alone, which is what LayerNorm computes of d_out.
Tensor QkWidthNorm::backward(const Context& ctx, const Tensor& d_out, const Chunk& qkv,
                             const Tensor& stats) const {
  const AxisSet over = qkv.placement.cols;
  const LocalHeads at(ctx, heads_, over);
  ctx.backend.mark(q_weight_->spec().name);
  Tensor d_qkv = padded_like(ctx, at, qkv.value),
         sums = at.real_heads > 0 ? ctx.empty(d_out.rows(), 4, DType::f32)
                                  : ctx.zeros(d_out.rows(), 4, DType::f32);
  const std::array<Part, 2> both = parts(ctx, at, over);
  const auto of_part = [](const Tensor& pairs, std::size_t i) {
    return pairs.view().col_range(2 * static_cast<std::int64_t>(i), 2);
  };
  for (std::size_t i = 0; i < both.size(); ++i) {
    const Part& part = both[i];
    if (part.cols == 0) continue;
    const View d = part.of(d_out.view()), inp = part.of(qkv.value.view());
    const Factors factors(ctx, *part.parameter, options_.plus_one);
    ctx.backend.run(ops::RmsNormSums{of_part(sums, i), d, inp, part.weights(factors.view()),
                                     of_part(stats, i)});
    if (adds_gradient(ctx, *part.parameter, qkv.placement))
      ctx.backend.run(ops::LayerNormWeightBackward{part.weights(part.parameter->gradient(ctx)),
                                                   View{}, d, inp, of_part(stats, i)});
  }
  sum(ctx, sums, over);
  for (std::size_t i = 0; i < both.size(); ++i) {
    const Part& part = both[i];
    const Factors factors(ctx, *part.parameter, options_.plus_one);
    const View d = part.of(d_out.view()), inp = part.of(qkv.value.view()),
               to = part.of(d_qkv.view()), weight = part.weights(factors.view());
    if (part.skipped > 0)
      ctx.backend.run(ops::LayerNorm{.out = to.col_range(0, part.skipped),
                                     .inp = d.col_range(0, part.skipped),
                                     .weight = weight.col_range(0, part.skipped),
                                     .stats = of_part(stats, i)});
    if (part.cols > part.skipped)
      ctx.backend.run(ops::LayerNormBackward{.d_inp = part.counted(to),
                                             .d_out = part.counted(d),
                                             .inp = part.counted(inp),
                                             .weight = part.counted(weight),
                                             .stats = of_part(stats, i),
                                             .sums = of_part(sums, i),
                                             .width = part.width});
  }
  ctx.backend.run(ops::Cast{at.v(d_qkv.view()), at.v(d_out.view())});
  return d_qkv;
}

}  // namespace axonn
