#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/cuda/matmul/products.h"
#include "axonn/ops/rowwise/arithmetic.h"
#include "axonn/ops/rowwise/dropout.h"
#include "axonn/ops/rowwise/elementwise.h"
#include "axonn/ops/rowwise/keep_heads.h"
#include "axonn/ops/rowwise/rotary.h"
#include "axonn/ops/rowwise/swiglu.h"

namespace axonn::cuda {

namespace {

/// out[row] += bias.
template <typename Out, typename B>
struct AddBias {
  Matrix<Out> out;  // (R, C)
  const B* bias;    // (C)

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    Out* y = out.row(tile.row) + tile.begin;
    team.map(y, tile.count, rowwise::Plus{}, y, bias + tile.begin);
  }
};

}  // namespace

__global__ void add_rows(float* out, const float* partial, std::int64_t blocks, std::int64_t C) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= C) return;
  float sum = out[c];
#pragma unroll 8
  for (std::int64_t b = 0; b < blocks; ++b) sum += partial[b * C + c];
  out[c] = sum;
}

void add_bias(Stream& stream, const View& out, const View& bias) {
  with_type(out.dtype, [&]<typename Out>(Out) {
    with_type(bias.dtype, [&]<typename B>(B) {
      launch_tiles(handle_of(stream), out.rows, out.cols, kTile,
                   AddBias<Out, B>{out, bias.as<const B>()});
    });
  });
}

}  // namespace axonn::cuda

namespace axonn::ops {

template void Gelu::run(cuda::Launch) const;
template void GeluBackward::run(cuda::Launch) const;
template void Add::run(cuda::Launch) const;
template void Activation::run(cuda::Launch) const;
template void ActivationBackward::run(cuda::Launch) const;
template void Multiply::run(cuda::Launch) const;
template void Scale::run(cuda::Launch) const;
template void Cast::run(cuda::Launch) const;
template void ColumnSum::run(cuda::Launch) const;
template void Dropout::run(cuda::Launch) const;
template void RotaryEmbedding::run(cuda::Launch) const;
template void KeepHeads::run(cuda::Launch) const;
template void Swiglu::run(cuda::Launch) const;
template void SwigluBackward::run(cuda::Launch) const;

}  // namespace axonn::ops
