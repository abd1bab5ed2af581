#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/var.h"

// Arithmetic on values. Operations on two or more values want them alike: the same chunks, rows and
// placement on the grid.
namespace axonn {

/// Element-wise GELU; keeps its input for backward. No communication.
Var gelu(const Context& ctx, const Var& inp);

/// A chunk of `value`, which is already GELU of inp; records its backward.
Chunk gelu_chunk(const Context& ctx, const Chunk& inp, Tensor value);

/// A gated linear unit, silu(gate) · up or another, of inp (R, 2F), each rank's gate columns
/// followed by its up columns, as a Linear of two segments makes them. Keeps its input; the
/// gradient reuses its
/// memory. No communication. Throws if the columns are odd.
Var swiglu(const Context& ctx, const Var& inp, const ops::Gate& gate = {});

/// max(inp, 0), inp / (1 + e^-inp), 1 / (1 + e^-inp) and tanh(inp), element-wise; (R, C), with the
/// placement of inp. They keep their input for backward. The slope of relu is 0 at 0. No
/// communication.
Var relu(const Context& ctx, const Var& inp);
Var silu(const Context& ctx, const Var& inp);
Var sigmoid(const Context& ctx, const Var& inp);
Var tanh(const Context& ctx, const Var& inp);
/// max(inp, 0)², likewise.
Var squared_relu(const Context& ctx, const Var& inp);

/// a + b, as in a residual connection; in the same pass, the moments of its rows for the next norm.
/// No communication. Throws if a and b differ in shape, chunks or placement.
Var add(const Context& ctx, const Var& a, const Var& b);

/// a · b, element-wise; (R, C), with the placement of both. They may be the same value. Keeps a if
/// b has a gradient, and b if a has one. No communication. Throws if a and b differ in shape,
/// chunks or placement.
Var multiply(const Context& ctx, const Var& a, const Var& b);

/// inp · factor, (R, C), with the placement of inp. Keeps nothing. No communication.
Var scale(const Context& ctx, const Var& inp, float factor);

/// inp times a constant (1, 1) of the model that is not trained; (R, C), with the placement of inp.
/// No communication.
Var scale_by_constant(const Context& ctx, const Var& inp, const Parameter& number);

/// e^x / (sum of e^x over all columns of the row), for each element x of inp (R, C); with the
/// placement of inp. Keeps its result for backward.
///
/// If the columns are cut, it gathers two floats for each row and rank over the axes that cut them,
/// and its backward sums up one float for each row; else it needs no communication.
Var softmax(const Context& ctx, const Var& inp);

/// Run `index` of the columns of inp: (R, widths[index]), with the placement of inp. `widths` are
/// those of the consecutive runs that the columns consist of, over all ranks. Each run is cut
/// evenly over the axes that cut the columns, as are the segments of a Linear and the values that
/// concat_columns() put side by side; {C} for a value of one run.
///
/// A copy. Keeps nothing. No communication. Throws if there is no such run, if the widths do not
/// add up to the columns of inp, or if one cannot be cut evenly.
Var slice_columns(const Context& ctx, const Var& inp, const std::vector<std::int64_t>& widths,
                  std::size_t index);

/// The columns of all values side by side, (R, C1 + C2 + ...), with their placement. The columns of
/// each value are runs of the result's, which slice_columns() gives back.
///
/// A copy. Keeps nothing. No communication. Throws if there are no values, or if they differ in
/// rows, chunks or placement.
Var concat_columns(const Context& ctx, const std::vector<Var>& values);

}  // namespace axonn
