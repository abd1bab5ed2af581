#include "axonn/compute/ops/cpu/attention/invariant_cached_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <omp.h>

#include "axonn/compute/ops/cpu/attention/attention_blocks.h"
#include "axonn/compute/ops/cpu/attention/running_softmax.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::cpu {

namespace {

/// Query heads of a key-value head that are computed together.
constexpr int kHeads = kLanes;

/// One thread's memory for a row and a key-value head.
template <typename T>
struct HeadsWorkspace {
  float *qt, *o, *m, *l;           // per kHeads heads: (D, kHeads), (kHeads, width), (kHeads) twice
  float *packed, *k, *v, *v_down;  // (kHeads, width), (kBlock, width) three times
  float *s, *p_down, *rescale;     // (kBlock, kHeads) twice, (kHeads)
  T* ring;                         // (2 · kBlock, D)

  static std::int64_t count(int width, std::int64_t parts) {
    return parts * kHeads * (2 * width + 2) + kHeads * width + 3 * kBlock * width +
           2 * kBlock * kHeads + kHeads + 2 * kBlock * width;
  }

  HeadsWorkspace(float* memory, int width, std::int64_t parts) {
    const auto take = [&](std::int64_t count) { return std::exchange(memory, memory + count); };
    qt = take(parts * kHeads * width);
    o = take(parts * kHeads * width);
    m = take(parts * kHeads);
    l = take(parts * kHeads);
    packed = take(kHeads * width);
    k = take(kBlock * width);
    v = take(kBlock * width);
    v_down = take(kBlock * width);
    s = take(kBlock * kHeads);
    p_down = take(kBlock * kHeads);
    rescale = take(kHeads);
    ring = reinterpret_cast<T*>(take(2 * kBlock * width));
  }
};

/// `count` entries of a slot of a key-value head, from that of `position`, as rows of a matrix:
/// where they lie, or copied to `memory` where they go beyond the last entry.
template <typename T>
View entries_of(const CachedAttention& args, const View& cached, std::int64_t first,
                std::int64_t position, int count, T* memory) {
  const std::int64_t entry = position % args.entries, D = args.head_dim;
  if (entry + count <= args.entries) return cached.row_range(first + entry, count);
  for (int i = 0; i < count; ++i)
    std::copy_n(address<const T>(cached, first + (position + i) % args.entries), D, memory + i * D);
  return {memory, cached.dtype, count, D, D};
}

/// The query heads of one row for one key-value head, to the bit as in attention().
template <typename T>
void invariant_task(const CachedAttention& args, std::int64_t row, std::int64_t kv_head,
                    const HeadsWorkspace<T>& work) {
  using Ops = Operands<T>;
  const int D = static_cast<int>(args.head_dim), width = round_up(D, 2 * kLanes);
  const int words = (D + Ops::kPack - 1) / Ops::kPack;
  const HeadRange heads = heads_of(args, kv_head);
  const int group = static_cast<int>(heads.end - heads.begin),
            parts = (group + kHeads - 1) / kHeads;
  const std::int64_t slot = address<std::int32_t>(args.slots)[row],
                     at = address<std::int32_t>(args.positions)[row],
                     first = (slot * args.kv_heads + kv_head) * args.entries;
  const View q{address<T>(args.q, row) + heads.begin * D, args.q.dtype, group, D, D},
      out{address<T>(args.out, row) + heads.begin * D, args.out.dtype, group, D, D};
  const auto heads_in = [&](int part) { return std::min(kHeads, group - part * kHeads); };
  for (int part = 0; part < parts; ++part) {
    Ops::pack(work.packed, width, q, {part * kHeads, 0, heads_in(part), D}, kHeads);
    transpose<kHeads>(work.qt + part * kHeads * width, work.packed, width / Ops::kPack, words);
  }
  std::fill_n(work.o, parts * kHeads * width, 0.0f);
  std::fill_n(work.l, parts * kHeads, 0.0f);
  std::fill_n(work.m, parts * kHeads, -std::numeric_limits<float>::infinity());
  std::int64_t begin = args.window > 0 ? std::max<std::int64_t>(0, at + 1 - args.window) : 0;
  if (args.chunks) begin = at / args.window * args.window;
  for (std::int64_t key = begin / kBlock * kBlock; slot >= 0 && key <= at; key += kBlock) {
    const int keys = static_cast<int>(std::min<std::int64_t>(kBlock, at + 1 - key));
    const Block block{0, 0, keys, D};
    const Left k = Ops::left(work.k, width,
                             entries_of<T>(args, args.keys, first, key, keys, work.ring), block);
    Ops::pack(work.v, width,
              entries_of<T>(args, args.values, first, key, keys, work.ring + kBlock * D), block);
    const float* v = Ops::down(work.v_down, work.v, width);
    for (int part = 0; part < parts; ++part) {
      scores<typename Ops::Product, kHeads>(work.s, k, work.qt + part * kHeads * width,
                                            {args.scale, args.cap}, {keys, kHeads, words}, false);
      if (key < begin) std::fill_n(work.s, (begin - key) * kHeads, kHidden);
      softmax_block<kHeads>(work.s, work.m + part * kHeads, work.l + part * kHeads, work.rescale,
                            keys, false);
      add_values<Ops, kHeads>(work.o + part * kHeads * width,
                              Ops::template down_of<kHeads>(work.p_down, work.s, keys), v,
                              work.rescale, {heads_in(part), width, keys}, false);
    }
  }
  for (int head = 0; head < group; ++head) {
    const float sum = work.l[head];
    unpack<T>(out, {head, 0, 1, D}, work.o + head * width, width, slot < 0 ? 0 : 1 / sum);
    if (args.stats.data)
      address<float>(args.stats, row)[heads.begin + head] = work.m[head] + std::log(sum);
  }
}

}  // namespace

void invariant_cached_attention(const CachedAttention& args, HostScratch& scratch, int threads) {
  const int width = round_up(static_cast<int>(args.head_dim), 2 * kLanes);
  const std::int64_t parts = (std::min(args.group, args.heads) + kHeads - 1) / kHeads;
  const bool few = args.q.rows * args.longest * args.heads * args.head_dim < kParallelElements;
  with_type(args.q.dtype, [&]<typename T>(T) {
    const std::int64_t each = HeadsWorkspace<T>::count(width, parts);
    float* const memory = scratch.take<float>(each * threads);
#pragma omp parallel for num_threads(few ? 1 : threads) schedule(dynamic)
    for (std::int64_t i = 0; i < args.q.rows * args.kv_heads; ++i)
      invariant_task<T>(args, i / args.kv_heads, i % args.kv_heads,
                        HeadsWorkspace<T>(memory + each * omp_get_thread_num(), width, parts));
  });
}

}  // namespace axonn::cpu
