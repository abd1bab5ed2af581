#pragma once

#include "axonn/tensor/dtype.h"

namespace axonn::cuda {

/// What all threads of a block hold, put together by op: in a warp of `lanes` by halves, then warp
/// by warp. Every thread gets the result, always in the same order. All threads call it, whole
/// warps of them. parts: memory of the block for an element of each warp.
///
/// Gpu is what it runs on, as flash_tiles.h has it: thread(), threads() of the block, sync(), and
/// shuffle_xor(x, mask). The tests run it on a CPU that emulates a block, with warps of 32 and 64.
template <int lanes, typename Gpu, typename T, typename Op>
AXONN_DEVICE T reduce_block(const Gpu& gpu, T* parts, T mine, Op op) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) mine = op(mine, gpu.shuffle_xor(mine, mask));
  const int warps = gpu.threads() / lanes;
  if (warps == 1) return mine;
  if (gpu.thread() % lanes == 0) parts[gpu.thread() / lanes] = mine;
  gpu.sync();
  T total = parts[0];
  for (int w = 1; w < warps; ++w) total = op(total, parts[w]);
  gpu.sync();  // parts may be written again
  return total;
}

}  // namespace axonn::cuda
