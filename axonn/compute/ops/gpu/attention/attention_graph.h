#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "axonn/compute/ops/backend.h"

namespace axonn {

/// The parameters of an attention graph. Strides are elements from one row to the next.
struct AttentionGraphShape {
  std::int64_t sequences = 0;  ///< B
  std::int64_t positions = 0;  ///< T, rows of k and v of each sequence
  std::int64_t q_rows = 0;     ///< rows of q of each sequence
  /// The queries, q_rows or fewer rows one after another, are those of positions [first_position,
  /// first_position + queries); they see no key at or after their end.
  std::int64_t first_position = 0, queries = 0;
  std::int64_t heads = 0;     ///< h, of queries; query head j uses key-value head j / (h / k)
  std::int64_t kv_heads = 0;  ///< k, which divides h
  std::int64_t head_dim = 0;  ///< D
  std::int64_t window = 0;    ///< keys that a query sees, its own the last; 0: all
  bool documents = false;     ///< a row sees no key before its start
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0, stats_stride = 0;
  // For gradients only:
  bool backward = false;
  bool ordered = false;  ///< d_q is one product, not a sum to which blocks add in any order
  /// d_k and d_v are parts that the caller adds to others: (sequences · keys(), k·D), contiguous.
  bool adds_keys = false;
  std::int64_t d_out_stride = 0, d_q_stride = 0, d_k_stride = 0, d_v_stride = 0;

  /// Keys that some query may see: the first of each sequence.
  std::int64_t keys() const { return first_position + queries; }

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
  float number = 0;          ///< of a value (GraphRole) of type f32
  std::int32_t integer = 0;  ///< of a value of type i32
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

/// The shapes of these operands, one for each run of queries; none if no graph computes them. That
/// is so for types other than bf16, rows or heads that do not begin at multiples of 16 bytes, no
/// heads, key-value heads that no query uses, several key-value heads with a group of which only
/// some query heads are here, and queries at blocks of the positions whose runs are not known.
std::vector<AttentionGraphShape> graph_shapes_of(const Attention& args);
std::vector<AttentionGraphShape> graph_shapes_of(const AttentionBackward& args, bool ordered);

/// Memory of a run of a graph besides its operands: bytes, each a multiple of 256.
struct GraphBytes {
  std::int64_t delta = 0, d_q_sum = 0;  ///< see GraphRole
  std::int64_t d_keys = 0;              ///< d_k, and as much for d_v, with adds_keys
  std::int64_t library = 0;             ///< cuDNN's own workspace

  std::int64_t total() const { return delta + d_q_sum + 2 * d_keys + library; }
};

/// cuDNN's workspace is that of version 9.19 on GPUs of compute capability 9.0; others may need
/// more.
GraphBytes graph_bytes(const AttentionGraphShape& shape);

/// Memory of the sums in f32 of d_k and d_v of one key-value head of one sequence, which a caller
/// that computes these gradients in runs of queries adds to; 0 if d_k and d_v are f32 themselves.
std::int64_t key_sum_bytes(const AttentionBackward& args);

/// The largest part of the shape that takes at most `bytes`: whole sequences, or else some
/// key-value heads of one sequence. It divides the shape. Nothing if one such head takes more.
std::optional<AttentionGraphShape> graph_piece(const AttentionGraphShape& shape,
                                               std::int64_t bytes);

/// The offset of a part in the whole: its first sequence, its first key-value head, and the row of
/// its first query in each sequence.
struct GraphOffset {
  std::int64_t sequence = 0, kv_head = 0, query = 0;
};

/// Memory of a run, see GraphBytes.
struct GraphRoom {
  void* delta = nullptr;
  void* d_q_sum = nullptr;
  void* d_k = nullptr;  ///< null unless adds_keys; d_v likewise
  void* d_v = nullptr;
  void* library = nullptr;
};

/// The parts of `memory` for a run of the shape.
GraphRoom graph_room(const AttentionGraphShape& shape, void* memory);

/// The addresses of a graph's tensors for the part of the operands at `offset`; null for
/// intermediate results. Numbers are on the host, in `graph` and `args`. Forward uses args.forward.
std::vector<void*> graph_memory(const AttentionGraph& graph, const AttentionBackward& args,
                                const GraphRoom& room, const GraphOffset& offset);

/// Whether the GPU's attention kernels can read the views: bf16, rows aligned to 16 bytes.
bool are_aligned_bf16(std::initializer_list<View> views);

}  // namespace axonn
