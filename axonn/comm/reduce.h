#pragma once

#include <cstdint>
#include <span>

#include "axonn/comm/communicator.h"

namespace axonn {

/// outs[k][i] = inps[0][i] + inps[1][i] + ... (or the max or min), in this order, for every k.
///
/// f32 and bf16 are summed in f32 and rounded once; other types are summed in their own type, and
/// integers wrap. A NaN in any input gives NaN also in the max and min. An out may be the same
/// array as an inp. All host transports use this function, so they give the same bits;
/// peer_kernels.h gives these bits on GPUs.
///
/// Memory-bound: (inps + outs) · count · bytes per element.
void reduce(std::span<void* const> outs, std::span<const void* const> inps, std::int64_t count,
            DType dtype, ReduceOp op);

}  // namespace axonn
