#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "axonn/ops/backend.h"

namespace axonn {

/// The parameters of an attention graph. Strides are elements from one row to the next.
struct AttentionGraphShape {
  std::int64_t sequences = 0;  ///< B
  std::int64_t positions = 0;  ///< T
  std::int64_t heads = 0;      ///< h, of queries; query head j uses key-value head j / (h / k)
  std::int64_t kv_heads = 0;   ///< k, which divides h
  std::int64_t head_dim = 0;   ///< D
  std::int64_t window = 0;     ///< keys that a query sees, its own the last; 0: all
  bool documents = false;      ///< a row sees no key before its start
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0, stats_stride = 0;
  // For gradients only:
  bool backward = false;
  bool ordered = false;  ///< d_q is one product, not a sum to which blocks add in any order
  std::int64_t d_out_stride = 0, d_q_stride = 0, d_k_stride = 0, d_v_stride = 0;

  auto operator<=>(const AttentionGraphShape&) const = default;
};

/// The caller's meaning of a tensor of the graph.
enum class GraphRole {
  inside,  ///< an intermediate result: has no memory
  value,   ///< a constant: GraphTensor::number
  scale,   ///< one f32 number that each run provides: Attention::scale
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
  delta,    ///< (B, h, T, 1) f32, workspace of backward
  d_q_sum,  ///< (B, h, T, D) f32, workspace of backward that is not ordered
};

enum class GraphType { f32, bf16, i32, boolean };

/// A tensor of four dims: sequences, heads, and the rows and columns of a matrix.
struct GraphTensor {
  std::array<std::int64_t, 4> dims{}, strides{};  ///< elements
  GraphType type = GraphType::f32;
  GraphRole role = GraphRole::inside;
  float number = 0;  ///< of a value (GraphRole)
};

enum class GraphOp {
  product,      ///< out = a · b over the last two dims; b may have fewer heads
  largest,      ///< out = maximum of a over the dims in which out has 1
  sum,          ///< out = sum of a over the dims in which out has fewer
  multiply,     ///< out = a · b elementwise; dims of 1 are broadcast, here and below
  add,          ///< a + b
  subtract,     ///< a - b
  divide,       ///< a / b
  exponential,  ///< exp(a)
  logarithm,    ///< log(a)
  index,        ///< out = the element's index along dim `axis`
  at_least,     ///< a >= b
  greater,      ///< a > b
  select,       ///< out = a where `where`, else b
  transpose,    ///< out = a with the last two dims exchanged
  copy,         ///< out = a, converted to out's type
};

/// Tensors are indices into AttentionGraph::tensors; -1: none.
struct GraphNode {
  GraphOp op;
  int out = -1, a = -1, b = -1, where = -1;
  int axis = -1;
};

/// Attention as nodes in an order in which they can be computed. A library makes a fused kernel of
/// it. q, k, v, out and their gradients are bf16; sums and intermediate results are f32, except
/// that operands of a further product are rounded to bf16.
struct AttentionGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphNode> nodes;
};

/// The graph of out and stats, or of the gradients if shape.backward is set.
/// Throws if a size is not positive or k does not divide h.
AttentionGraph attention_graph(const AttentionGraphShape& shape);

/// The shape of these operands; nothing if no graph computes them. That is so for types other than
/// bf16, rows or heads that do not begin at multiples of 16 bytes, no heads, key-value heads that
/// no query uses, several key-value heads with a group of which only some query heads are here, and
/// queries at some blocks of the positions.
std::optional<AttentionGraphShape> graph_shape_of(const Attention& args);
std::optional<AttentionGraphShape> graph_shape_of(const AttentionBackward& args, bool ordered);

/// The default of CudaOptions::score_bytes on a GPU with so many bytes of memory.
std::int64_t score_bytes_of(std::int64_t gpu_memory);

/// The largest part of the shape whose probabilities in bf16 take at most `bytes`: whole sequences,
/// or else some key-value heads of one sequence; at least one such head. It divides the shape.
AttentionGraphShape graph_piece(const AttentionGraphShape& shape, std::int64_t bytes);

/// The place of a part in the whole: its first sequence and its first key-value head.
struct GraphOffset {
  std::int64_t sequence = 0, kv_head = 0;
};

/// Workspace of a run: see GraphRole.
struct GraphRoom {
  float* delta = nullptr;
  float* d_q_sum = nullptr;
};

/// The addresses of a graph's tensors for the part of the operands at `place`; null for
/// intermediate results. Numbers are on the host, in `graph` and `args`. Forward uses args.forward.
std::vector<void*> graph_memory(const AttentionGraph& graph, const AttentionBackward& args,
                                const GraphRoom& room, const GraphOffset& place);

/// Whether the GPU's attention kernels can read the views: bf16, rows aligned to 16 bytes.
bool are_aligned_bf16(std::initializer_list<View> views);

}  // namespace axonn
