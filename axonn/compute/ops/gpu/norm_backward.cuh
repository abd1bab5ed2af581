#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "axonn/compute/ops/gpu/launch.cuh"
#include "axonn/compute/ops/rowwise/norm.h"

namespace axonn::cuda {

/// What a thread keeps of a row: packs of its operands, those of C elements that are its own.
template <typename T, int packs>
struct NormRow {
  Pack<T, kPack> d[packs], x[packs], residual[packs];
  float mean, rstd;
};

/// The gradients of a norm, in one pass: a block has `each` rows, and keeps the sums down its
/// columns in registers. A row has as few warps as can keep it: a warp alone needs no barrier, and
/// the other warps of a block have other rows; if it has more, the block has one row at a time.
///
/// Bound by memory: 4 · R · C · sizeof(T) bytes, the residual included.
template <typename T, typename W, int packs>
class NormGradients {
 public:
  __device__ explicit NormGradients(const rowwise::NormBackwardRows<T, W>& args, int across)
      : args_(args),
        thread_(static_cast<int>(threadIdx.x) % across),
        group_(static_cast<int>(threadIdx.x) / across),
        across_(across),
        groups_(static_cast<int>(blockDim.x) / across) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      if (has(p)) weight_[p] = load_pack<kPack>(args_.weight + column(p));
#pragma unroll
      for (int j = 0; j < kPack; ++j) of_weight_[p].value[j] = of_bias_[p].value[j] = 0;
    }
  }

  __device__ void rows(std::int64_t begin, std::int64_t end) {
    int turn = 0;
    for (std::int64_t at = begin + group_; at < end; at += groups_, turn ^= 1) {
      NormRow<T, packs> row;
      load(row, at);
      add(row, at, row_sums(row, turn));
    }
  }

  /// Stores the sums of the block's rows at partial[i], the groups' in their order.
  __device__ void store(float* of_weight, float* of_bias) const {
    AXONN_SHARED(shared, float[2 * kWarp * NormShape::kPacks * kPack]);  // of rows of one warp
    float* const sums[] = {groups_ == 1 ? of_weight : shared,
                           groups_ == 1 ? of_bias : shared + args_.C};
    for (int g = 0; g < groups_; ++g) {
      if (group_ == g)
#pragma unroll
        for (int p = 0; p < packs; ++p) {
          if (!has(p)) continue;
          put_sums(sums[0] + column(p), of_weight_[p], g > 0);
          if (of_bias) put_sums(sums[1] + column(p), of_bias_[p], g > 0);
        }
      __syncthreads();
    }
    if (groups_ == 1) return;
    for (int c = static_cast<int>(threadIdx.x); c < args_.C; c += static_cast<int>(blockDim.x)) {
      of_weight[c] = sums[0][c];
      if (of_bias) of_bias[c] = sums[1][c];
    }
  }

 private:
  __device__ int column(int p) const { return (p * across_ + thread_) * kPack; }
  __device__ bool has(int p) const { return column(p) < args_.C; }

  __device__ void load(NormRow<T, packs>& row, std::int64_t at) const {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      if (!has(p)) continue;
      row.d[p] = load_pack<kPack>(args_.d_out.row(at) + column(p));
      row.x[p] = load_pack<kPack>(args_.inp.row(at) + column(p));
      if (args_.residual.data)
        row.residual[p] = load_pack<kPack>(args_.residual.row(at) + column(p));
    }
    row.mean = args_.stats.row(at)[0];
    row.rstd = args_.stats.row(at)[1];
  }

  /// Sums over the row of g and g · (x - mean), g = d_out · weight. All threads of the row call it,
  /// with turns of 0 and 1: what a turn wrote is read until the next.
  __device__ rowwise::Pair<float> row_sums(const NormRow<T, packs>& row, int turn) const {
    AXONN_SHARED(parts, rowwise::Pair<float>[2][NormShape::kThreads / kWarp]);
    float a = 0, b = 0;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      if (!has(p)) continue;
      const Values<kPack> d(row.d[p]), x(row.x[p]), w(weight_[p]);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        const float g = d.value[j] * w.value[j];
        a += g;
        b += g * (x.value[j] - row.mean);
      }
    }
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      a += shuffle_xor(a, mask);
      b += shuffle_xor(b, mask);
    }
    const int warps = across_ / kWarp;
    if (warps == 1) return {a, b};
    if (thread_ % kWarp == 0) parts[turn][thread_ / kWarp] = {a, b};
    __syncthreads();
    rowwise::Pair<float> total = parts[turn][0];
    for (int w = 1; w < warps; ++w) {
      total.first += parts[turn][w].first;
      total.second += parts[turn][w].second;
    }
    return total;
  }

  /// Stores a row of d_inp, and adds its terms to the sums.
  __device__ void add(const NormRow<T, packs>& row, std::int64_t at, rowwise::Pair<float> sums) {
    const float width = static_cast<float>(args_.C),
                g = args_.about_zero ? 0.0f : sums.first / width,
                slope = row.rstd * (sums.second * row.rstd) / width;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      if (!has(p)) continue;
      const Values<kPack> d(row.d[p]), x(row.x[p]), w(weight_[p]);
      Values<kPack> out;
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        const float about = x.value[j] - row.mean;
        out.value[j] = row.rstd * (d.value[j] * w.value[j] - (about * slope + g));
        of_weight_[p].value[j] += d.value[j] * (about * row.rstd);
        of_bias_[p].value[j] += d.value[j];
      }
      if (args_.residual.data) {
        const Values<kPack> residual(row.residual[p]);
#pragma unroll
        for (int j = 0; j < kPack; ++j) out.value[j] += residual.value[j];
      }
      out.store(args_.d_inp.row(at) + column(p), Whole<kPack>{});
    }
  }

  __device__ static void put_sums(float* to, const Values<kPack>& sums, bool adds) {
#pragma unroll
    for (int j = 0; j < kPack; ++j) to[j] = adds ? to[j] + sums.value[j] : sums.value[j];
  }

  const rowwise::NormBackwardRows<T, W>& args_;
  int thread_, group_, across_, groups_;
  Pack<W, kPack> weight_[packs];
  Values<kPack> of_weight_[packs], of_bias_[packs];
};

template <typename T, typename W, int packs>
__global__ void __launch_bounds__(NormShape::kThreads, 1)
    norm_backward(const rowwise::NormBackwardRows<T, W> args, float* partial, int across,
                  std::int64_t each) {
  const std::int64_t block = blockIdx.x, begin = block * each,
                     end = begin + each < args.R ? begin + each : args.R;
  NormGradients<T, W, packs> gradients(args, across);
  gradients.rows(begin, end);
  if (!args.d_weight) return;
  float* const of_bias = partial + (static_cast<std::int64_t>(gridDim.x) + block) * args.C;
  gradients.store(partial + block * args.C, args.d_bias ? of_bias : nullptr);
}

template <typename T, typename W>
bool Launch::norm_backward(const rowwise::NormBackwardRows<T, W>& rows) const {
  const NormShape shape = NormShape::of(rows.R, rows.C);
  const auto whole = [](const auto&... matrix) {
    return ((reinterpret_cast<std::uintptr_t>(matrix.data) % alignof(Pack<T, kPack>) == 0 &&
             matrix.template apart<kPack>()) &&
            ...);
  };
  const bool aligned = reinterpret_cast<std::uintptr_t>(rows.weight) % alignof(Pack<W, kPack>) == 0;
  if (shape.packs == 0 || !aligned || !whole(rows.d_inp, rows.d_out, rows.inp) ||
      (rows.residual.data && !whole(rows.residual)))
    return false;
  const std::int64_t sums = shape.blocks * rows.C;
  float* const partial =
      rows.d_weight ? scratch.take<float>(sums * (rows.d_bias ? 2 : 1)) : nullptr;
  const int across = static_cast<int>(tiles_of(shape.lanes, kWarp)) * kWarp,
            groups = across == kWarp ? NormShape::kRows : 1;
  const auto launch = [&](auto kernel) {
    launch_kernel(stream, grid_of(shape.blocks), across * groups, kernel, rows, partial, across,
                  shape.each);
  };
  switch (shape.packs) {
    case 1:
      launch(cuda::norm_backward<T, W, 1>);
      break;
    case 2:
      launch(cuda::norm_backward<T, W, 2>);
      break;
    case 3:
      launch(cuda::norm_backward<T, W, 3>);
      break;
    default:
      launch(cuda::norm_backward<T, W, 4>);
  }
  if (rows.d_bias)
    launch_add_rows<2>(
        stream, {{rows.d_weight, rows.d_bias}, {partial, partial + sums}, shape.blocks, rows.C});
  else if (rows.d_weight)
    launch_add_rows<1>(stream, {{rows.d_weight}, {partial}, shape.blocks, rows.C});
  return true;
}

}  // namespace axonn::cuda
