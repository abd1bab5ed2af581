#include <algorithm>

#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/rowwise/embedding.h"

namespace axonn::cuda {

namespace {

/// d_table[ids[r] - first] += d_out[r], for each table row in the order of the rows r, without
/// atomics. There is one block per row; the block of the first row with an id adds all rows that
/// have this id.
///
/// Bound by memory, R · C · (sizeof(T) + 8) bytes, plus the search: at most R² comparisons
/// of ids, which stay in cache.
template <typename T>
__global__ void __launch_bounds__(kMostThreads)
    add_token_gradients(const rowwise::EmbeddingBackwardKernel<T> args) {
  const int row = static_cast<int>(blockIdx.x), R = static_cast<int>(args.R),
            thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const std::int32_t id = args.ids[row];
  if (id < args.first || id >= args.first + args.V) return;  // the whole block
  for (int end = row; end > 0; end -= threads) {  // nearest first: frequent tokens end early
    const int r = end - 1 - thread;
    if (__syncthreads_or(r >= 0 && args.ids[r] == id)) return;
  }
  const Team team;
  __shared__ Lanes found[kMostThreads / kWarp];
  float* y = args.d_table.row(id - args.first);
  for (int begin = row; begin < R; begin += threads) {
    const int r = begin + thread;
    const Lanes here = lanes_with(r < R && args.ids[r] == id);
    if (thread % kWarp == 0) found[thread / kWarp] = here;
    __syncthreads();
    for (int warp = 0; warp < threads / kWarp; ++warp)
      for (Lanes left = found[warp]; left != 0; left &= left - 1) {
        const int next = begin + warp * kWarp + lowest(left);
        team.map(
            y, args.C, [](float a, float b) { return a + b; }, y, args.d_out.row(next));
      }
    __syncthreads();  // before found is written again
  }
}

}  // namespace

void Launch::rows_by_id(const auto& kernel) const {
  if (kernel.R * kernel.C == 0) return;
  const int threads = std::max(threads_for(kernel.C, kPack), 4 * kWarp);  // they also search
  add_token_gradients<<<grid_of(kernel.R), threads, 0, stream>>>(kernel);
  check(cudaGetLastError());
}

}  // namespace axonn::cuda

namespace axonn::ops {

template void Embedding::run(cuda::Launch) const;
template void EmbeddingBackward::run(cuda::Launch) const;
template void PositionsBackward::run(cuda::Launch) const;

}  // namespace axonn::ops
