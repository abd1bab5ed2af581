#pragma once

#include <functional>

#include "axonn/network/nn/attention/attention.h"

namespace axonn {

/// The kernels of attention of a chunk qkv: forward computes out and stats as ops of Attention do,
/// backward from these and d_out the gradient d_qkv.
struct AttentionKernels {
  std::function<void(const Chunk& qkv, const Tensor& out, const Tensor& stats)> forward;
  std::function<void(const Chunk& qkv, const Tensor& out, const Tensor& stats, const Tensor& d_out,
                     const Tensor& d_qkv)>
      backward;
};

/// The first position of its sequence that each row sees, (1, R) i32: Rows::start, or where the
/// row's chunk begins. Empty: 0.
Tensor first_seen(const Context& ctx, const LocalHeads& at, const Rows& rows);

/// Attention of a chunk by these kernels, with its backward; backward may make the result again.
Chunk attention_chunk(const Context& ctx, const LocalHeads& at, const Chunk& qkv,
                      const Sinks* sinks, const AttentionKernels& kernels);

/// attention() of a chunk whose sequences are shared by the ranks of Grid::context(), each with
/// some of the positions. They exchange keys and values (key_exchange.h), some heads at a time, so
/// each query sees what it sees on one rank, in the same order: the result has the same bits. The
/// gradients of keys and values are summed over the ranks in f32.
Chunk shared_attention(const Context& ctx, const LocalHeads& at, const Chunk& qkv,
                       const Sinks* sinks);

}  // namespace axonn
