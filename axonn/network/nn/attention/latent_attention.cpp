#include "axonn/network/nn/attention/latent_attention.h"

#include <algorithm>
#include <array>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/gathered.h"

// The columns of a head in attention: the r that rotate, the n others, zeros. The order does not
// matter to scores, and Rope rotates the first columns.

namespace axonn {

namespace {

/// The first `width` of each head's `all` columns.
Var first_columns(const Context& context, const Var& inp, std::int64_t all, std::int64_t width) {
  if (all == width) return inp;
  return each_later(context, inp, [all, width](const Context& ctx, const Chunk& in) {
    const std::int64_t heads = in.value.cols() / all;
    Tensor value = ctx.empty(in.value.rows(), heads * width, in.value.dtype());
    ctx.backend.run(ops::CopyHeads{value.view(), in.value.view(), heads, width, width, all});
    Chunk out = make_chunk(ctx, in, value, in.placement);
    return with_backward(ctx, out, [ctx, heads, all, width, to = in.gradient](const Tensor& d_out) {
      Tensor d_inp = ctx.zeros(d_out.rows(), heads * all, d_out.dtype());
      ctx.backend.run(ops::CopyHeads{d_inp.view(), d_out.view(), heads, width, all, width});
      to->add(ctx, std::move(d_inp));
    });
  });
}

/// The products that make latents, as one.
Linear::Options down_options(const LatentAttention::Options& options) {
  const LatentSizes& sizes = options.sizes;
  Linear::Options down{.in = options.width,
                       .out = sizes.query_rank + sizes.key_rank + sizes.rotated,
                       .bias = options.bias,
                       .init_std = options.init_std,
                       .adapters = options.adapters};
  if (sizes.query_rank > 0) {
    down.segments = {{.rows = sizes.query_rank}};
    down.parts = {"q_a_proj"};
  }
  down.segments.push_back({.rows = sizes.key_rank + sizes.rotated});
  down.parts.emplace_back("kv_a_proj_with_mqa");
  return down;
}

/// A product of so many features for each head.
Linear::Options up_to_heads(const LatentAttention::Options& options, std::int64_t in,
                            std::int64_t each) {
  Heads heads = options.heads;
  heads.features = {{each}};
  return {.in = in,
          .out = heads.qkv_width(),
          .bias = false,
          .init_std = options.init_std,
          .heads = heads,
          .adapters = options.adapters};
}

Norm::Options norm_of_latents(std::int64_t width, float eps) {
  return {.width = width, .kind = Norm::Kind::rms, .bias = false, .eps = eps};
}

}  // namespace

LatentAttention::LatentAttention(ParameterGroup& group, const std::string& name,
                                 const Options& options)
    : heads_(options.heads),
      sizes_(options.sizes),
      down_(group, name, down_options(options)),
      key_norm_(group, name + ".kv_a_layernorm", norm_of_latents(sizes_.key_rank, options.eps)),
      query_up_(group, name + (sizes_.query_rank > 0 ? ".q_b_proj" : ".q_proj"),
                up_to_heads(options, sizes_.query_rank > 0 ? sizes_.query_rank : options.width,
                            sizes_.plain + sizes_.rotated)),
      key_up_(group, name + ".kv_b_proj",
              up_to_heads(options, sizes_.key_rank, sizes_.plain + sizes_.value)) {
  AXONN_CHECK(heads_.heads == heads_.kv_heads && heads_.head_dim == sizes_.head_dim(), name,
              ": wanted as many key-value heads as heads, of width ", sizes_.head_dim());
  if (sizes_.query_rank > 0)
    query_norm_.emplace(group, name + ".q_a_layernorm",
                        norm_of_latents(sizes_.query_rank, options.eps));
}

/// What a cache with latents gets of a pass.
struct LatentAttention::Inputs {
  const Chunk* queries;  // null: the rows do not read the cache
  const Chunk &latents, &normed;
};

Var LatentAttention::operator()(const Context& ctx, const Var& inp, const Rope* rope) const {
  Runs runs{sizes_.key_rank + sizes_.rotated};
  if (sizes_.query_rank > 0) runs.insert(runs.begin(), sizes_.query_rank);
  const Var latents = gathered(ctx, down_(ctx, inp), Axis::x, runs);
  const Var normed =
      key_norm_(ctx, columns_over(ctx, latents, Axis::y, sizes_.query_rank, sizes_.key_rank));
  if (KeyValueCache* const cache = ctx.find<KeyValueCache>(); cache && cache->options().latents) {
    const bool reads = cache->reads() == KeyValueCache::Reads::kept;
    const Var q = reads ? queries(ctx, inp, latents) : Var();
    const auto out =
        cached(ctx, {reads ? &q.front() : nullptr, latents.front(), normed.front()}, *cache, rope);
    if (reads) return {*out};
  }
  const Var kv = key_up_(ctx, normed);
  Var qkv = heads_of(ctx, queries(ctx, inp, latents), kv, latents);
  if (rope) qkv = (*rope)(ctx, std::move(qkv), heads_);
  return first_columns(ctx, attention(ctx, qkv, heads_), heads_.head_dim, sizes_.value);
}

Var LatentAttention::queries(const Context& ctx, const Var& inp, const Var& latents) const {
  if (!query_norm_) return query_up_(ctx, inp);
  return query_up_(ctx,
                   (*query_norm_)(ctx, columns_over(ctx, latents, Axis::y, 0, sizes_.query_rank)));
}

/// Stores the latents of the rows; with queries, their attention to what is stored.
std::optional<Chunk> LatentAttention::cached(const Context& ctx, const Inputs& of,
                                             KeyValueCache& cache, const Rope* rope) const {
  const auto [n, r, L] = std::array{sizes_.plain, sizes_.rotated, sizes_.key_rank};
  LocalHeads at(ctx, heads_, Axis::x);
  if (!of.queries) at.heads = 0;
  at.dim = cached_columns(sizes_);
  at.room = 1;
  at.group = std::max<std::int64_t>(at.heads, 1);
  at.first_query = 0;
  at.keys_are_values = true;
  Chunk all = of.latents;  // whole on all ranks of x and y
  all.value = ctx.empty(of.latents.value.rows(), (at.heads + 1) * at.dim, ctx.dtype);
  const View q = at.q(all.value.view()), key = at.k(all.value.view());
  ctx.backend.run(
      ops::Cast{key.col_range(0, r), of.latents.value.view().col_range(sizes_.query_rank + L, r)});
  const Tensor normed = Gather(ctx, of.normed.value, Axis::y, Cut::columns).whole(ctx, {L});
  ctx.backend.run(ops::Cast{key.col_range(r, L), normed.view()});
  if (rope) rope->rotate(ctx, all, key, at.dim, Rope::Of::keys);
  if (!of.queries) {
    cache.attend(ctx, at, all, {}, {});
    return std::nullopt;
  }
  const Tensor queries =
      Gather(ctx, of.queries->value, Axis::y, cut_over(of.queries->placement, Axis::y))
          .whole(ctx, {at.heads * (n + r)});
  const Tensor absorbed = absorbed_queries(ctx, queries);
  ctx.backend.run(ops::CopyHeads{q, queries.view().col_range(n, queries.cols() - n), at.heads, r,
                                 at.dim, n + r});
  ctx.backend.run(
      ops::CopyHeads{q.col_range(r, q.cols - r), absorbed.view(), at.heads, L, at.dim, L});
  if (rope) rope->rotate(ctx, all, q, at.dim, Rope::Of::queries);
  const Tensor seen = ctx.empty(all.value.rows(), at.heads * at.dim, ctx.dtype);
  AXONN_CHECK(cache.attend(ctx, at, all, seen.view(), {}), "latent attention: nothing is cached");
  return make_chunk(ctx, *of.queries, values_of(ctx, seen, *of.queries), of.queries->placement);
}

/// The queries (R, h(n+r)) of all heads of this x, by W_kv's part of the keys: (R, h·Lk).
Tensor LatentAttention::absorbed_queries(const Context& ctx, const Tensor& queries) const {
  const Parameter& weight = key_up_.only_weight();
  const auto [n, step, L] =
      std::array{sizes_.plain, sizes_.plain + sizes_.value, weight.local_cols()};
  const std::int64_t each = sizes_.plain + sizes_.rotated, h = queries.cols() / each;
  const Tensor here = ctx.empty(queries.rows(), h * L, ctx.dtype);
  std::vector<Matmul> products;
  for (std::int64_t head = 0; head < h; ++head)
    products.push_back({.out = here.view().col_range(head * L, L),
                        .a = queries.view().col_range(head * each, n),
                        .b = weight.weight().row_range(head * step, n)});
  ctx.backend.mark(weight.spec().name);
  ctx.backend.matmuls(products);
  return Gather(ctx, here, Axis::y, Cut::columns).whole(ctx, Runs(h, sizes_.key_rank));
}

/// W_kv's part of the values times the latents that heads have seen, h columns (r + Lk) each: (R,
/// h·v), cut as the queries are.
Tensor LatentAttention::values_of(const Context& ctx, const Tensor& seen,
                                  const Chunk& queries) const {
  const Parameter& weight = key_up_.only_weight();
  const std::int64_t n = sizes_.plain, v = sizes_.value, L = weight.local_cols(),
                     each = cached_columns(sizes_), h = seen.cols() / each,
                     first = sizes_.rotated + L * ctx.grid.coord(Axis::y);
  Tensor out = ctx.empty(seen.rows(), h * v, ctx.dtype);
  std::vector<Matmul> products;
  for (std::int64_t head = 0; head < h; ++head)
    products.push_back({.out = out.view().col_range(head * v, v),
                        .a = seen.view().col_range(head * each + first, L),
                        .b = weight.weight().row_range(head * (n + v) + n, v),
                        .b_transposed = true});
  ctx.backend.mark(weight.spec().name);
  ctx.backend.matmuls(products);
  sum_over(ctx, out, Axis::y, cut_over(queries.placement, Axis::y), {h * v});
  return out;
}

/// The queries, keys and values of heads, as attention() takes them.
Var LatentAttention::heads_of(const Context& ctx, const Var& q, const Var& kv,
                              const Var& latents) const {
  return each_of(ctx, "latent attention", {q, kv, latents},
                 [this](const Context& here, const std::vector<Chunk>& of) {
                   return assemble(here, of[0], of[1], of[2]);
                 });
}

Chunk LatentAttention::assemble(const Context& ctx, const Chunk& q, const Chunk& kv,
                                const Chunk& latents) const {
  const auto [n, r, v, D] = std::array{sizes_.plain, sizes_.rotated, sizes_.value, heads_.head_dim};
  const std::int64_t rows = q.value.rows(), h = q.value.cols() / (n + r),
                     first = sizes_.query_rank + sizes_.key_rank;
  AXONN_CHECK(q.placement == kv.placement && kv.value.cols() == h * (n + v),
              "latent attention: queries ", q.value.raw_view(), " and keys ", kv.value.raw_view(),
              " are of different heads");
  const Tensor value = ctx.zeros(rows, 3 * h * D, q.value.dtype());
  const View queries = value.view().col_range(0, h * D),
             keys = value.view().col_range(h * D, h * D),
             values = value.view().col_range(2 * h * D, h * D);
  const auto from = [](const View& all, std::int64_t column) {
    return all.col_range(column, all.cols - column);
  };
  const std::int64_t here = q.placement.rows.has(Axis::y) ? ctx.grid.coord(Axis::y) * rows : 0;
  const View key = latents.value.view().row_range(here, rows).col_range(first, r);
  ctx.backend.run(ops::CopyHeads{queries, from(q.value.view(), n), h, r, D, n + r});
  ctx.backend.run(ops::CopyHeads{from(queries, r), q.value.view(), h, n, D, n + r});
  ctx.backend.run(ops::CopyHeads{keys, key, h, r, D, 0});
  ctx.backend.run(ops::CopyHeads{from(keys, r), kv.value.view(), h, n, D, n + v});
  ctx.backend.run(ops::CopyHeads{values, from(kv.value.view(), n), h, v, D, n + v});
  Chunk out = make_chunk(ctx, q, value, q.placement);
  if (kv.gradient || latents.gradient) need_gradient(ctx, out);
  const auto backward = [=, this, to_q = q.gradient, to_kv = kv.gradient, to = latents.gradient,
                         placement = q.placement, of_latents = latents.value.rows(),
                         cols = latents.value.cols()](const Tensor& d_out) {
    const View d = d_out.view(), d_keys = d.col_range(h * D, h * D);
    if (to_q) {
      Tensor d_q = ctx.empty(rows, h * (n + r), d_out.dtype());
      ctx.backend.run(ops::CopyHeads{from(d_q.view(), n), d.col_range(0, h * D), h, r, n + r, D});
      ctx.backend.run(ops::CopyHeads{d_q.view(), from(d, r), h, n, n + r, D});
      to_q->add(ctx, std::move(d_q));
    }
    if (to_kv) {
      Tensor d_kv = ctx.empty(rows, h * (n + v), d_out.dtype());
      ctx.backend.run(ops::CopyHeads{d_kv.view(), from(d_keys, r), h, n, n + v, D});
      ctx.backend.run(ops::CopyHeads{from(d_kv.view(), n), from(d, 2 * h * D), h, v, n + v, D});
      to_kv->add(ctx, std::move(d_kv));
    }
    if (!to) return;
    Tensor d_latents = ctx.zeros(of_latents, cols, d_out.dtype());
    ctx.backend.run(ops::Cast{d_latents.view().col_range(first, r),
                              d_key(ctx, placement, d_keys, of_latents).view()});
    to->add(ctx, std::move(d_latents));
  };
  return with_backward(ctx, out, backward);
}

/// The gradient (R, r) of the key that all heads share, of all heads on all ranks.
Tensor LatentAttention::d_key(const Context& ctx, const Placement& placement, const View& d_k,
                              std::int64_t rows) const {
  const std::int64_t D = heads_.head_dim, r = sizes_.rotated;
  Tensor d = ctx.empty(d_k.rows, r, d_k.dtype);
  ctx.backend.run(ops::CopyHeads{d.view(), d_k, d_k.cols / D, r, 0, D});
  d = Gather(ctx, d, Axis::y, placement.rows.has(Axis::y) ? Cut::rows : Cut::same).whole(ctx, {});
  AXONN_CHECK(d.rows() == rows, "latent attention: ", d.rows(), " rows, wanted ", rows);
  for (const Axis axis : {Axis::x, Axis::y})
    if (placement.cols.has(axis)) sum_over(ctx, d, axis, Cut::same, {});
  return d;
}

}  // namespace axonn
