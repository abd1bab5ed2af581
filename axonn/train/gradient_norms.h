#pragma once

#include <map>
#include <string>

#include "axonn/train/optimizer.h"

namespace axonn {

/// The norm of every parameter's own gradient, by name, summed over all ranks. Call it when the
/// gradients of a step are in their shards (StepInput::accept, say). Collective; waits.
std::map<std::string, double> gradient_norms(const Context& ctx, const Optimizer& optimizer);

}  // namespace axonn
