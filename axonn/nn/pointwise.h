#pragma once

#include "axonn/parallel/var.h"

namespace axonn {

/// Element-wise GELU; keeps its input for backward. No communication.
Var gelu(const Context& ctx, const Var& inp);

/// A chunk of `value`, which is already GELU of inp; records its backward.
Chunk gelu_chunk(const Context& ctx, const Chunk& inp, Tensor value);

/// silu(gate) · up of inp (R, 2F), each rank's gate columns followed by its up columns, as a Linear
/// of two segments makes them. Keeps its input; the gradient reuses its memory. No communication.
Var swiglu(const Context& ctx, const Var& inp);

/// a + b, as in a residual connection; in the same pass, the moments of its rows for the next norm.
/// No communication. Throws if a and b differ in shape, chunks or placement.
Var add(const Context& ctx, const Var& a, const Var& b);

}  // namespace axonn
