#include "axonn/compute/ops/cpu/attention/invariant_cached_attention.h"

#include <algorithm>
#include <cmath>

#include <omp.h>

#include "axonn/compute/ops/cpu/attention/attention_blocks.h"
#include "axonn/compute/ops/cpu/attention/running_softmax.h"
#include "axonn/compute/ops/cpu/dequantize.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::cpu {

namespace {

/// Query heads of a key-value head that are computed together.
constexpr int kHeads = kLanes;

using Workspace = SoftmaxWorkspace<kHeads>;

/// One thread's memory beside that: keys and values of a block, (kBlock, D) each.
constexpr std::int64_t ring_count(int width) { return 2 * kBlock * width; }

/// `count` entries of a slot of a key-value head, from that of `position`, as rows of a matrix:
/// where they lie, or copied to `memory` where they go beyond the last entry or are codes.
template <typename T>
View entries_of(const CachedAttention& args, const View& cached, std::int64_t first,
                std::int64_t position, int count, T* memory) {
  const std::int64_t entry = position % args.entries, D = args.head_dim;
  const bool codes = cached.dtype == DType::u8;
  if (!codes && entry + count <= args.entries) return cached.row_range(first + entry, count);
  for (int i = 0; i < count; ++i) {
    const std::int64_t at = first + (position + i) % args.entries;
    if (codes)
      dequantize_heads(address<const std::uint8_t>(cached, at), 1, D, memory + i * D);
    else
      std::copy_n(address<const T>(cached, at), D, memory + i * D);
  }
  return {memory, args.q.dtype, count, D, D};
}

/// The query heads of one row for one key-value head, to the bit as in attention().
template <typename T>
void invariant_task(const CachedAttention& args, std::int64_t row, std::int64_t kv_head,
                    const Workspace& work, T* ring) {
  using Ops = Operands<T>;
  const typename Ops::Instructions instructions;
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
    Ops::pack(work.k, width, q, {part * kHeads, 0, heads_in(part), D}, kHeads);
    transpose<kHeads>(work.qt + part * kHeads * width, work.k, width / Ops::kPack, words);
  }
  work.begin(width, parts);
  const std::int64_t begin = first_key(args, at);
  for (std::int64_t key = begin / kBlock * kBlock; slot >= 0 && key <= at; key += kBlock) {
    const int keys = static_cast<int>(std::min<std::int64_t>(kBlock, at + 1 - key));
    const Block block{0, 0, keys, D};
    const Left k =
        Ops::left(work.k, width, entries_of<T>(args, args.keys, first, key, keys, ring), block);
    Ops::pack(work.v, width, entries_of<T>(args, args.values, first, key, keys, ring + kBlock * D),
              block);
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
    const std::int64_t softmax = Workspace::count(width, parts), each = softmax + ring_count(width);
    float* const memory = scratch.take<float>(each * threads);
#pragma omp parallel for num_threads(few ? 1 : threads) schedule(dynamic)
    for (std::int64_t i = 0; i < args.q.rows * args.kv_heads; ++i) {
      float* const mine = memory + each * omp_get_thread_num();
      invariant_task<T>(args, i / args.kv_heads, i % args.kv_heads, {mine, width, parts},
                        reinterpret_cast<T*>(mine + softmax));
    }
  });
}

}  // namespace axonn::cpu
