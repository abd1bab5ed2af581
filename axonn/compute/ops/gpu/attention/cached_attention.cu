// Attention of a new token to the cached keys and values of its sequence. A block computes one
// stretch of the keys for one row and head: a maximum, a sum and an unnormalised result. A second
// kernel combines the stretches of a row and head in their order. Stretches have the same length
// whatever the other rows and the GPU are, and so the bits of a row depend on nothing else.
//
// Bound by memory: 2 · D · sizeof(T) bytes for each query head and position seen. Query heads of a
// group read the same keys, at about the same time.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "axonn/compute/ops/gpu/cuda_backend.cuh"
#include "axonn/compute/ops/gpu/launch.cuh"
#include "axonn/compute/ops/operand_checks.h"
#include "axonn/compute/ops/rowwise/elementwise.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/foundation/base/check.h"

namespace axonn::cuda {

namespace {

constexpr int kStretch = 256;     // keys of a stretch, one per thread of its block
constexpr int kMostWidth = 1024;  // of a head: a pack for each of half the threads
/// Partial results of the rows that one launch computes: they stay in the L2 cache.
constexpr std::int64_t kPartBytes = std::int64_t{16} << 20;

template <typename T>
struct CachedHead {
  Matrix<const T> q;
  const T *keys, *values;  // (slots · k · entries, D)
  Matrix<T> out;
  Matrix<float> stats;  // (R, h) or null
  const std::int32_t *slots, *positions;
  std::int64_t entries, kv_heads, group, first_query, window;
  bool chunks;
  std::int64_t first_row;  // of the launch
  int heads, D, stretches;
  float* parts;  // (rows · heads · stretches, 2 + D): maximum, sum, result; null: one stretch

  /// The keys that a row of one head sees, by their positions.
  struct Seen {
    std::int64_t begin, end, first;  // first: row of keys and values of position 0
  };
  __device__ Seen seen(std::int64_t row, int head) const {
    const std::int64_t slot = slots[row],
                       kv_head = rowwise::row_quotient(first_query + head, group),
                       end = std::int64_t{positions[row]} + 1;
    std::int64_t begin = window > 0 && end > window ? end - window : 0;
    if (chunks) begin = end - 1 - rowwise::row_remainder(end - 1, window);
    return {begin, slot < 0 ? 0 : end, (slot * kv_heads + kv_head) * entries};
  }
  __device__ void note(std::int64_t row, int head, float sum) const {
    if (stats.data) stats.row(row)[head] = sum;
  }
};

/// The part of a dot product that `n` elements make; those from n on are zero.
template <typename T>
__device__ float dot_of(const Values<kPack>& a, const T* b, int n) {
  const auto other = load_values<kPack>(b, n);
  float dot = 0;
#pragma unroll
  for (int j = 0; j < kPack; ++j) dot += a.value[j] * other.value[j];
  return dot;
}

/// scores[i] = query · key i, for the keys of a stretch. Lanes of a warp share a key if one pack
/// per lane would be more than its width.
template <typename T>
__device__ void score(float* scores, const T* query, int D, int count, auto key) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  int lanes = 1;  // of a key
  while (lanes < kWarp && lanes * kPack < D) lanes *= 2;
  const int begin = thread % lanes * kPack, at_once = threads / lanes;
  const auto near = load_values<kPack>(query + begin, D - begin);
  // All lanes of a warp make the same number of rounds, because they exchange values.
  for (int base = 0; base < count; base += at_once) {
    const int i = base + thread / lanes;
    float dot = 0;
    if (i < count) {
      dot = dot_of(near, key(i) + begin, D - begin);
      for (int c = begin + lanes * kPack; c < D; c += lanes * kPack)
        dot += dot_of(load_values<kPack>(query + c, D - c), key(i) + c, D - c);
    }
    for (int mask = lanes / 2; mask > 0; mask /= 2) dot += shuffle_xor(dot, mask);
    if (i < count && begin == 0) scores[i] = dot;
  }
}

/// Returns sums (members, packs · kPack) of weight · value. Each member of the threads that have
/// the same columns adds some of the keys, in their order.
template <typename T>
__device__ void weigh(float* sums, const float* weights, int D, int count, int packs, int members,
                      auto value) {
  const int member = static_cast<int>(threadIdx.x) / packs,
            begin = static_cast<int>(threadIdx.x) % packs * kPack;
  if (member >= members) return;
  Values<kPack> sum;
#pragma unroll
  for (int j = 0; j < kPack; ++j) sum.value[j] = 0;
  for (int i = member; i < count; i += members) {
    const auto v = load_values<kPack>(value(i) + begin, D - begin);
#pragma unroll
    for (int j = 0; j < kPack; ++j) sum.value[j] += weights[i] * v.value[j];
  }
  sum.store(sums + (member * packs * kPack + begin), Whole<kPack>{});
}

template <typename T>
__global__ void __launch_bounds__(kStretch)
    attend_to_stretch(const CachedHead<T> args, float scale, float cap) {
  AXONN_SHARED(weights, float[kStretch]);
  AXONN_SHARED(sums, Pack<float, 4>[kStretch * kPack / 4]);
  const std::int64_t part = blockIdx.x, place = rowwise::row_quotient(part, args.stretches);
  const std::int64_t row = args.first_row + rowwise::row_quotient(place, args.heads);
  const int head = static_cast<int>(rowwise::row_remainder(place, args.heads)), D = args.D,
            stretch = static_cast<int>(rowwise::row_remainder(part, args.stretches)),
            thread = static_cast<int>(threadIdx.x);
  const auto seen = args.seen(row, head);
  const std::int64_t begin = seen.begin + std::int64_t{stretch} * kStretch;
  const int count = static_cast<int>(seen.end - begin < kStretch ? seen.end - begin : kStretch);
  T* out = args.out.row(row) + head * D;
  if (count <= 0) {  // the same for the whole block
    if (!args.parts) {
      for (int c = thread; c < D; c += kStretch) put(out[c], 0.0f);
      if (thread == 0) args.note(row, head, -INFINITY);
    }
    return;
  }
  const std::int64_t oldest =
      rowwise::row_remainder(begin, args.entries);  // there are no more keys than entries
  const auto entry = [&](const T* of, int i) {
    const std::int64_t at = oldest + i;
    return of + (seen.first + (at < args.entries ? at : at - args.entries)) * D;
  };
  score(weights, args.q.row(row) + head * D, D, count, [&](int i) { return entry(args.keys, i); });
  __syncthreads();
  float x = thread < count ? weights[thread] * scale : -INFINITY;
  if (cap > 0 && thread < count) x = rowwise::Capped{cap}(x);
  const float most = block_reduce(x, [](float a, float b) { return a > b ? a : b; });
  const float weight = thread < count ? rowwise::exponential(x - most) : 0.0f;
  const float total = block_sum(weight);
  weights[thread] = weight;
  __syncthreads();
  const int packs = (D + kPack - 1) / kPack, members = kStretch / packs;
  auto* sum = reinterpret_cast<float*>(sums);
  weigh<T>(sum, weights, D, count, packs, members, [&](int i) { return entry(args.values, i); });
  __syncthreads();
  float* kept = args.parts ? args.parts + part * (D + 2) : nullptr;
  for (int c = thread; c < D; c += kStretch) {
    float result = 0;
    for (int m = 0; m < members; ++m) result += sum[m * packs * kPack + c];
    if (kept)
      kept[2 + c] = result;
    else
      put(out[c], result / total);
  }
  if (thread != 0) return;
  if (!kept) return args.note(row, head, most + std::log(total));
  kept[0] = most;
  kept[1] = total;
}

/// Combines the stretches of one row and head.
template <typename T>
__global__ void __launch_bounds__(kStretch) combine_stretches(const CachedHead<T> args) {
  const std::int64_t place = blockIdx.x,
                     row = args.first_row + rowwise::row_quotient(place, args.heads);
  const int head = static_cast<int>(rowwise::row_remainder(place, args.heads)), D = args.D;
  const auto seen = args.seen(row, head);
  const int count = static_cast<int>((seen.end - seen.begin + kStretch - 1) / kStretch);
  const float* parts = args.parts + place * args.stretches * (D + 2);
  float most = -INFINITY;
  for (int s = 0; s < count; ++s) most = parts[s * (D + 2)] > most ? parts[s * (D + 2)] : most;
  for (int c = static_cast<int>(threadIdx.x); c < D; c += static_cast<int>(blockDim.x)) {
    float result = 0, total = 0;
    for (int s = 0; s < count; ++s) {
      const float* part = parts + std::int64_t{s} * (D + 2);
      const float rescale = rowwise::exponential(part[0] - most);
      total += part[1] * rescale;
      result += part[2 + c] * rescale;
    }
    put(args.out.row(row)[head * D + c], count > 0 ? result / total : 0.0f);
    if (c == 0) args.note(row, head, most + std::log(total));
  }
}

}  // namespace

void CudaBackend::cached_attention(const CachedAttention& args) {
  check_cached_attention(args);
  AXONN_CHECK(args.keys.dtype == args.q.dtype, "cached_attention: keys are ", args.keys, ", want ",
              name_of(args.q.dtype), " on a GPU");
  AXONN_CHECK(args.head_dim <= kMostWidth, "cached_attention: head_dim is ", args.head_dim,
              ", want at most ", kMostWidth, " on a GPU");
  if (args.q.count() == 0) return;
  const std::int64_t most = args.window > 0 ? std::min(args.window, args.longest) : args.longest,
                     stretches = tiles_of(std::max<std::int64_t>(most, 1), kStretch);
  const std::int64_t of_row = args.heads * stretches * (args.head_dim + 2);
  Scratch scratch(arena_);
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(kPartBytes / static_cast<std::int64_t>(sizeof(float)) / of_row, 1);
  with_type(args.q.dtype, [&]<typename T>(T) {
    CachedHead<T> head{.q = args.q,
                       .keys = address<const T>(args.keys),
                       .values = address<const T>(args.values),
                       .out = args.out,
                       .stats = args.stats,
                       .slots = address<const std::int32_t>(args.slots),
                       .positions = address<const std::int32_t>(args.positions),
                       .entries = args.entries,
                       .kv_heads = args.kv_heads,
                       .group = args.group,
                       .first_query = args.first_query,
                       .window = args.window,
                       .chunks = args.chunks,
                       .first_row = 0,
                       .heads = static_cast<int>(args.heads),
                       .D = static_cast<int>(args.head_dim),
                       .stretches = static_cast<int>(stretches),
                       .parts = nullptr};
    if (stretches > 1)
      head.parts = scratch.take<float>(std::min(rows_at_once, args.q.rows) * of_row);
    for (; head.first_row < args.q.rows; head.first_row += rows_at_once) {
      const std::int64_t rows = std::min(rows_at_once, args.q.rows - head.first_row);
      launch_kernel(stream(), grid_of(rows * args.heads * stretches), kStretch,
                    attend_to_stretch<T>, head, args.scale, args.cap);
      if (stretches > 1)
        launch_kernel(stream(), grid_of(rows * args.heads),
                      threads_for(std::min<std::int64_t>(args.head_dim, kStretch), 1),
                      combine_stretches<T>, head);
    }
  });
}

}  // namespace axonn::cuda
