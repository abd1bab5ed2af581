#include "axonn/network/nn/attention/attention.h"

#include <algorithm>
#include <map>
#include <optional>

#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/attention/branch_attention.h"
#include "axonn/network/nn/attention/shared_attention.h"
#include "axonn/network/nn/attention/sinks.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

namespace {

Attention forward_args(const Context& ctx, const LocalHeads& at, const Chunk& qkv,
                       const Tensor& out, const Tensor& stats, const Tensor& starts) {
  const View all = qkv.value.view();
  return {.q = at.q(all),
          .k = at.k(all),
          .v = at.v(all),
          .out = out.view(),
          .stats = stats.view(),
          .positions = qkv.rows.positions,
          .heads = at.heads,
          .head_dim = at.dim,
          .group = at.group,
          .first_query = at.first_query,
          .window = at.window,
          .scale = at.scale,
          .cap = at.cap,
          .starts = of_rows_here(ctx, qkv, starts)};
}

const Heads& checked(const Heads& h) {
  AXONN_CHECK(h.heads > 0 && h.kv_heads > 0 && h.head_dim > 0 && h.heads % h.kv_heads == 0,
              "attention: ", h.heads, " heads and ", h.kv_heads, " key-value heads of width ",
              h.head_dim, "; wanted positive numbers, of which the second divides the first");
  return h;
}

}  // namespace

LocalHeads::LocalHeads(const Context& ctx, const Heads& all, AxisSet over)
    : dim(checked(all).head_dim),
      window(all.window),
      cached_by(all.cached_by),
      chunks(all.chunks),
      scale(all.scale > 0 ? static_cast<float>(all.scale) : 1 / std::sqrt(static_cast<float>(dim))),
      cap(static_cast<float>(all.cap)) {
  if (all.base_head_dim > 0)
    scale *= std::sqrt(static_cast<float>(all.base_head_dim) / static_cast<float>(dim));
  int ways = ctx.grid.extent(Axis::x), at = ctx.grid.coord(Axis::x);
  if (over.has(Axis::y)) {
    ways *= ctx.grid.extent(Axis::y);
    at = at * ctx.grid.extent(Axis::y) + ctx.grid.coord(Axis::y);
  }
  heads = all.query_heads(ways);
  group = all.heads / all.kv_heads;
  room = all.makes_keys() ? shared_room(all.kv_heads, all.heads, ways) : 0;
  first_query = at * heads % group;
  real_heads = std::clamp<std::int64_t>(all.heads - at * heads, 0, heads);
  real_room = all.makes_keys() ? shared_units(all.kv_heads, all.heads, ways, at).count : 0;
}

std::int64_t Heads::qkv_width() const {
  std::int64_t width = 0;
  for (const HeadFeatures& of : made()) width += of.width * (of.of_keys ? kv_heads : heads);
  return width;
}

std::vector<Segment> Heads::qkv_segments() const {
  checked(*this);
  std::vector<Segment> segments;
  for (const auto& [width, of_keys] : made()) {
    Segment segment{.rows = heads * width, .unit = width, .kind = Segment::Kind::padded};
    if (of_keys)
      segment = {
          .rows = kv_heads * width, .unit = width, .kind = Segment::Kind::shared, .readers = heads};
    segments.push_back(segment);
  }
  return segments;
}

Runs Heads::qkv_runs(const Grid& grid) const {
  const int ways = grid.extent(Axis::x);
  Runs runs;
  for (const auto& [width, of_keys] : made())
    runs.push_back(width * (of_keys ? shared_room(kv_heads, heads, ways) : query_heads(ways)));
  return runs;
}

Cut Heads::cut_over_y(const Context& ctx, const Rows& rows) const {
  const int y = ctx.grid.extent(Axis::y);
  const bool even = divide_over_y(ctx.grid);
  if (ctx.find<KeyValueCache>()) return even && y > 1 ? Cut::columns : Cut::same;
  if (!ctx.scheduling().run.sequence_parallel || y == 1) return Cut::same;
  if (even) return Cut::columns;
  return row_cut(ctx, rows.sequences, Axis::y);
}

Chunk attention_chunk(const Context& ctx, const LocalHeads& at, const Chunk& qkv,
                      const Sinks* sinks, const AttentionKernels& kernels) {
  const auto make = [ctx, at, sinks, kernels](const Chunk& inp, const Tensor& stats) {
    Tensor out = ctx.empty(inp.value.rows(), at.heads * at.dim, ctx.dtype);
    const Tensor of_keys = sinks ? ctx.like(stats) : stats;
    kernels.forward(inp, out, of_keys);
    if (sinks) sinks->add(ctx, at, inp.placement, {out.view(), of_keys.view(), stats.view()});
    return out;
  };
  const Tensor stats = ctx.empty(qkv.value.rows(), at.heads, DType::f32);
  Chunk out = make_chunk(ctx, qkv, make(qkv, stats), qkv.placement);
  if (sinks && !sinks->frozen()) need_gradient(ctx, out);
  const SavedChunk kept(ctx, qkv);
  let_remake(ctx, out, Remade::attention, [kept, make, stats] { return make(kept.get(), stats); });
  const auto backward = [ctx, at, sinks, kernels, kept, stats,
                         of = saved(ctx, out)](const Tensor& d_out) {
    const Chunk inp = kept.get();
    Tensor d_qkv = ctx.like(inp.value);
    const Tensor made = of.get();
    if (sinks) sinks->backward(ctx, at, inp.placement, {d_out.view(), made.view(), stats.view()});
    if (!inp.gradient) return;
    kernels.backward(inp, made, stats, d_out, d_qkv);
    inp.gradient->add(ctx, std::move(d_qkv));
  };
  return with_backward(ctx, out, backward);
}

namespace {

/// Attention to cached keys; nothing unless there are some.
std::optional<Chunk> cached_chunk(const Context& ctx, const LocalHeads& at, const Chunk& qkv,
                                  const Sinks* sinks) {
  KeyValueCache* const cache = ctx.find<KeyValueCache>();
  if (!cache || cache->options().latents) return std::nullopt;
  const Tensor value = ctx.empty(qkv.value.rows(), at.heads * at.dim, ctx.dtype);
  Tensor stats;
  if (sinks) stats = ctx.empty(qkv.value.rows(), at.heads, DType::f32);
  if (!cache->attend(ctx, at, qkv, value.view(), stats.view())) return std::nullopt;
  if (sinks)
    sinks->add(ctx, at, qkv.placement, {value.view(), stats.view(), ctx.like(stats).view()});
  return make_chunk(ctx, qkv, value, qkv.placement);
}

/// The chunk with its keys and values as they are kept.
Chunk as_kept(const Context& ctx, const LocalHeads& at, const Chunk& qkv) {
  const KeyValueCache* const cache = ctx.find<KeyValueCache>();
  const KeptForm* const form = cache ? &cache->options().form : ctx.find<KeptForm>();
  if (!form || form->kind == Quantization::none) return qkv;
  AXONN_CHECK(!ctx.tape, "attention: keys and values that are kept as codes have no gradients");
  Chunk kept = qkv;
  kept.value = ctx.like(qkv.value);
  const View from = qkv.value.view(), to = kept.value.view();
  const std::int64_t first = at.heads * at.dim, count = 2 * at.room * at.dim;
  ctx.backend.run(ops::Cast{at.q(to), at.q(from)});
  ctx.backend.run(ops::RoundHeads{
      .out = to.col_range(first, count), .inp = from.col_range(first, count), .head_dim = at.dim});
  return kept;
}

}  // namespace

std::int64_t KeptForm::bytes(std::int64_t head_dim, DType dtype) const {
  return kind == Quantization::none ? head_dim * bytes_of(dtype) : HeadCodes::bytes(head_dim);
}

Var attention(const Context& context, const Var& qkv, const Heads& heads, const Sinks* sinks) {
  const auto forward = [heads, sinks](const Context& ctx, const Chunk& in) {
    const LocalHeads at(ctx, heads, in.placement.cols);
    AXONN_CHECK(in.placement.cols.has(Axis::x) && in.value.cols() == at.width(), "attention: qkv ",
                in.value.raw_view(), ", wanted ", at.width(), " columns over x: ", at.heads,
                " query and 2 x ", at.room, " key-value heads of ", at.dim);
    if (in.rows.share) return shared_attention(ctx, at, as_kept(ctx, at, in), sinks);
    if (auto out = cached_chunk(ctx, at, in, sinks)) return *std::move(out);
    const Chunk seen = as_kept(ctx, at, in);
    const auto kernel = [ctx, at](const Chunk& inp, const Tensor& out, const Tensor& stats) {
      const Tensor starts = first_seen(ctx, at, inp.rows);
      ctx.backend.attention(forward_args(ctx, at, inp, out, stats, starts));
    };
    const auto backward = [ctx, at](const Chunk& inp, const Tensor& out, const Tensor& stats,
                                    const Tensor& d_out, const Tensor& d_qkv) {
      const View d = d_qkv.view();
      const Tensor starts = first_seen(ctx, at, inp.rows);
      ctx.backend.attention_backward({.forward = forward_args(ctx, at, inp, out, stats, starts),
                                      .d_out = d_out.view(),
                                      .d_q = at.q(d),
                                      .d_k = at.k(d),
                                      .d_v = at.v(d)});
    };
    const AttentionKernels whole{kernel, backward};
    return attention_chunk(ctx, at, seen, sinks,
                           in.rows.branches.empty() ? whole : branch_kernels(ctx, whole));
  };
  return each_later(context, qkv, forward, {.reads_parameters = sinks != nullptr});
}

void KeyValueCache::begin_pass(const Context& ctx, std::span<const std::int32_t> slots,
                               std::span<const std::int32_t> positions, Reads reads) {
  AXONN_CHECK(slots.size() == positions.size() && options_.entries > 0,
              "KeyValueCache: wanted as many slots as positions and at least one entry, got ",
              slots.size(), " slots, ", positions.size(), " positions and ", options_.entries,
              " entries");
  AXONN_CHECK(!options_.latents || options_.form.kind == Quantization::none,
              "KeyValueCache: latents are kept in the compute type alone");
  std::map<std::int32_t, std::int32_t> last;
  for (std::size_t r = 0; r < slots.size(); ++r) {
    AXONN_CHECK(slots[r] < options_.slots, "KeyValueCache: slot ", slots[r], ", wanted less than ",
                options_.slots);
    if (slots[r] < 0) continue;
    auto& most = last[slots[r]];
    most = std::max(most, positions[r]);
  }
  /// The slots of rows that are among the last `most` of theirs.
  const auto latest = [&](std::int64_t most) {
    std::vector<std::int32_t> rows(slots.begin(), slots.end());
    for (std::size_t r = 0; r < rows.size(); ++r)
      if (rows[r] >= 0 && positions[r] + most <= last[rows[r]]) rows[r] = -1;
    return ctx.on_device(rows);
  };
  slots_ = {ctx.on_device(slots), latest(options_.entries), latest(options_.inputs)};
  reads_ = reads;
  next_ = next_recurrent_ = 0;
}

const KeyValueCache::Recurrent& KeyValueCache::recurrent(const Context& ctx, std::int64_t heads,
                                                         std::int64_t width,
                                                         std::int64_t channels) {
  if (next_recurrent_ == recurrent_.size())
    recurrent_.push_back({ctx.zeros(options_.slots * heads, width, DType::f32),
                          ctx.zeros(options_.slots * options_.inputs, channels, ctx.dtype)});
  return recurrent_[next_recurrent_++];
}

bool KeyValueCache::attend(const Context& ctx, const LocalHeads& at, const Chunk& qkv,
                           const View& out, const View& stats) {
  AXONN_CHECK(
      !ctx.tape && qkv.value.rows() == slots_.all.cols(), "KeyValueCache: qkv ",
      qkv.value.raw_view(), ", wanted all ", slots_.all.cols(),
      " rows of the pass and no tape; set RunSettings::sequence_parallel to false, chunks to 1");
  const bool shares = at.cached_by >= 0;
  if (!shares && next_ == layers_.size()) {
    const std::int64_t rows = options_.slots * at.room * options_.entries;
    const bool codes = options_.form.kind != Quantization::none;
    const Tensor keys = codes ? ctx.empty(rows, HeadCodes::bytes(at.dim), DType::u8)
                              : ctx.empty(rows, at.dim, ctx.dtype);
    layers_.push_back({keys, at.keys_are_values ? keys : ctx.like(keys)});
  }
  AXONN_CHECK(at.cached_by < static_cast<std::int64_t>(next_), "KeyValueCache: the keys of layer ",
              at.cached_by, " are not cached yet");
  const Layer& layer = layers_[shares ? static_cast<std::size_t>(at.cached_by) : next_++];
  const View all = qkv.value.view(), positions = qkv.rows.position.view();
  const auto keep = [&](const Tensor& kept, const View& inp) {
    ctx.backend.run(ops::KeepHeads{.kept = kept.view(),
                                   .inp = inp,
                                   .slots = slots_.kept.view(),
                                   .positions = positions,
                                   .entries = options_.entries,
                                   .head_dim = at.dim});
  };
  if (!shares) {
    keep(layer.keys, at.k(all));
    if (!at.keys_are_values) keep(layer.values, at.v(all));
  }
  if (reads_ == Reads::own_rows) return false;
  ctx.backend.cached_attention({.q = at.q(all),
                                .keys = layer.keys.view(),
                                .values = layer.values.view(),
                                .out = out,
                                .stats = stats,
                                .slots = slots_.all.view(),
                                .positions = positions,
                                .entries = options_.entries,
                                .longest = qkv.rows.most_positions(),
                                .heads = at.heads,
                                .kv_heads = at.room,
                                .head_dim = at.dim,
                                .group = at.group,
                                .first_query = at.first_query,
                                .window = at.window,
                                .chunks = at.chunks,
                                .scale = at.scale,
                                .cap = at.cap});
  return true;
}

void KeyValueCache::copy_slot(const Context& ctx, std::int32_t from, std::int32_t to,
                              std::int64_t positions) const {
  AXONN_CHECK(from >= 0 && to >= 0 && from < options_.slots && to < options_.slots,
              "KeyValueCache::copy_slot: slots ", from, " and ", to, ", wanted less than ",
              options_.slots);
  const auto copy = [&](const Tensor& all, std::int64_t heads, std::int64_t cols) {
    const std::int64_t rows = all.rows() / options_.slots;
    const auto in = [&](std::int32_t slot) {
      const Tensor mine = all.row_range(slot * rows, rows);
      return mine.reshape(heads, mine.count() / heads).col_range(0, cols).view();
    };
    const View target = in(to), source = in(from);
    if (all.dtype() != DType::u8) return ctx.backend.run(ops::Cast{target, source});
    for (std::int64_t head = 0; head < heads; ++head)
      ctx.backend.device().copy(address<std::uint8_t>(target, head),
                                address<std::uint8_t>(source, head), cols);
  };
  const std::int64_t held = std::min(positions, options_.entries);
  for (const Layer& layer : layers_)
    for (const Tensor* const all : {&layer.keys, &layer.values})
      copy(*all, all->rows() / (options_.slots * options_.entries), held * all->cols());
  for (const Recurrent& layer : recurrent_)
    for (const Tensor* const all : {&layer.states, &layer.inputs})
      copy(*all, 1, all->count() / options_.slots);
}

std::int64_t KeyValueCache::kept_heads(const Heads& heads, const Grid& grid) {
  checked(heads);
  const int x = grid.extent(Axis::x), y = grid.extent(Axis::y);
  const int ways = heads.divide_over_y(grid) ? x * y : x;
  return 2 * shared_room(heads.kv_heads, heads.heads, ways);
}

}  // namespace axonn
