#pragma once

#include <span>

#include "axonn/parallel/parameters.h"

namespace axonn {

/// Completes the gradients at the end of a step's backward; then gradient() of each group is final.
/// Starts the sums over data that have not begun, and sums gradients that are partial on x or y
/// (Layout::partial): one all-reduce per axis for all groups, of those elements of this rank's
/// pieces.
void finish_gradients(const Context& ctx, std::span<ParameterGroup* const> groups);

}  // namespace axonn
