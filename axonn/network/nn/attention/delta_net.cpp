#include "axonn/network/nn/attention/delta_net.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/attention/head_exchange.h"
#include "axonn/ranks/parallel/block.h"

namespace axonn {

namespace {

/// Taps of the operation that computes the convolution.
std::int64_t held_taps(const DeltaSizes& sizes) {
  return std::max<std::int64_t>(sizes.taps, ops::CausalConvolution::kFewTaps);
}

/// The heads whose cut is that of all products.
Heads heads_of_sizes(const DeltaSizes& sizes) {
  return {.heads = sizes.value_heads,
          .kv_heads = sizes.key_heads,
          .head_dim = sizes.value_dim,
          .features = {{sizes.key_dim, true},
                       {sizes.key_dim, true},
                       {sizes.value_dim},
                       {sizes.value_dim},
                       {1},
                       {1}}};
}

Linear::Options delta_products(const DeltaNet::Options& options, const Heads& heads) {
  return {.in = options.width,
          .out = heads.qkv_width(),
          .bias = false,
          .init_std = options.init_std,
          .heads = heads,
          .parts = {"q_proj", "k_proj", "v_proj", "in_proj_z", "in_proj_b", "in_proj_a"},
          .adapters = options.adapters};
}

/// Of rows whose sequences are whole on this rank.
ops::SeenRows seen_by(const Context& ctx, const Chunk& products) {
  return {.positions = products.rows.positions,
          .starts = of_rows_here(ctx, products, products.rows.start)};
}

/// Memory for the states of a delta rule.
Tensor room_of_states(const Context& ctx, std::int64_t heads, std::int64_t K, std::int64_t V) {
  return ctx.empty(heads, (K + 2) * V, DType::f32);
}

Tensor number_of_columns(const Context& ctx, std::int64_t cols, float number) {
  Tensor row = ctx.zeros(1, cols, DType::f32);
  ctx.backend.run(ops::AddNumber{row.view(), row.view(), number});
  return row;
}

}  // namespace

/// Where things lie in this rank's columns of the products: q, k and v, the channels of the
/// convolution; then z, b and a. Or in those of some of its heads, then without z.
struct DeltaNet::Columns {
  LocalHeads heads;
  std::int64_t K, V, keys, values, channels, gates;  ///< gates: where b begins
  std::int64_t parts, part;  ///< into how many parts y cuts x's columns, and which is here
  /// The columns of this rank's q and of its v, its value heads, and which of its heads are the
  /// first here.
  std::int64_t all_keys, all_values, all_heads, first_key = 0, first_value = 0;

  Columns(const Context& ctx, const Heads& all, const DeltaSizes& sizes, AxisSet over)
      : heads(ctx, all, over),
        K(sizes.key_dim),
        V(sizes.value_dim),
        parts(over.has(Axis::y) ? ctx.grid.extent(Axis::y) : 1),
        part(over.has(Axis::y) ? ctx.grid.coord(Axis::y) : 0),
        all_keys(heads.room * K),
        all_values(heads.heads * V),
        all_heads(heads.heads) {
    count();
    gates = channels + values;
  }

  /// Those of part i of c of the value heads, with the key heads that they read.
  Columns some(int i, int c) const {
    Columns of = *this;
    of.first_value = i * all_heads / c;
    of.heads.heads = (i + 1) * all_heads / c - of.first_value;
    const std::int64_t first = heads.first_query + of.first_value, end = first + of.heads.heads;
    of.first_key = first / heads.group;
    of.heads.room = of.heads.heads > 0 ? (end + heads.group - 1) / heads.group - of.first_key : 0;
    of.heads.first_query = first % heads.group;
    of.count();
    of.gates = of.channels;
    return of;
  }
  /// Calls f(columns in all of this rank's products, columns in those of these heads) for q, k, v,
  /// b and a.
  void for_each(const Columns& all, const View& products, const View& of_these, auto f) const {
    f(all.q(products).col_range(first_key * K, keys), q(of_these));
    f(all.k(products).col_range(first_key * K, keys), k(of_these));
    f(all.v(products).col_range(first_value * V, values), v(of_these));
    f(all.b(products).col_range(first_value, heads.heads), b(of_these));
    f(all.a(products).col_range(first_value, heads.heads), a(of_these));
  }

  std::int64_t width() const { return gates + 2 * heads.heads; }
  View convolved(const View& all) const { return all.col_range(0, channels); }
  View q(const View& all) const { return all.col_range(0, keys); }
  View k(const View& all) const { return all.col_range(keys, keys); }
  View v(const View& all) const { return all.col_range(2 * keys, values); }
  View z(const View& all) const { return all.col_range(channels, values); }
  View b(const View& all) const { return all.col_range(gates, heads.heads); }
  View a(const View& all) const { return all.col_range(gates + heads.heads, heads.heads); }
  /// The numbers of these value heads, of those of this rank's x.
  View numbers(const View& of_x) const {
    return of_x.col_range(part * all_heads + first_value, heads.heads);
  }
  /// Calls f(first row in the parameter, first column here, count) for q, k and v.
  void for_channels(const auto& f) const {
    struct Run {
      std::int64_t all, first, count;
    };
    const Run of_keys{all_keys, first_key * K, keys},
        of_values{all_values, first_value * V, values};
    std::int64_t in_parameter = 0, here = 0;
    for (const Run& run : {of_keys, of_keys, of_values}) {
      f(in_parameter + part * run.all + run.first, here, run.count);
      in_parameter += parts * run.all;
      here += run.count;
    }
  }

 private:
  void count() {
    keys = heads.room * K;
    values = heads.heads * V;
    channels = 2 * keys + values;
  }
};

/// How ranks that share sequences divide the heads that each of them has.
struct DeltaNet::Parts {
  HeadExchange exchange;
  std::vector<Columns> of_ranks;
  Tensor starts;
  ops::SeenRows seen;  ///< of whole sequences

  Parts(const Context& ctx, const Columns& at, const Chunk& products) : exchange(ctx, products) {
    for (int i = 0; i < exchange.ranks(); ++i) of_ranks.push_back(at.some(i, exchange.ranks()));
    starts = exchange.starts();
    seen = {.positions = products.rows.whole(), .starts = starts.view()};
  }

  const Columns& mine() const { return of_ranks[exchange.rank()]; }
  std::vector<std::int64_t> widths() const {
    std::vector<std::int64_t> all;
    for (const Columns& of : of_ranks) all.push_back(of.heads.heads > 0 ? of.width() : 0);
    return all;
  }
  std::vector<std::int64_t> values() const {
    std::vector<std::int64_t> all;
    for (const Columns& of : of_ranks) all.push_back(of.values);
    return all;
  }
  /// The products of this rank's part of the heads in whole sequences.
  Chunk gather(const Context& ctx, const Columns& at, const Chunk& products) const {
    Chunk whole = products;
    whole.value = exchange.gather(widths(), products.value.dtype(), [&](int i, const View& to) {
      of_ranks[i].for_each(at, products.value.view(), to, [&](const View& from, const View& part) {
        ctx.backend.run(ops::Cast{part, from});
      });
    });
    return whole;
  }
};

/// What the products become before the delta rule.
struct DeltaNet::Made {
  Tensor taps;               // (J + 1, channels) f32 of the convolution's J taps
  Tensor convolved, active;  // (R, channels), before and after silu
  Tensor q, k;               // (R, keys)
  Tensor decay, beta;        // (R, h) f32
  ops::HeadNorm of_q, of_k;  // their norms, and the memory of these
  Tensor rstd, one_q, one_k;
  ops::SeenRows seen;
};

/// The gradients that backward goes on with.
struct DeltaNet::Slopes {
  Tensor d_out;                      // of the gate's result, or of the delta rule's
  Tensor d_products;                 // written
  Tensor d_active = {};              // (R, channels)
  Tensor d_decay = {}, d_beta = {};  // (R, h) f32
};

DeltaNet::DeltaNet(ParameterGroup& group, const std::string& name, const Options& options)
    : heads_(heads_of_sizes(options.sizes)),
      sizes_(options.sizes),
      eps_(options.eps),
      products_(group, name, delta_products(options, heads_)) {
  AXONN_CHECK(sizes_.taps >= 2 && sizes_.taps <= DeltaSizes::kMostTaps, name, ": ", sizes_.taps,
              " taps of the convolution, wanted 2 to ", DeltaSizes::kMostTaps);
  std::vector<Segment> segments = heads_.qkv_segments();
  segments.resize(3);
  std::int64_t rows = 0;
  for (const Segment& segment : segments) rows += segment.rows;
  const Layout of_heads{
      .rows = sizes_.value_heads,
      .row_axis = Axis::x,
      .segments = {{.rows = sizes_.value_heads, .unit = 1, .kind = Segment::Kind::padded}},
      .partial = Axis::y};
  taps_ = &group.add({.name = name + ".conv1d.weight",
                      .layout = {.rows = rows,
                                 .cols = sizes_.taps,
                                 .row_axis = Axis::x,
                                 .segments = segments,
                                 .partial = Axis::y},
                      .init_std = 1 / std::sqrt(3.0 * static_cast<double>(sizes_.taps)),
                      .decays = true});
  a_log_ =
      &group.add({.name = name + ".A_log", .layout = of_heads, .init_mean = 1.77, .init_std = 0.5});
  dt_bias_ = &group.add({.name = name + ".dt_bias", .layout = of_heads, .init_mean = 1});
  norm_ = &group.add({.name = name + ".norm.weight",
                      .layout = {.rows = sizes_.value_dim, .partial = {Axis::x, Axis::y}},
                      .init_mean = 1});
}

std::int64_t DeltaNet::kept_inputs(const DeltaSizes& sizes) { return held_taps(sizes) - 1; }

std::int64_t DeltaNet::slot_bytes(const DeltaSizes& sizes, const Grid& grid, DType dtype) {
  const Heads heads = heads_of_sizes(sizes);
  const int x = grid.extent(Axis::x),
            ways = heads.divide_over_y(grid) ? x * grid.extent(Axis::y) : x;
  const std::int64_t values = heads.query_heads(ways) * sizes.value_dim,
                     keys = shared_room(sizes.key_heads, sizes.value_heads, ways) * sizes.key_dim;
  return values * (sizes.key_dim + 2) * bytes_of(DType::f32) +
         kept_inputs(sizes) * (2 * keys + values) * bytes_of(dtype);
}

Var DeltaNet::operator()(const Context& context, const Var& inp) const {
  return each_later(context, products_(context, inp),
                    [this](const Context& ctx, const Chunk& in) { return forward(ctx, in); },
                    {.reads_parameters = true});
}

Chunk DeltaNet::forward(const Context& ctx, const Chunk& products) const {
  const Columns at(ctx, heads_, sizes_, products.placement.cols);
  AXONN_CHECK(products.value.cols() == at.width(), taps_->spec().name, ": products ",
              products.value.raw_view(), ", wanted ", at.width(), " columns");
  AXONN_CHECK(products.rows.branches.empty(), taps_->spec().name,
              ": states go from row to row, so branches of a sequence would see each other; give ",
              "each a document of its own");
  ctx.backend.mark(taps_->spec().name);
  if (KeyValueCache* const cache = ctx.find<KeyValueCache>()) {
    AXONN_CHECK(!products.rows.share, taps_->spec().name,
                ": a cache needs whole sequences on each rank; generate with ",
                "parallelism.context = 1");
    const auto& kept = cache->recurrent(ctx, at.heads.heads, (at.K + 2) * at.V, at.channels);
    AXONN_CHECK(cache->options().inputs == kept_inputs(sizes_), taps_->spec().name, ": a cache of ",
                cache->options().inputs, " inputs, wanted ", kept_inputs(sizes_));
    const ops::SeenRows seen{.slots = cache->slots().all.view(),
                             .position = products.rows.position.view()};
    const Tensor recalled = recall(ctx, at, make(ctx, at, products, seen, &kept), kept.states);
    return make_chunk(ctx, products, gated(ctx, at, products, recalled), products.placement);
  }
  const Tensor recalled = products.rows.share
                              ? recall_shared(ctx, at, products)
                              : recall_whole(ctx, at, products, seen_by(ctx, products));
  Chunk out = make_chunk(ctx, products, gated(ctx, at, products, recalled), products.placement);
  if (!taps_->frozen()) need_gradient(ctx, out);
  const auto backward = [this, ctx, at, recalled,
                         kept = SavedChunk(ctx, products)](const Tensor& d_out) {
    const Chunk inp = kept.get();
    ctx.backend.mark(taps_->spec().name);
    Tensor d_products = this->backward(ctx, at, inp, recalled, d_out);
    if (inp.gradient) inp.gradient->add(ctx, std::move(d_products));
  };
  return with_backward(ctx, out, backward);
}

/// The weights of the convolution as the operation takes them.
Tensor DeltaNet::taps(const Context& ctx, const Columns& at) const {
  const std::int64_t held = held_taps(sizes_);
  Tensor all = ctx.zeros(held + 1, at.channels, DType::f32);
  const View used = all.view().row_range(held - sizes_.taps, sizes_.taps);
  at.for_channels([&](std::int64_t row, std::int64_t col, std::int64_t count) {
    ctx.backend.run(
        ops::Transpose{used.col_range(col, count), taps_->weight().row_range(row, count)});
  });
  return all;
}

/// `kept`: what the slots of a generation have; null: sequences are whole.
DeltaNet::Made DeltaNet::make(const Context& ctx, const Columns& at, const Chunk& products,
                              const ops::SeenRows& seen,
                              const KeyValueCache::Recurrent* kept) const {
  const std::int64_t R = products.value.rows(), h = at.heads.heads, room = at.heads.room;
  const DType type = products.value.dtype();
  const View all = products.value.view();
  const float length = std::sqrt(static_cast<float>(at.K)),
              eps = 1e-6f / static_cast<float>(at.K);  // of a mean where the reference has a sum
  Made made{.taps = taps(ctx, at),
            .convolved = ctx.empty(R, at.channels, type),
            .active = ctx.empty(R, at.channels, type),
            .q = ctx.empty(R, at.keys, type),
            .k = ctx.empty(R, at.keys, type),
            .decay = ctx.empty(R, h, DType::f32),
            .beta = ctx.empty(R, h, DType::f32),
            .rstd = ctx.empty(R, 2 * room, DType::f32),
            .one_q = number_of_columns(ctx, at.K, 1 / (length * length)),
            .one_k = number_of_columns(ctx, at.K, 1 / length),
            .seen = seen};
  const auto* const cache = kept ? ctx.find<KeyValueCache>() : nullptr;
  if (cache) made.convolved = ctx.zeros(R, at.channels, type);  // rows without a slot are left out
  ctx.backend.run(ops::CausalConvolution{.out = made.convolved.view(),
                                         .inp = at.convolved(all),
                                         .weight = made.taps.view(),
                                         .seen = made.seen,
                                         .kept = kept ? kept->inputs.view() : View{}});
  if (cache)
    ctx.backend.run(ops::KeepHeads{.kept = kept->inputs.view(),
                                   .inp = at.convolved(all),
                                   .slots = cache->slots().last.view(),
                                   .positions = made.seen.position,
                                   .entries = kept_inputs(sizes_)});
  ctx.backend.run(
      ops::Activation{made.active.view(), made.convolved.view(), ops::ActivationKind::silu});
  made.of_q = {made.q.view(), at.q(made.active.view()), made.one_q.view(),
               made.rstd.view().col_range(0, room), eps};
  made.of_k = {made.k.view(), at.k(made.active.view()), made.one_k.view(),
               made.rstd.view().col_range(room, room), eps};
  ctx.backend.run(made.of_q);
  ctx.backend.run(made.of_k);
  ctx.backend.run(ops::DeltaGates{made.decay.view(), made.beta.view(), at.a(all), at.b(all),
                                  at.numbers(a_log_->weight()), at.numbers(dt_bias_->weight())});
  return made;
}

/// The result of the delta rule, (R, h·V).
Tensor DeltaNet::recall(const Context& ctx, const Columns& at, const Made& made,
                        const Tensor& states) const {
  const View v = at.v(made.active.view());
  // While sequences are generated, rows without one are left out.
  Tensor out = made.seen.slots.data ? ctx.zeros(v.rows, v.cols, v.dtype)
                                    : ctx.empty(v.rows, v.cols, v.dtype);
  ctx.backend.run(ops::DeltaRule{.out = out.view(),
                                 .states = states.view(),
                                 .q = made.q.view(),
                                 .k = made.k.view(),
                                 .v = v,
                                 .decay = made.decay.view(),
                                 .beta = made.beta.view(),
                                 .seen = made.seen,
                                 .heads = at.heads.heads,
                                 .key_heads = at.heads.room,
                                 .group = at.heads.group,
                                 .first_value = at.heads.first_query});
  return out;
}

Tensor DeltaNet::recall_whole(const Context& ctx, const Columns& at, const Chunk& products,
                              const ops::SeenRows& seen) const {
  return recall(
      ctx, at, make(ctx, at, products, seen),
      room_of_states(ctx, products.value.rows() / seen.positions * at.heads.heads, at.K, at.V));
}

/// The same in this rank's rows of sequences that it shares.
Tensor DeltaNet::recall_shared(const Context& ctx, const Columns& at, const Chunk& products) const {
  const Parts parts(ctx, at, products);
  const Chunk whole = parts.gather(ctx, at, products);
  Tensor recalled;
  if (!whole.value.empty()) recalled = recall_whole(ctx, parts.mine(), whole, parts.seen);
  Tensor out = ctx.empty(products.value.rows(), at.values, products.value.dtype());
  parts.exchange.scatter(recalled, parts.values(), [&](int i, const View& from) {
    const Columns& of = parts.of_ranks[i];
    ctx.backend.run(ops::Cast{out.view().col_range(of.first_value * of.V, of.values), from});
  });
  return out;
}

Tensor DeltaNet::gated(const Context& ctx, const Columns& at, const Chunk& products,
                       const Tensor& recalled) const {
  Tensor out = ctx.like(recalled);
  const Tensor gate = ctx.like(recalled),
               rstd = ctx.empty(recalled.rows(), at.heads.heads, DType::f32);
  ctx.backend.run(ops::HeadNorm{out.view(), recalled.view(), norm_->weight(), rstd.view(), eps_});
  ctx.backend.run(
      ops::Activation{gate.view(), at.z(products.value.view()), ops::ActivationKind::silu});
  ctx.backend.run(ops::Multiply{out.view(), out.view(), gate.view()});
  return out;
}

/// The gradient of `recalled`; writes that of z.
Tensor DeltaNet::gated_backward(const Context& ctx, const Columns& at, const Chunk& products,
                                const Tensor& recalled, const Slopes& slopes) const {
  const View z = at.z(products.value.view()), d_z = at.z(slopes.d_products.view());
  const Tensor normed = ctx.like(recalled), gate = ctx.like(recalled),
               rstd = ctx.empty(recalled.rows(), at.heads.heads, DType::f32);
  const ops::HeadNorm norm{normed.view(), recalled.view(), norm_->weight(), rstd.view(), eps_};
  ctx.backend.run(norm);
  ctx.backend.run(ops::Multiply{normed.view(), normed.view(), slopes.d_out.view()});
  ctx.backend.run(ops::ActivationBackward{d_z, normed.view(), z, ops::ActivationKind::silu});
  ctx.backend.run(ops::Activation{gate.view(), z, ops::ActivationKind::silu});
  ctx.backend.run(ops::Multiply{gate.view(), gate.view(), slopes.d_out.view()});
  const bool counts = adds_gradient(ctx, *norm_, products.placement);
  Tensor d_recalled = normed;  // no longer needed
  ctx.backend.run(ops::HeadNormBackward{.forward = norm,
                                        .d_out = gate.view(),
                                        .d_inp = d_recalled.view(),
                                        .d_weight = counts ? norm_->gradient(ctx) : View{}});
  return d_recalled;
}

/// Writes the gradients of a and b, and adds those of A_log and dt_bias.
void DeltaNet::gates_backward(const Context& ctx, const Columns& at, const Chunk& products,
                              const Made& made, const Slopes& slopes) const {
  const View all = products.value.view(), d = slopes.d_products.view();
  const std::int64_t R = products.value.rows(), h = at.heads.heads;
  const Tensor of_a_log = ctx.empty(R, h, DType::f32), of_bias = ctx.empty(R, h, DType::f32);
  ctx.backend.run(ops::DeltaGatesBackward{
      .forward = {made.decay.view(), made.beta.view(), at.a(all), at.b(all),
                  at.numbers(a_log_->weight()), at.numbers(dt_bias_->weight())},
      .d_decay = slopes.d_decay.view(),
      .d_beta = slopes.d_beta.view(),
      .d_a = at.a(d),
      .d_b = at.b(d),
      .of_a_log = of_a_log.view(),
      .of_bias = of_bias.view()});
  if (!adds_gradient(ctx, *a_log_, products.placement)) return;
  ctx.backend.run(ops::ColumnSum{at.numbers(a_log_->gradient(ctx)), of_a_log.view()});
  ctx.backend.run(ops::ColumnSum{at.numbers(dt_bias_->gradient(ctx)), of_bias.view()});
}

/// From the gradient of the channels after silu to that of the products, and of the weights.
void DeltaNet::convolution_backward(const Context& ctx, const Columns& at, const Chunk& products,
                                    const Made& made, const Slopes& slopes) const {
  const View d_convolved = slopes.d_active.view();
  ctx.backend.run(ops::ActivationBackward{d_convolved, d_convolved, made.convolved.view(),
                                          ops::ActivationKind::silu});
  ctx.backend.run(ops::CausalConvolution{.out = at.convolved(slopes.d_products.view()),
                                         .inp = d_convolved,
                                         .weight = made.taps.view(),
                                         .seen = made.seen,
                                         .adjoint = true});
  if (!adds_gradient(ctx, *taps_, products.placement)) return;
  const std::int64_t held = held_taps(sizes_);
  const Tensor d_taps = ctx.zeros(held, at.channels, DType::f32);
  ctx.backend.run(ops::CausalConvolutionWeights{d_taps.view(), d_convolved,
                                                at.convolved(products.value.view()), made.seen});
  const View used = d_taps.view().row_range(held - sizes_.taps, sizes_.taps);
  at.for_channels([&](std::int64_t row, std::int64_t col, std::int64_t count) {
    ctx.backend.run(ops::Transpose{taps_->gradient(ctx).row_range(row, count),
                                   used.col_range(col, count), true});
  });
}

Tensor DeltaNet::backward(const Context& ctx, const Columns& at, const Chunk& products,
                          const Tensor& recalled, const Tensor& d_out) const {
  const bool shared = products.rows.share != nullptr;
  const Tensor& value = products.value;
  Slopes slopes{.d_out = d_out,
                .d_products = shared ? ctx.zeros(value.rows(), value.cols(), value.dtype())
                                     : ctx.like(value)};
  slopes.d_out = gated_backward(ctx, at, products, recalled, slopes);
  if (shared)
    shared_backward(ctx, at, products, slopes);
  else
    recall_backward(ctx, at, products, seen_by(ctx, products), slopes);
  return slopes.d_products;
}

/// Writes the gradients of q, k, v, b and a from that of recall_whole()'s result; adds those of
/// parameters.
void DeltaNet::recall_backward(const Context& ctx, const Columns& at, const Chunk& products,
                               const ops::SeenRows& seen, const Slopes& of) const {
  const std::int64_t R = products.value.rows(), h = at.heads.heads;
  const Made made = make(ctx, at, products, seen);
  const Slopes slopes{.d_out = of.d_out,
                      .d_products = of.d_products,
                      .d_active = ctx.like(made.active),
                      .d_decay = ctx.empty(R, h, DType::f32),
                      .d_beta = ctx.empty(R, h, DType::f32)};
  const Tensor d_q = ctx.zeros(R, at.keys, DType::f32), d_k = ctx.zeros(R, at.keys, DType::f32),
               deltas = ctx.empty(R, at.values, DType::f32),
               memory =
                   ctx.empty(R / made.seen.positions * at.heads.room,
                             ops::DeltaRuleBackward::memory_cols(made.seen.positions, at.K, at.V),
                             DType::f32);
  const View d_active = slopes.d_active.view(), v = at.v(made.active.view());
  ctx.backend.run(ops::DeltaRuleBackward{.forward = {.q = made.q.view(),
                                                     .k = made.k.view(),
                                                     .v = v,
                                                     .decay = made.decay.view(),
                                                     .beta = made.beta.view(),
                                                     .seen = made.seen,
                                                     .heads = h,
                                                     .key_heads = at.heads.room,
                                                     .group = at.heads.group,
                                                     .first_value = at.heads.first_query},
                                         .d_out = slopes.d_out.view(),
                                         .d_q = d_q.view(),
                                         .d_k = d_k.view(),
                                         .d_v = at.v(d_active),
                                         .d_decay = slopes.d_decay.view(),
                                         .d_beta = slopes.d_beta.view(),
                                         .deltas = deltas.view(),
                                         .memory = memory.view()});
  gates_backward(ctx, at, products, made, slopes);
  const Tensor d = ctx.like(made.q);
  for (const auto& [norm, sum, to] :
       {std::tuple{&made.of_q, &d_q, at.q(d_active)}, {&made.of_k, &d_k, at.k(d_active)}}) {
    ctx.backend.run(ops::Cast{d.view(), sum->view()});
    ctx.backend.run(ops::HeadNormBackward{.forward = *norm, .d_out = d.view(), .d_inp = to});
  }
  convolution_backward(ctx, at, products, made, slopes);
}

/// The same in rows of sequences that ranks share. d_products is zero in these columns: a key head
/// may be read by value heads of several ranks.
void DeltaNet::shared_backward(const Context& ctx, const Columns& at, const Chunk& products,
                               const Slopes& slopes) const {
  const Parts parts(ctx, at, products);
  const Chunk whole = parts.gather(ctx, at, products);
  const Tensor d_recalled =
      parts.exchange.gather(parts.values(), slopes.d_out.dtype(), [&](int i, const View& to) {
        const Columns& of = parts.of_ranks[i];
        ctx.backend.run(
            ops::Cast{to, slopes.d_out.view().col_range(of.first_value * of.V, of.values)});
      });
  Tensor d_whole;
  if (!whole.value.empty()) {
    d_whole = ctx.like(whole.value);
    recall_backward(ctx, parts.mine(), whole, parts.seen,
                    {.d_out = d_recalled, .d_products = d_whole});
  }
  parts.exchange.scatter(d_whole, parts.widths(), [&](int i, const View& from) {
    parts.of_ranks[i].for_each(at, slopes.d_products.view(), from,
                               [&](const View& to, const View& part) {
                                 ctx.backend.run(ops::Add{to, to, part});
                               });
  });
}

}  // namespace axonn
