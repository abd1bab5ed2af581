#pragma once

#include <vector>

#include "axonn/compute/ops/gpu/attention/attention_graph.h"

namespace axonn {

/// Computes a graph with plain loops in double, on host memory at the addresses of graph_memory().
/// Rounds every tensor to its type. Follows the graph's description literally, without a library's
/// optimizations.
void interpret(const AttentionGraph& graph, const std::vector<void*>& memory);

}  // namespace axonn
