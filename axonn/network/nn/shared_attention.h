#pragma once

#include "axonn/network/nn/attention.h"

namespace axonn {

/// attention() of a chunk whose sequences are shared by the ranks of Grid::context(), each with
/// some of the positions. They exchange keys and values (key_exchange.h), some heads at a time, so
/// each query sees what it sees on one rank, in the same order: the result has the same bits. The
/// gradients of keys and values are summed over the ranks in f32.
Chunk shared_attention(const Context& ctx, const LocalHeads& at, const Chunk& qkv);

}  // namespace axonn
