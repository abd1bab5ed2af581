#pragma once

#include <span>

#include "axonn/parallel/parameters.h"

namespace axonn {

/// The end of a step's backward: afterwards gradient() of each group is whole. Starts the sums over
/// data that have not begun, and sums what is partial on x or y (Layout::partial): of all groups in
/// one all-reduce an axis, of the few elements of this rank's pieces.
void finish_gradients(const Context& ctx, std::span<ParameterGroup* const> groups);

}  // namespace axonn
