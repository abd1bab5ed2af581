// Forward, for each sequence and head:
//   S = scale · Q·Kᵀ; -inf, or a very low number, for a key that the query does not see
//   m = max S, e = exp(S - m), l = sum e, stats = m + log l, out = (e / l)·V
// Backward:
//   delta = sum d_out · out, P = exp(S - stats)
//   d_v = Pᵀ·d_out, d_S = P · (d_out·Vᵀ - delta) · scale, d_k = d_Sᵀ·Q, d_q = d_S·K
//
// cuDNN's engines recognise attention by exactly these nodes in this order, which are those of
// cuDNN's guide to fused attention and of cudnn-frontend.
// Which operands of Attention a graph can compute, and where they lie in memory.
#include "axonn/compute/ops/gpu/attention/attention_graph.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "axonn/compute/tensor/address.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using Dims = std::array<std::int64_t, 4>;

Dims packed(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

Dims exchanged(Dims dims) {
  std::swap(dims[2], dims[3]);
  return dims;
}

class Builder {
 public:
  explicit Builder(const AttentionGraphShape& shape) : s_(shape) {
    AXONN_CHECK(s_.sequences > 0 && s_.positions > 0 && s_.kv_heads > 0 && s_.head_dim > 0 &&
                    s_.heads > 0 && s_.heads % s_.kv_heads == 0,
                "attention graph: want sizes above 0 and a number of key-value heads that divides "
                "the number of heads, got ",
                s_.sequences, " sequences of ", s_.positions, " positions, ", s_.heads, " heads, ",
                s_.kv_heads, " key-value heads of width ", s_.head_dim);
    AXONN_CHECK(s_.queries > 0 && s_.queries <= s_.q_rows && s_.first_position >= 0 &&
                    s_.keys() <= s_.positions,
                "attention graph: ", s_.queries, " of ", s_.q_rows, " queries from position ",
                s_.first_position, " on, of ", s_.positions);
  }

  AttentionGraph take() { return std::move(graph_); }

  int tensor(const GraphTensor& made) {
    graph_.tensors.push_back(made);
    return static_cast<int>(graph_.tensors.size()) - 1;
  }
  /// A matrix of queries and heads, laid out as in Attention.
  int queries(GraphRole role, std::int64_t width, std::int64_t stride,
              GraphType type = GraphType::bf16) {
    return tensor({.dims = {s_.sequences, s_.heads, s_.queries, width},
                   .strides = {s_.q_rows * stride, width, stride, 1},
                   .type = type,
                   .role = role});
  }
  /// A matrix of keys and key-value heads, laid out as in Attention.
  int keys(GraphRole role, std::int64_t stride) {
    const bool apart = s_.adds_keys && (role == GraphRole::d_k || role == GraphRole::d_v);
    const std::int64_t rows = apart ? s_.keys() : s_.positions,
                       step = apart ? s_.kv_heads * s_.head_dim : stride;
    return tensor({.dims = {s_.sequences, s_.kv_heads, s_.keys(), s_.head_dim},
                   .strides = {rows * step, s_.head_dim, step, 1},
                   .type = GraphType::bf16,
                   .role = role});
  }
  /// The same, each head's matrix transposed.
  int keys_transposed(GraphRole role, std::int64_t stride) {
    const int at = keys(role, stride);
    graph_.tensors[at].dims = exchanged(graph_.tensors[at].dims);
    graph_.tensors[at].strides = exchanged(graph_.tensors[at].strides);
    return at;
  }
  int room(GraphRole role, std::int64_t width) {
    const Dims dims{s_.sequences, s_.heads, s_.queries, width};
    return tensor({.dims = dims, .strides = packed(dims), .role = role});
  }
  int number(GraphRole role, float value) {
    return tensor({.dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .role = role, .number = value});
  }
  int integer(std::int64_t value) {
    return tensor({.dims = {1, 1, 1, 1},
                   .strides = {1, 1, 1, 1},
                   .type = GraphType::i32,
                   .role = GraphRole::value,
                   .integer = static_cast<std::int32_t>(value)});
  }

  /// Where a node writes: to tensor `out`, or to a new intermediate tensor of a's dims.
  struct To {
    int out = -1;
    GraphType type = GraphType::f32;
    int where = -1;
    int axis = -1;
  };
  int node(GraphOp op, int a, int b, const To& to) {
    const int out = to.out >= 0 ? to.out : inside(dims_of(a), to.type);
    graph_.nodes.push_back(
        {.op = op, .out = out, .a = a, .b = b, .where = to.where, .axis = to.axis});
    return out;
  }
  int node(GraphOp op, int a, int b = -1) { return node(op, a, b, To{}); }
  int inside(const Dims& dims, GraphType type = GraphType::f32) {
    return tensor({.dims = dims, .strides = packed(dims), .type = type});
  }
  /// A transposed view of tensor a.
  int transposed(int a, GraphType type) {
    const Dims dims = dims_of(a), strides = graph_.tensors[a].strides;
    const int out = tensor({.dims = exchanged(dims), .strides = exchanged(strides), .type = type});
    return node(GraphOp::transpose, a, -1, {.out = out});
  }
  Dims dims_of(int at) const { return graph_.tensors[at].dims; }

  Dims score_dims() const { return {s_.sequences, s_.heads, s_.queries, s_.keys()}; }
  Dims row_dims() const { return {s_.sequences, s_.heads, s_.queries, 1}; }

  /// Scores where the boolean tensor `seen` is true, else `unseen`.
  int only(int scores, int seen, float unseen) {
    return node(GraphOp::select, scores, number(GraphRole::value, unseen), {.where = seen});
  }

  /// Replaces the scores of keys that the query does not see by numbers whose exp() is 0.
  int masked(int scores) {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    // A kernel may process whole tiles of keys before a row's document. What it sums there about a
    // finite maximum vanishes at the first key seen; an infinite maximum could become NaN.
    constexpr float kOtherDocument = -1e30f;
    const auto index = [&](int of, int axis) {
      return node(GraphOp::index, of, -1, {.type = GraphType::i32, .axis = axis});
    };
    const auto compare = [&](int a, GraphOp op, int b) {
      return node(op, a, b, {.out = inside(score_dims(), GraphType::boolean)});
    };
    // The engines recognise the borders by these forms. Elsewhere they read a number in f32 as if
    // it were an integer, without an error.
    int query = index(scores, 2);
    if (s_.first_position > 0) {  // queries are the last of the keys: + keys - queries, as integers
      query = node(GraphOp::add, query, integer(s_.keys()), {.type = GraphType::i32, .axis = 3});
      query =
          node(GraphOp::subtract, query, integer(s_.queries), {.type = GraphType::i32, .axis = 3});
    }
    int seen = only(scores, compare(query, GraphOp::at_least, index(scores, 3)), kNone);
    if (s_.window > 0) {
      const int again = index(seen, 2), column = index(seen, 3);
      const auto beyond = static_cast<float>(s_.window - s_.first_position);
      const int end = node(GraphOp::add, column, number(GraphRole::value, beyond), {.axis = 3});
      seen = only(seen, compare(end, GraphOp::greater, again), kNone);
    }
    if (s_.documents) {
      const int column = index(seen, 3), starts = tensor({.dims = {s_.sequences, 1, s_.queries, 1},
                                                          .strides = {s_.q_rows, s_.q_rows, 1, 1},
                                                          .type = GraphType::i32,
                                                          .role = GraphRole::starts});
      seen = only(seen, compare(column, GraphOp::at_least, starts), kOtherDocument);
    }
    return seen;
  }

 private:
  const AttentionGraphShape& s_;
  AttentionGraph graph_;
};

AttentionGraph forward_graph(const AttentionGraphShape& s) {
  Builder g(s);
  const int q = g.queries(GraphRole::q, s.head_dim, s.q_stride),
            k = g.keys_transposed(GraphRole::k, s.k_stride), v = g.keys(GraphRole::v, s.v_stride),
            out = g.queries(GraphRole::out, s.head_dim, s.out_stride),
            stats = g.queries(GraphRole::stats, 1, s.stats_stride, GraphType::f32);
  const int product = g.node(GraphOp::product, q, k, {.out = g.inside(g.score_dims())});
  const int scores = g.masked(g.node(GraphOp::multiply, product, g.number(GraphRole::scale, 1)));
  const int most = g.node(GraphOp::largest, scores, -1, {.out = g.inside(g.row_dims())});
  const int powers = g.node(GraphOp::exponential, g.node(GraphOp::subtract, scores, most));
  const int total = g.node(GraphOp::sum, powers, -1, {.out = g.inside(g.row_dims())});
  g.node(GraphOp::add, most, g.node(GraphOp::logarithm, total), {.out = stats});
  const int p = g.node(GraphOp::divide, powers, total, {.type = GraphType::bf16});
  g.node(GraphOp::product, p, v, {.out = out});
  return g.take();
}

AttentionGraph backward_graph(const AttentionGraphShape& s) {
  Builder g(s);
  const std::int64_t h = s.heads, D = s.head_dim;
  const int q = g.queries(GraphRole::q, D, s.q_stride),
            k = g.keys_transposed(GraphRole::k, s.k_stride),
            v = g.keys_transposed(GraphRole::v, s.v_stride),
            out = g.queries(GraphRole::out, D, s.out_stride),
            stats = g.queries(GraphRole::stats, 1, s.stats_stride, GraphType::f32),
            d_out = g.queries(GraphRole::d_out, D, s.d_out_stride),
            d_q = g.queries(GraphRole::d_q, D, s.d_q_stride),
            d_k = g.keys(GraphRole::d_k, s.d_k_stride), d_v = g.keys(GraphRole::d_v, s.d_v_stride),
            scale = g.number(GraphRole::scale, 1), one = g.number(GraphRole::value, 1);
  // d_k or d_v: a product for each query head, then the sum over each group of heads.
  const auto to_keys = [&](int transposed, int rows, int to) {
    if (h == s.kv_heads) {
      g.node(GraphOp::product, transposed, rows, {.out = to});
      return;
    }
    const int all = g.inside({s.sequences, h, s.keys(), D}, GraphType::bf16);
    g.node(GraphOp::sum, g.node(GraphOp::product, transposed, rows, {.out = all}), -1, {.out = to});
  };

  const int dots = g.node(GraphOp::sum, g.node(GraphOp::multiply, d_out, out), -1,
                          {.out = g.inside(g.row_dims())});
  // The engines recognise the sum by the factor of dropout (here 1) that follows it.
  const int delta = g.node(GraphOp::multiply, dots, one, {.out = g.room(GraphRole::delta, 1)});

  const int product = g.node(GraphOp::product, q, k, {.out = g.inside(g.score_dims())});
  const int scores = g.node(GraphOp::multiply, product, scale);
  const int p = g.node(GraphOp::exponential, g.masked(g.node(GraphOp::subtract, scores, stats)));
  to_keys(g.transposed(p, GraphType::bf16), d_out, d_v);

  const int d_p = g.node(GraphOp::product, d_out, v, {.out = g.inside(g.score_dims())});
  const int d_scores =
      g.node(GraphOp::multiply, g.node(GraphOp::multiply, g.node(GraphOp::subtract, d_p, delta), p),
             scale);
  to_keys(g.transposed(d_scores, GraphType::bf16), q, d_k);

  const int keys = g.transposed(k, GraphType::bf16);
  if (s.ordered) {
    g.node(GraphOp::product, d_scores, keys, {.out = d_q});
  } else {
    const int sums = g.room(GraphRole::d_q_sum, D);
    g.node(GraphOp::product, d_scores, keys, {.out = sums});
    g.node(GraphOp::copy, sums, -1, {.out = d_q});
  }
  return g.take();
}

}  // namespace

AttentionGraph attention_graph(const AttentionGraphShape& shape) {
  return shape.backward ? backward_graph(shape) : forward_graph(shape);
}

constexpr std::int64_t kAlignment = 16;  // bytes

bool are_aligned_bf16(std::initializer_list<View> views) {
  return std::ranges::all_of(views, [](const View& view) {
    return view.dtype == DType::bf16 && view.stride * bytes_of(view.dtype) % kAlignment == 0 &&
           reinterpret_cast<std::uintptr_t>(view.data) % kAlignment == 0;
  });
}

namespace {

/// Whether query head j uses key-value head j / (h / k), as graphs have it.
bool whole_groups(const Attention& args, std::int64_t kv_heads) {
  if (kv_heads == 1) return args.first_query + args.heads <= args.group;
  return args.first_query == 0 && args.heads == kv_heads * args.group;
}

}  // namespace

std::vector<AttentionGraphShape> graph_shapes_of(const Attention& args) {
  if (args.q.count() == 0 || args.k.count() == 0 || args.heads == 0) return {};
  const std::int64_t kv_heads = args.k.cols / args.head_dim;
  const bool fits = are_aligned_bf16({args.q, args.k, args.v, args.out}) &&
                    args.head_dim * bytes_of(DType::bf16) % kAlignment == 0 &&
                    args.k.cols == kv_heads * args.head_dim && args.v.cols == args.k.cols &&
                    whole_groups(args, kv_heads);
  if (!fits) return {};
  const AttentionGraphShape whole{
      .sequences = args.sequences(),
      .positions = args.positions,
      .q_rows = args.queries(),
      .queries = args.queries(),
      .heads = args.heads,
      .kv_heads = kv_heads,
      .head_dim = args.head_dim,
      .window = args.window < args.positions ? args.window : 0,
      .documents = args.starts.data != nullptr,
      .q_stride = args.q.stride,
      .k_stride = args.k.stride,
      .v_stride = args.v.stride,
      .out_stride = args.out.stride,
      .stats_stride = args.stats.stride,
  };
  if (!args.query_blocks.data) return {whole};
  std::vector<AttentionGraphShape> shapes;
  for (int i = 0; i < args.runs.count; ++i) {
    AttentionGraphShape& one = shapes.emplace_back(whole);
    one.first_position = args.runs.runs[i].first_position;
    one.queries = args.runs.runs[i].rows;
  }
  return shapes;
}

std::vector<AttentionGraphShape> graph_shapes_of(const AttentionBackward& args, bool ordered) {
  std::vector<AttentionGraphShape> shapes = graph_shapes_of(args.forward);
  const bool adds = args.forward.query_blocks.data != nullptr;
  if (!are_aligned_bf16({args.d_out, args.d_q})) return {};
  if (!adds && !are_aligned_bf16({args.d_k, args.d_v})) return {};
  for (AttentionGraphShape& shape : shapes) {
    shape.backward = true;
    shape.ordered = ordered;
    shape.adds_keys = adds;
    shape.d_out_stride = args.d_out.stride;
    shape.d_q_stride = args.d_q.stride;
    shape.d_k_stride = adds ? 0 : args.d_k.stride;
    shape.d_v_stride = adds ? 0 : args.d_v.stride;
  }
  return shapes;
}

namespace {

constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
constexpr std::int64_t kBlock = 256;  // bytes, the alignment of a GPU's allocations

/// cuDNN's own workspace: gradients of keys and values for each query head of a group, and those of
/// the scores of whole tiles.
std::int64_t library_bytes(const AttentionGraphShape& s) {
  if (!s.backward) return kBlock;
  const std::int64_t heads = s.sequences * s.heads,
                     of_heads = s.heads > s.kv_heads ? 2 * heads * s.keys() * s.head_dim : 0,
                     scores =
                         s.ordered ? heads * round_up(s.queries, 64) * round_up(s.keys(), 128) : 0;
  return (of_heads + scores) * bytes_of(DType::bf16) + kBlock;
}

}  // namespace

GraphBytes graph_bytes(const AttentionGraphShape& s) {
  GraphBytes bytes{.library = round_up(library_bytes(s), kBlock)};
  if (!s.backward) return bytes;
  const std::int64_t rows = s.sequences * s.heads * s.queries;
  bytes.delta = round_up(rows * bytes_of(DType::f32), kBlock);
  if (!s.ordered) bytes.d_q_sum = round_up(rows * s.head_dim * bytes_of(DType::f32), kBlock);
  if (s.adds_keys)
    bytes.d_keys =
        round_up(s.sequences * s.keys() * s.kv_heads * s.head_dim * bytes_of(DType::bf16), kBlock);
  return bytes;
}

std::int64_t key_sum_bytes(const AttentionBackward& args) {
  if (args.d_k.dtype == DType::f32) return 0;
  return 2 *
         round_up(args.forward.positions * args.forward.head_dim * bytes_of(DType::f32), kBlock);
}

std::optional<AttentionGraphShape> graph_piece(const AttentionGraphShape& shape,
                                               std::int64_t bytes) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  AttentionGraphShape piece = shape;
  const auto fits = [&] { return graph_bytes(piece).total() <= bytes; };
  for (piece.sequences = shape.sequences; piece.sequences > 1; --piece.sequences)
    if (shape.sequences % piece.sequences == 0 && fits()) return piece;
  for (; piece.kv_heads > 1; --piece.kv_heads) {
    piece.heads = piece.kv_heads * group;
    if (shape.kv_heads % piece.kv_heads == 0 && fits()) return piece;
  }
  piece.heads = group;
  if (!fits()) return std::nullopt;
  return piece;
}

GraphRoom graph_room(const AttentionGraphShape& shape, void* memory) {
  const GraphBytes bytes = graph_bytes(shape);
  auto* at = static_cast<char*>(memory);
  const auto take = [&](std::int64_t n) -> void* {
    return n > 0 ? std::exchange(at, at + n) : nullptr;
  };
  GraphRoom room;
  room.delta = take(bytes.delta);
  room.d_q_sum = take(bytes.d_q_sum);
  room.d_k = take(bytes.d_keys);
  room.d_v = take(bytes.d_keys);
  room.library = at;
  return room;
}

std::vector<void*> graph_memory(const AttentionGraph& graph, const AttentionBackward& args,
                                const GraphRoom& room, const GraphOffset& offset) {
  const Attention& a = args.forward;
  const std::int64_t q_row = offset.sequence * a.queries() + offset.query,
                     k_row = offset.sequence * a.positions, kv_column = offset.kv_head * a.head_dim,
                     head = offset.kv_head * (a.heads * a.head_dim / a.k.cols);
  const auto at = [](const View& view, std::int64_t row, std::int64_t col) -> void* {
    if (!view.data) return nullptr;
    return static_cast<char*>(view.data) + (row * view.stride + col) * bytes_of(view.dtype);
  };
  const auto queries = [&](const View& view) { return at(view, q_row, head * a.head_dim); };
  const auto keys = [&](const View& view) { return at(view, k_row, kv_column); };
  void* const starts = a.starts.data ? address<std::int32_t>(a.starts) + q_row : nullptr;
  // By GraphRole, whose first two have no memory or their own.
  const std::array<void*, 15> by_role{nullptr,
                                      nullptr,
                                      const_cast<float*>(&a.scale),
                                      queries(a.q),
                                      keys(a.k),
                                      keys(a.v),
                                      queries(a.out),
                                      at(a.stats, q_row, head),
                                      starts,
                                      queries(args.d_out),
                                      queries(args.d_q),
                                      room.d_k ? room.d_k : keys(args.d_k),
                                      room.d_v ? room.d_v : keys(args.d_v),
                                      room.delta,
                                      room.d_q_sum};
  std::vector<void*> memory;
  for (const GraphTensor& tensor : graph.tensors)
    if (tensor.role != GraphRole::value)
      memory.push_back(by_role.at(static_cast<std::size_t>(tensor.role)));
    else if (tensor.type == GraphType::i32)
      memory.push_back(const_cast<std::int32_t*>(&tensor.integer));
    else
      memory.push_back(const_cast<float*>(&tensor.number));
  return memory;
}

}  // namespace axonn
