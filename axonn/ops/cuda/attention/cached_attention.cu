// Attention of a new token to the cached keys and values of its sequence, one block per row and
// head. The block goes over the keys in stretches and carries a maximum, a sum and an unnormalised
// result from one to the next.
//
// Bound by memory: 2 · D · sizeof(T) bytes for each query head and position seen.
#include <cmath>
#include <cstdint>

#include "axonn/base/check.h"
#include "axonn/ops/cuda/cuda_backend.cuh"
#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/operand_checks.h"
#include "axonn/ops/rowwise/math.h"

namespace axonn::cuda {

namespace {

constexpr int kStretch = 256;     // keys of a stretch: their scores are in shared memory
constexpr int kMostWidth = 1024;  // of a head: its result is in shared memory

template <typename T>
struct CachedHead {
  Matrix<const T> q;
  const T *keys, *values;  // (slots · k · entries, D)
  Matrix<T> out;
  const std::int32_t *slots, *positions;
  std::int64_t entries, kv_heads, group, first_query, window;
  int heads, D;
  float scale;
};

template <typename T>
// Two blocks at once, see kAtOnce.
__global__ void __launch_bounds__(kMostThreads, 2) attend_to_cache(const CachedHead<T> args) {
  AXONN_SHARED(scores, float[kStretch]);
  AXONN_SHARED(sums, float[kMostWidth]);
  const Team team;
  const std::int64_t row = blockIdx.x / args.heads, slot = args.slots[row];
  const int head = static_cast<int>(blockIdx.x % args.heads), D = args.D;
  T* out = args.out.row(row) + head * D;
  if (slot < 0) return team.map(out, D, [] { return 0.0f; });
  const T* query = args.q.row(row) + head * D;
  const std::int64_t kv_head = (args.first_query + head) / args.group,
                     first = (slot * args.kv_heads + kv_head) * args.entries,
                     end = args.positions[row] + 1,
                     begin = args.window > 0 && end > args.window ? end - args.window : 0;
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp;
  float most = -INFINITY, total = 0;
  team.map(sums, D, [] { return 0.0f; });
  for (std::int64_t key = begin; key < end; key += kStretch) {
    const int count = static_cast<int>(end - key < kStretch ? end - key : kStretch);
    for (int i = warp; i < count; i += warps) {  // one key per warp
      const T* k = args.keys + (first + (key + i) % args.entries) * D;
      float dot = 0;
      for (int c = lane; c < D; c += kWarp) dot += get(query[c]) * get(k[c]);
      for (int mask = kWarp / 2; mask > 0; mask /= 2) dot += shuffle_xor(dot, mask);
      if (lane == 0) scores[i] = dot * args.scale;
    }
    __syncthreads();
    const float part = team.max(count, scores), before = most;
    most = part > most ? part : most;
    const float rescale = rowwise::exponential(before - most);
    total = total * rescale +
            team.sum(
                count, [=](float x) { return rowwise::exponential(x - most); }, scores);
    for (int c = static_cast<int>(threadIdx.x); c < D; c += static_cast<int>(blockDim.x)) {
      float sum = sums[c] * rescale;
      for (int i = 0; i < count; ++i)
        sum += rowwise::exponential(scores[i] - most) *
               get(args.values[(first + (key + i) % args.entries) * D + c]);
      sums[c] = sum;
    }
    __syncthreads();  // before scores are written again
  }
  for (int c = static_cast<int>(threadIdx.x); c < D; c += static_cast<int>(blockDim.x))
    put(out[c], sums[c] / total);
}

}  // namespace

void CudaBackend::cached_attention(const CachedAttention& args) {
  check_cached_attention(args);
  AXONN_CHECK(args.head_dim <= kMostWidth, "cached_attention: head_dim is ", args.head_dim,
              ", want at most ", kMostWidth, " on a GPU");
  if (args.q.count() == 0) return;
  with_type(args.q.dtype, [&]<typename T>(T) {
    launch_kernel(
        stream(), grid_of(args.q.rows * args.heads), 256, attend_to_cache<T>,
        CachedHead<T>{args.q, args.keys.as<const T>(), args.values.as<const T>(), args.out,
                      args.slots.as<const std::int32_t>(), args.positions.as<const std::int32_t>(),
                      args.entries, args.kv_heads, args.group, args.first_query, args.window,
                      static_cast<int>(args.heads), static_cast<int>(args.head_dim), args.scale});
  });
}

}  // namespace axonn::cuda
