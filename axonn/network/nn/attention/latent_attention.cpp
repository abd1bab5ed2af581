#include "axonn/network/nn/attention/latent_attention.h"

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

Var LatentAttention::operator()(const Context& ctx, const Var& inp, const Rope* rope) const {
  Runs runs{sizes_.key_rank + sizes_.rotated};
  if (sizes_.query_rank > 0) runs.insert(runs.begin(), sizes_.query_rank);
  const Var latents = gathered(ctx, down_(ctx, inp), Axis::x, runs);
  const Var kv = key_up_(
      ctx, key_norm_(ctx, columns_over(ctx, latents, Axis::y, sizes_.query_rank, sizes_.key_rank)));
  Var qkv = heads_of(ctx, queries(ctx, inp, latents), kv, latents);
  if (rope) qkv = (*rope)(ctx, std::move(qkv), heads_);
  return first_columns(ctx, attention(ctx, qkv, heads_), heads_.head_dim, sizes_.value);
}

Var LatentAttention::queries(const Context& ctx, const Var& inp, const Var& latents) const {
  if (!query_norm_) return query_up_(ctx, inp);
  return query_up_(ctx,
                   (*query_norm_)(ctx, columns_over(ctx, latents, Axis::y, 0, sizes_.query_rank)));
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
