#pragma once

#include <cstdint>
#include <span>

#include "axonn/comm/communicator.h"

namespace axonn {

/// outs[k][i] = inps[0][i] + inps[1][i] + ... (or the max or min), in this order, for every k.
///
/// f32 and bf16 are summed in f32 and rounded once; f64, i32 and i64 in their own type (integers
/// wrap). A NaN in any input is a NaN in the max and min. An out may be the same array as an inp.
/// This is the one place where ranks' values are added, so all transports give the same bits.
///
/// Bound by memory: (inps + outs) · count · bytes.
void reduce(std::span<void* const> outs, std::span<const void* const> inps, std::int64_t count,
            DType dtype, ReduceOp op);

}  // namespace axonn
