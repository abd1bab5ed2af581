#pragma once

#include <vector>

#include "axonn/ops/attention_graph.h"

namespace axonn {

/// Computes a graph with plain loops, in double, on host memory as graph_memory() says it lies;
/// every tensor is rounded to its type. What the graph's description says, and nothing that a
/// library does with it.
void interpret(const AttentionGraph& graph, const std::vector<void*>& memory);

}  // namespace axonn
