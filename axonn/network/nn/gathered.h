#pragma once

#include <cstdint>

#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// A value whose columns are cut over `axis`, x or y, and whose rows may be cut over the other one,
/// whole on all ranks of both. Its gradient must be whole, too. `runs`: of the columns, each cut
/// evenly.
///
/// Communication: all-gathers of (R, C) forward, none backward.
Var gathered(const Context& ctx, const Var& inp, Axis axis, const Runs& runs);

/// This rank of `axis`'s part of the columns [first, first + width) of a whole value.
///
/// Communication: none forward, an all-gather of (R, width) backward.
Var columns_over(const Context& ctx, const Var& inp, Axis axis, std::int64_t first,
                 std::int64_t width);

}  // namespace axonn
