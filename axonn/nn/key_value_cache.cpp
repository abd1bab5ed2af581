#include "axonn/nn/key_value_cache.h"

#include <algorithm>
#include <map>

#include "axonn/base/check.h"

namespace axonn {

void KeyValueCache::begin_pass(const Context& ctx, std::span<const std::int32_t> slots,
                               std::span<const std::int32_t> positions, Reads reads) {
  AXONN_CHECK(slots.size() == positions.size() && options_.entries > 0,
              "KeyValueCache: wanted as many slots as positions and at least one entry, got ",
              slots.size(), " slots, ", positions.size(), " positions and ", options_.entries,
              " entries");
  std::map<std::int32_t, std::int32_t> last;
  for (std::size_t r = 0; r < slots.size(); ++r) {
    AXONN_CHECK(slots[r] < options_.slots, "KeyValueCache: slot ", slots[r], ", wanted less than ",
                options_.slots);
    if (slots[r] < 0) continue;
    auto& most = last[slots[r]];
    most = std::max(most, positions[r]);
  }
  std::vector<std::int32_t> kept(slots.begin(), slots.end());
  for (std::size_t r = 0; r < kept.size(); ++r)
    if (kept[r] >= 0 && positions[r] + options_.entries <= last[kept[r]]) kept[r] = -1;
  const auto on_device = [&](std::span<const std::int32_t> host) {
    Tensor tensor = ctx.empty(1, std::ssize(host), DType::i32);
    ctx.device().copy_from_host(tensor.view().data, host.data(), tensor.bytes());
    return tensor;
  };
  slots_ = on_device(slots);
  kept_slots_ = on_device(kept);
  reads_ = reads;
  next_ = 0;
}

KeyValueCache::Layer& KeyValueCache::next_layer(const Context& ctx, const LocalHeads& at) {
  if (next_ == layers_.size()) {
    const std::int64_t rows = options_.slots * at.room * options_.entries;
    layers_.push_back({ctx.empty(rows, at.dim, ctx.dtype), ctx.empty(rows, at.dim, ctx.dtype)});
  }
  return layers_[next_++];
}

bool KeyValueCache::attend(const Context& ctx, const LocalHeads& at, const Chunk& qkv,
                           const View& out) {
  AXONN_CHECK(
      !ctx.tape && qkv.value.rows() == slots_.cols(), "KeyValueCache: qkv ", qkv.value.raw_view(),
      ", wanted all ", slots_.cols(),
      " rows of the pass and no tape; set RunSettings::sequence_parallel to false, chunks to 1");
  const Layer& layer = next_layer(ctx, at);
  const View all = qkv.value.view(), positions = qkv.rows.position.view();
  const auto keep = [&](const Tensor& kept, const View& inp) {
    ctx.backend.keep_heads({.kept = kept.view(),
                            .inp = inp,
                            .slots = kept_slots_.view(),
                            .positions = positions,
                            .entries = options_.entries});
  };
  keep(layer.keys, at.k(all));
  keep(layer.values, at.v(all));
  if (reads_ == Reads::own_rows) return false;
  ctx.backend.cached_attention({.q = at.q(all),
                                .keys = layer.keys.view(),
                                .values = layer.values.view(),
                                .out = out,
                                .slots = slots_.view(),
                                .positions = positions,
                                .entries = options_.entries,
                                .longest = qkv.rows.most_positions(),
                                .heads = at.heads,
                                .kv_heads = at.room,
                                .head_dim = at.dim,
                                .group = at.group,
                                .first_query = at.first_query,
                                .window = at.window,
                                .scale = at.scale()});
  return true;
}

std::int64_t KeyValueCache::elements(const Heads& heads, const Grid& grid) {
  const int x = grid.extent(Axis::x), y = grid.extent(Axis::y);
  const int ways = heads.divide_over_y(grid) ? x * y : x;
  return 2 * shared_room(heads.kv_heads, heads.heads, ways) * heads.head_dim;
}

}  // namespace axonn
