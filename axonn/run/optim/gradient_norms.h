#pragma once

#include <string>
#include <utility>
#include <vector>

#include "axonn/run/optim/optimizer_state.h"

namespace axonn {

/// Norms by parameter name, in the model's order.
using NamedNorms = std::vector<std::pair<std::string, double>>;

/// Returns the norm of every parameter's own gradient, summed over all ranks. Call it while the
/// gradients of a step are in their shards, for example in StepInput::accept. Collective; waits.
NamedNorms gradient_norms(const Context& ctx, const OptimizerState& optimizer);

}  // namespace axonn
