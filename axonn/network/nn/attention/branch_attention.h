#pragma once

#include "axonn/network/nn/attention/shared_attention.h"

namespace axonn {

/// Kernels of attention of chunks whose sequences have two branches (Rows::branches), from those
/// of whole sequences: each sequence becomes two, of a branch each, in which the rows of the other
/// branch see themselves alone. So the rows that both begin with are computed twice here, and once
/// in all other layers. Takes memory for two copies of each operand while it computes.
AttentionKernels branch_kernels(const Context& ctx, const AttentionKernels& whole);

}  // namespace axonn
