#pragma once

#include <vector>

#include "axonn/network/nn/attention/attention.h"

namespace axonn {

/// What a product makes that also has a gate for each column of attention's output, as in
/// Qwen3-Next: each query head's columns, then its gates; keys; values.
std::vector<HeadFeatures> gated_features(const Heads& heads);

/// Of such a product: the queries, keys and values (R, (h + 2k)·D), as attention() takes them, and
/// the gates (R, h·D). Copies; no communication.
Var without_gates(const Context& ctx, const Var& product, const Heads& heads);
Var gates_of_heads(const Context& ctx, const Var& product, const Heads& heads);

}  // namespace axonn
