// The attention graphs from which libraries make fused kernels, computed with plain loops.
#include "axonn/compute/ops/gpu/attention/attention_graph.h"

#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/attention_case.h"
#include "tests/compute/ops/graph_interpreter.h"

using namespace axonn;

namespace {

/// Computes attention by graphs, in pieces of at most `bytes` of probabilities.
class GraphBackend final : public ForwardingBackend {
 public:
  GraphBackend(bool ordered, std::int64_t bytes)
      : ForwardingBackend(nullptr), ordered_(ordered), bytes_(bytes) {}

  void attention(const Attention& args) override {
    compute(graph_shapes_of(args), {.forward = args});
  }
  void attention_backward(const AttentionBackward& args) override {
    compute(graph_shapes_of(args, ordered_), args);
  }

 private:
  void compute(const std::vector<AttentionGraphShape>& shapes, const AttentionBackward& args) {
    ASSERT_THAT(shapes, testing::Not(testing::IsEmpty()));
    if (shapes.front().adds_keys) {
      clear(args.d_k);
      clear(args.d_v);
    }
    std::int64_t query = 0;
    for (const AttentionGraphShape& shape : shapes) {
      const auto piece = graph_piece(shape, bytes_);
      ASSERT_TRUE(piece) << bytes_;
      const AttentionGraph graph = attention_graph(*piece);
      std::vector<char> memory(graph_bytes(*piece).total());
      const GraphRoom room = graph_room(*piece, memory.data());
      for (std::int64_t s = 0; s < shape.sequences; s += piece->sequences)
        for (std::int64_t k = 0; k < shape.kv_heads; k += piece->kv_heads) {
          interpret(graph, graph_memory(graph, args, room, {s, k, query}));
          if (!room.d_k) continue;
          add(args.d_k, static_cast<const bf16*>(room.d_k), *piece, {s, k});
          add(args.d_v, static_cast<const bf16*>(room.d_v), *piece, {s, k});
        }
      query += shape.queries;
    }
  }

  static void clear(const View& all) {
    for (std::int64_t r = 0; r < all.rows; ++r) std::fill_n(all.row<float>(r), all.cols, 0.0f);
  }
  /// f32 gradients of keys or values += the part that a graph has written apart.
  static void add(const View& all, const bf16* part, const AttentionGraphShape& piece,
                  const GraphOffset& place) {
    const std::int64_t width = piece.kv_heads * piece.head_dim;
    for (std::int64_t r = 0; r < piece.sequences * piece.keys(); ++r)
      for (std::int64_t c = 0; c < width; ++c) {
        const std::int64_t sequence = place.sequence + r / piece.keys();
        all.row<float>(sequence * piece.positions +
                       r % piece.keys())[place.kv_head * piece.head_dim + c] +=
            get(part[r * width + c]);
      }
  }

  bool ordered_;
  std::int64_t bytes_;
};

constexpr std::int64_t kWhole = std::int64_t{1} << 40;

/// Operands of an attention in bf16 with aligned rows.
struct Operands {
  Operand q, k, out, stats;
  Attention args;

  Operands(std::int64_t heads, std::int64_t kv_heads, std::int64_t width, std::int64_t group)
      : q(8, heads * width, DType::bf16),
        k(8, kv_heads * width, DType::bf16),
        out(8, heads * width, DType::bf16),
        stats(8, heads, DType::f32),
        args{.q = q,
             .k = k,
             .v = k,
             .out = out,
             .stats = stats,
             .positions = 4,
             .heads = heads,
             .head_dim = width,
             .group = group} {}
};

}  // namespace

TEST(AttentionGraph, EqualsPlainLoopsForwardAndBackwardForAnyHeadsGroupsAndLengths) {
  for (const bool ordered : {false, true}) {
    GraphBackend backend(ordered, kWhole);
    check_attention_case(backend, {1, {1, 1, 1, 8}, DType::bf16, 8});
    check_attention_case(backend, {2, {17, 3, 3, 16, 1, 0, 0.25}, DType::bf16, 8});
    check_attention_case(backend, {1, {65, 4, 2, 24, 2, 0, 0.2}, DType::bf16, 16});
    check_attention_case(backend, {2, {40, 6, 2, 40, 3, 0, 0.15}, DType::bf16, 8});
    check_attention_case(backend, {1, {33, 2, 1, 16, 4, 1, 0.2}, DType::bf16, 8});
  }
}

TEST(AttentionGraph, SeesOnlyTheKeysInTheWindowAndInTheDocument) {
  for (const bool ordered : {false, true}) {
    GraphBackend backend(ordered, kWhole);
    for (std::int64_t window : {1, 5, 31, 39, 40, 100})
      check_attention_case(backend, {1, {40, 2, 2, 8, 1, 0, 0.3, window}, DType::bf16, 8});
    for (std::int64_t window : {0, 7})
      check_attention_case(
          backend,
          {2, {50, 4, 2, 8, 2, 0, 0.3, window, starts_of(2, 50, {3, 1, 20})}, DType::bf16, 8});
  }
}

TEST(AttentionGraph, OfRunsOfQueriesEqualsPlainLoops) {
  const AttentionGraphShape whole{.sequences = 2,
                                  .positions = 320,
                                  .q_rows = 128,
                                  .first_position = 192,
                                  .queries = 128,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 8,
                                  .backward = true,
                                  .ordered = true,
                                  .adds_keys = true};
  for (const std::int64_t bytes : {kWhole, graph_bytes(whole).total() / 4 + 1024}) {
    GraphBackend backend(true, bytes);
    for (const std::vector<std::int32_t>& blocks :
         {std::vector<std::int32_t>{1, 3, 1, 3}, {0, 4, 0, 4}, {2, 3, 2, 3}, {4, 4}})
      for (const std::int64_t window : {0, 100}) {
        AttentionCase c{
            2, {320, 4, 2, 8, 2, 0, 0.3, window, starts_of(2, 320, {200, 50})}, DType::bf16, 8};
        c.shape.query_blocks = blocks;
        c.f32_sums = true;
        check_attention_case(backend, c);
      }
  }
}

// cuDNN's engines read constants of borders in other forms as other numbers, without an error.
TEST(AttentionGraph, StatesBordersInTheFormsThatCudnnsEnginesRecognise) {
  const AttentionGraphShape late{.sequences = 1,
                                 .positions = 256,
                                 .q_rows = 128,
                                 .first_position = 128,
                                 .queries = 64,
                                 .heads = 2,
                                 .kv_heads = 2,
                                 .head_dim = 64,
                                 .window = 100,
                                 .q_stride = 128,
                                 .k_stride = 128,
                                 .v_stride = 128,
                                 .out_stride = 128,
                                 .stats_stride = 2};
  const AttentionGraph graph = attention_graph(late);
  const auto constant = [&](const GraphNode& node) -> const GraphTensor& {
    return graph.tensors[static_cast<std::size_t>(node.b)];
  };
  std::vector<std::string> borders;
  for (const GraphNode& node : graph.nodes) {
    if (node.axis != 3 || node.op == GraphOp::index) continue;
    const GraphTensor& number = constant(node);
    const bool integer = number.type == GraphType::i32;
    EXPECT_EQ(graph.tensors[static_cast<std::size_t>(node.out)].type, number.type);
    borders.push_back(concat(node.op == GraphOp::add ? "+ " : "- ",
                             integer ? number.integer : number.number, integer ? " i32" : " f32"));
  }
  EXPECT_THAT(borders, testing::ElementsAre("+ 192 i32", "- 64 i32", "+ -28 f32"));
}

TEST(AttentionGraph, InPiecesOfSequencesAndOfKeyValueHeadsEqualsPlainLoops) {
  const AttentionGraphShape one{.sequences = 1,
                                .positions = 20,
                                .q_rows = 20,
                                .queries = 20,
                                .heads = 2,
                                .kv_heads = 1,
                                .head_dim = 8,
                                .backward = true,
                                .ordered = true};
  AttentionGraphShape two = one;
  two.kv_heads = 2;
  two.heads = 4;
  for (const AttentionGraphShape& most : {one, two}) {
    GraphBackend backend(true, graph_bytes(most).total());
    check_attention_case(
        backend, {4, {20, 8, 4, 8, 2, 0, 0.3, 0, starts_of(4, 20, {3, 9})}, DType::bf16, 8});
  }
}

TEST(AttentionGraph, PiecesAreTheLargestThatFitAndDivideTheWhole) {
  const AttentionGraphShape shape{.sequences = 12,
                                  .positions = 1024,
                                  .q_rows = 1024,
                                  .queries = 1024,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .backward = true,
                                  .ordered = true};
  const auto bytes_of_part = [&](std::int64_t sequences, std::int64_t kv_heads) {
    AttentionGraphShape part = shape;
    part.sequences = sequences;
    part.kv_heads = kv_heads;
    part.heads = 4 * kv_heads;
    return graph_bytes(part).total();
  };
  const auto piece = [&](std::int64_t bytes) {
    const auto got = graph_piece(shape, bytes);
    if (!got) return std::pair<std::int64_t, std::int64_t>();
    EXPECT_EQ(got->heads, 4 * got->kv_heads);
    return std::pair(got->sequences, got->kv_heads);
  };
  using Piece = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(piece(bytes_of_part(12, 8)), Piece(12, 8));
  EXPECT_EQ(piece(bytes_of_part(12, 8) - 1), Piece(6, 8));
  EXPECT_EQ(piece(bytes_of_part(5, 8)), Piece(4, 8));
  EXPECT_EQ(piece(bytes_of_part(1, 8) - 1), Piece(1, 4));
  EXPECT_EQ(piece(bytes_of_part(1, 1)), Piece(1, 1));
  EXPECT_EQ(piece(bytes_of_part(1, 1) - 1), Piece(0, 0)) << "none";
}

TEST(AttentionGraph, HasNoShapeForOperandsThatNoGraphComputes) {
  EXPECT_THAT(graph_shapes_of(Operands(4, 2, 16, 2).args), testing::SizeIs(1));
  EXPECT_THAT(graph_shapes_of(Operands(3, 1, 16, 4).args), testing::SizeIs(1));
  EXPECT_THAT(graph_shapes_of(Operands(4, 2, 12, 2).args), testing::IsEmpty())
      << "heads that are not aligned";
  EXPECT_THAT(graph_shapes_of(Operands(2, 3, 16, 2).args), testing::IsEmpty())
      << "a key-value head without queries";
  EXPECT_THAT(graph_shapes_of(Operands(0, 1, 16, 2).args), testing::IsEmpty()) << "no heads";
  Operands inside(4, 2, 16, 3);
  inside.args.first_query = 1;
  EXPECT_THAT(graph_shapes_of(inside.args), testing::IsEmpty())
      << "heads that begin inside a group";
  Operands beyond(3, 1, 16, 4);
  beyond.args.first_query = 1;
  EXPECT_THAT(graph_shapes_of(beyond.args), testing::SizeIs(1));
  Operands shifted(4, 2, 16, 2);
  shifted.args.q = shifted.args.q.col_range(1, 63);
  EXPECT_THAT(graph_shapes_of(shifted.args), testing::IsEmpty()) << "rows that are not aligned";
  Operands single(4, 2, 16, 2);
  single.args.q.dtype = DType::f32;
  EXPECT_THAT(graph_shapes_of(single.args), testing::IsEmpty()) << "f32";
  Operands some(4, 2, 16, 2);
  some.args.query_blocks = some.q;
  EXPECT_THAT(graph_shapes_of(some.args), testing::IsEmpty()) << "queries at some of the positions";
}

TEST(AttentionGraph, RefusesHeadsThatKeyValueHeadsDoNotDivide) {
  EXPECT_THAT(
      [] {
        attention_graph({.sequences = 1,
                         .positions = 4,
                         .q_rows = 4,
                         .queries = 4,
                         .heads = 3,
                         .kv_heads = 2,
                         .head_dim = 8});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("3 heads, 2 key-value heads of width 8")));
}
