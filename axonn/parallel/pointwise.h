#pragma once

#include "axonn/parallel/var.h"

namespace axonn {

/// GELU, element by element; keeps its input. No communication.
Var gelu(const Context& ctx, const Var& inp);

/// `value`, which is GELU of inp's already, as a chunk that has its backward.
Chunk gelu_chunk(const Context& ctx, const Chunk& inp, Tensor value);

/// silu(gate) · up of inp (R, 2F), each rank's gate columns followed by its up columns, as a Linear
/// of two segments gives them. Keeps its input, whose memory its gradient takes. No communication.
Var swiglu(const Context& ctx, const Var& inp);

/// a + b, as in a residual connection, and in the same pass the moments of its rows, for the norm
/// that comes next. No communication. Errors: they do not lie alike.
Var add(const Context& ctx, const Var& a, const Var& b);

}  // namespace axonn
