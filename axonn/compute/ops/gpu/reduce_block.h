#pragma once

#include "axonn/compute/tensor/dtype.h"

namespace axonn::cuda {

/// Combines the values of all threads of a block by op, always in the same order: within a warp of
/// `lanes` by halves, then warp by warp. Every thread gets the result. All threads must call it,
/// and the block must be whole warps. parts: shared memory for one element per warp.
///
/// `gpu` is the interface to the block: thread(), threads() of the block, sync(), and
/// shuffle_xor(x, mask). The tests run it on a block that a CPU emulates, with warps of 32 and 64.
template <int lanes, typename T>
AXONN_DEVICE T reduce_block(const auto& gpu, T* parts, T mine, auto op) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) mine = op(mine, gpu.shuffle_xor(mine, mask));
  const int warps = gpu.threads() / lanes;
  if (warps == 1) return mine;
  if (gpu.thread() % lanes == 0) parts[gpu.thread() / lanes] = mine;
  gpu.sync();
  T total = parts[0];
  for (int w = 1; w < warps; ++w) total = op(total, parts[w]);
  gpu.sync();  // before parts is written again
  return total;
}

}  // namespace axonn::cuda
