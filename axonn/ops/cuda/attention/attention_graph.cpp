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
#include "axonn/ops/cuda/attention/attention_graph.h"

#include <algorithm>
#include <limits>

#include "axonn/base/check.h"
#include "axonn/tensor/address.h"

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
  }

  AttentionGraph take() { return std::move(graph_); }

  int tensor(const GraphTensor& made) {
    graph_.tensors.push_back(made);
    return static_cast<int>(graph_.tensors.size()) - 1;
  }
  /// A matrix of tokens and heads, laid out as in Attention.
  int tokens(GraphRole role, std::int64_t heads, std::int64_t width, std::int64_t stride,
             GraphType type = GraphType::bf16) {
    return tensor({.dims = {s_.sequences, heads, s_.positions, width},
                   .strides = {s_.positions * stride, width, stride, 1},
                   .type = type,
                   .role = role});
  }
  /// The same, each head's matrix transposed.
  int tokens_transposed(GraphRole role, std::int64_t heads, std::int64_t stride) {
    const int at = tokens(role, heads, s_.head_dim, stride);
    graph_.tensors[at].dims = exchanged(graph_.tensors[at].dims);
    graph_.tensors[at].strides = exchanged(graph_.tensors[at].strides);
    return at;
  }
  int room(GraphRole role, std::int64_t width) {
    const Dims dims{s_.sequences, s_.heads, s_.positions, width};
    return tensor({.dims = dims, .strides = packed(dims), .role = role});
  }
  int number(GraphRole role, float value) {
    return tensor({.dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .role = role, .number = value});
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

  Dims score_dims() const { return {s_.sequences, s_.heads, s_.positions, s_.positions}; }
  Dims row_dims() const { return {s_.sequences, s_.heads, s_.positions, 1}; }

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
    const int query = index(scores, 2), key = index(scores, 3);
    int seen = only(scores, compare(query, GraphOp::at_least, key), kNone);
    if (s_.window > 0) {
      const int row = index(seen, 2), column = index(seen, 3),
                window = number(GraphRole::value, static_cast<float>(s_.window));
      const int end = node(GraphOp::add, column, window, {.axis = 3});
      seen = only(seen, compare(end, GraphOp::greater, row), kNone);
    }
    if (s_.documents) {
      const int column = index(seen, 3),
                starts = tensor({.dims = {s_.sequences, 1, s_.positions, 1},
                                 .strides = {s_.positions, s_.positions, 1, 1},
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
  const int q = g.tokens(GraphRole::q, s.heads, s.head_dim, s.q_stride),
            k = g.tokens_transposed(GraphRole::k, s.kv_heads, s.k_stride),
            v = g.tokens(GraphRole::v, s.kv_heads, s.head_dim, s.v_stride),
            out = g.tokens(GraphRole::out, s.heads, s.head_dim, s.out_stride),
            stats = g.tokens(GraphRole::stats, s.heads, 1, s.stats_stride, GraphType::f32);
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
  const std::int64_t h = s.heads, k_heads = s.kv_heads, D = s.head_dim;
  const int q = g.tokens(GraphRole::q, h, D, s.q_stride),
            k = g.tokens_transposed(GraphRole::k, k_heads, s.k_stride),
            v = g.tokens_transposed(GraphRole::v, k_heads, s.v_stride),
            out = g.tokens(GraphRole::out, h, D, s.out_stride),
            stats = g.tokens(GraphRole::stats, h, 1, s.stats_stride, GraphType::f32),
            d_out = g.tokens(GraphRole::d_out, h, D, s.d_out_stride),
            d_q = g.tokens(GraphRole::d_q, h, D, s.d_q_stride),
            d_k = g.tokens(GraphRole::d_k, k_heads, D, s.d_k_stride),
            d_v = g.tokens(GraphRole::d_v, k_heads, D, s.d_v_stride),
            scale = g.number(GraphRole::scale, 1), one = g.number(GraphRole::value, 1);
  // d_k or d_v: a product for each query head, then the sum over each group of heads.
  const auto to_keys = [&](int transposed, int rows, int to) {
    if (h == k_heads) {
      g.node(GraphOp::product, transposed, rows, {.out = to});
      return;
    }
    const int all = g.inside({s.sequences, h, s.positions, D}, GraphType::bf16);
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

/// The largest divisor of `count` that is at most `most`, at least 1.
std::int64_t largest_divisor(std::int64_t count, std::int64_t most) {
  std::int64_t divisor = std::clamp<std::int64_t>(most, 1, count);
  while (count % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

std::optional<AttentionGraphShape> graph_shape_of(const Attention& args) {
  if (args.q.count() == 0 || args.k.count() == 0 || args.heads == 0 || args.query_blocks.data)
    return std::nullopt;
  const std::int64_t kv_heads = args.k.cols / args.head_dim;
  const bool fits = are_aligned_bf16({args.q, args.k, args.v, args.out}) &&
                    args.head_dim * bytes_of(DType::bf16) % kAlignment == 0 &&
                    args.k.cols == kv_heads * args.head_dim && args.v.cols == args.k.cols &&
                    whole_groups(args, kv_heads);
  if (!fits) return std::nullopt;
  return AttentionGraphShape{
      .sequences = args.sequences(),
      .positions = args.positions,
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
}

std::optional<AttentionGraphShape> graph_shape_of(const AttentionBackward& args, bool ordered) {
  std::optional<AttentionGraphShape> shape = graph_shape_of(args.forward);
  if (!shape || !are_aligned_bf16({args.d_out, args.d_q, args.d_k, args.d_v})) return std::nullopt;
  shape->backward = true;
  shape->ordered = ordered;
  shape->d_out_stride = args.d_out.stride;
  shape->d_q_stride = args.d_q.stride;
  shape->d_k_stride = args.d_k.stride;
  shape->d_v_stride = args.d_v.stride;
  return shape;
}

std::int64_t score_bytes_of(std::int64_t gpu_memory) {
  return std::clamp<std::int64_t>(gpu_memory / 64, std::int64_t{256} << 20, std::int64_t{2} << 30);
}

AttentionGraphShape graph_piece(const AttentionGraphShape& shape, std::int64_t bytes) {
  const std::int64_t group = shape.heads / shape.kv_heads,
                     of_kv_head = group * shape.positions * shape.positions * bytes_of(DType::bf16),
                     of_sequence = shape.kv_heads * of_kv_head;
  AttentionGraphShape piece = shape;
  piece.sequences = largest_divisor(shape.sequences, bytes / of_sequence);
  if (of_sequence > bytes) piece.kv_heads = largest_divisor(shape.kv_heads, bytes / of_kv_head);
  piece.heads = piece.kv_heads * group;
  return piece;
}

std::vector<void*> graph_memory(const AttentionGraph& graph, const AttentionBackward& args,
                                const GraphRoom& room, const GraphOffset& place) {
  const Attention& a = args.forward;
  const std::int64_t row = place.sequence * a.positions, kv_column = place.kv_head * a.head_dim,
                     head = place.kv_head * (a.heads * a.head_dim / a.k.cols);
  const auto at = [&](const View& view, std::int64_t col) -> void* {
    if (!view.data) return nullptr;
    return static_cast<char*>(view.data) + (row * view.stride + col) * bytes_of(view.dtype);
  };
  const auto queries = [&](const View& view) { return at(view, head * a.head_dim); };
  const auto keys = [&](const View& view) { return at(view, kv_column); };
  void* const starts = a.starts.data ? address<std::int32_t>(a.starts) + row : nullptr;
  // By GraphRole, whose first two have no memory or their own.
  const std::array<void*, 15> by_role{nullptr,
                                      nullptr,
                                      const_cast<float*>(&a.scale),
                                      queries(a.q),
                                      keys(a.k),
                                      keys(a.v),
                                      queries(a.out),
                                      at(a.stats, head),
                                      starts,
                                      queries(args.d_out),
                                      queries(args.d_q),
                                      keys(args.d_k),
                                      keys(args.d_v),
                                      room.delta,
                                      room.d_q_sum};
  std::vector<void*> memory;
  for (const GraphTensor& tensor : graph.tensors)
    memory.push_back(tensor.role == GraphRole::value
                         ? const_cast<float*>(&tensor.number)
                         : by_role.at(static_cast<std::size_t>(tensor.role)));
  return memory;
}

}  // namespace axonn
