#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "axonn/ops/backend.h"

namespace axonn {

/// What a graph of attention is built for. Strides are of rows, in elements, as in Attention.
struct AttentionGraphShape {
  std::int64_t sequences = 0;  ///< B
  std::int64_t positions = 0;  ///< T
  std::int64_t heads = 0;      ///< h, of queries; query head j uses key-value head j / (h / k)
  std::int64_t kv_heads = 0;   ///< k, which divides h
  std::int64_t head_dim = 0;   ///< D
  std::int64_t window = 0;     ///< keys that a query sees; 0: all before it
  bool documents = false;      ///< a row sees no key before its start
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0, stats_stride = 0;
  // The gradients' alone:
  bool backward = false;
  bool ordered = false;  ///< d_q is of one product, not of sums that blocks add to as they come
  std::int64_t d_out_stride = 0, d_q_stride = 0, d_k_stride = 0, d_v_stride = 0;

  auto operator<=>(const AttentionGraphShape&) const = default;
};

/// What a tensor of the graph is to the caller; values come with the graph.
enum class GraphRole {
  inside,  ///< between two nodes: it has no memory
  value,   ///< one number, known beforehand
  scale,   ///< one f32 number that each run brings: Attention::scale
  q,
  k,
  v,
  out,
  stats,
  starts,  ///< (B, 1, T, 1) i32
  d_out,
  d_q,
  d_k,
  d_v,
  delta,    ///< (B, h, T, 1) f32, room that a run of backward needs
  d_q_sum,  ///< (B, h, T, D) f32, room too, where it is not ordered
};

enum class GraphType { f32, bf16, i32, boolean };

/// Four dims: sequences, heads, and a matrix.
struct GraphTensor {
  std::array<std::int64_t, 4> dims{}, strides{};  ///< elements
  GraphType type = GraphType::f32;
  GraphRole role = GraphRole::inside;
  float number = 0;  ///< of a value
};

enum class GraphOp {
  product,      ///< out = a · b over the last two dims; heads of b may be fewer
  largest,      ///< out = maximum of a over the dims in which out has 1
  sum,          ///< out = sum of a over the dims in which out has fewer
  multiply,     ///< out = a · b, of each element; dims of 1 are repeated, in all of these
  add,          ///< a + b
  subtract,     ///< a - b
  divide,       ///< a / b
  exponential,  ///< exp(a)
  logarithm,    ///< log(a)
  index,        ///< out = the place of the element along dim `axis`
  at_least,     ///< a >= b
  greater,      ///< a > b
  select,       ///< out = a where `where`, else b
  transpose,    ///< out = a, the last two dims exchanged
  copy,         ///< out = a, as out's type
};

/// Tensors are indices into AttentionGraph::tensors; -1: none.
struct GraphNode {
  GraphOp op;
  int out = -1, a = -1, b = -1, where = -1;
  int axis = -1;
};

/// Attention as nodes in an order in which they can be computed, of which a library's fused kernel
/// is made. Sums and what lies inside are f32, what is multiplied by a matrix again is rounded to
/// bf16; q, k, v, out and their gradients are bf16.
struct AttentionGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphNode> nodes;
};

/// The graph of out and stats, or of the gradients where shape.backward says so.
/// Errors: sizes that are not positive, k does not divide h.
AttentionGraph attention_graph(const AttentionGraphShape& shape);

/// The shape of these operands. None where no graph computes them: types other than bf16, rows or
/// heads that do not begin at multiples of 16 bytes, a rank's heads that begin or end inside a
/// group of several key-value heads', key-value heads that no query uses.
std::optional<AttentionGraphShape> graph_shape_of(const Attention& args);
std::optional<AttentionGraphShape> graph_shape_of(const AttentionBackward& args, bool ordered);

/// The largest part of the shape, by whole sequences, then by whole key-value heads, whose
/// probabilities in bf16 stay below so many bytes, and that the shape is a multiple of; at least
/// one key-value head of one sequence.
AttentionGraphShape graph_piece(const AttentionGraphShape& shape, std::int64_t bytes);

/// Which part: the first of its sequences and key-value heads.
struct GraphPlace {
  std::int64_t sequence = 0, kv_head = 0;
};

/// Memory of a run that is not an operand: see GraphRole.
struct GraphRoom {
  float* delta = nullptr;
  float* d_q_sum = nullptr;
};

/// Where the tensors of a graph lie for the part of the operands at `place`; null for those inside.
/// Numbers lie on the host, in `graph` and `args`. Forward reads args.forward alone.
std::vector<void*> graph_memory(const AttentionGraph& graph, const AttentionBackward& args,
                                const GraphRoom& room, const GraphPlace& place);

}  // namespace axonn
