// The attention graphs from which libraries make fused kernels, computed with plain loops.
#include "axonn/ops/cuda/attention/attention_graph.h"

#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/ops/forwarding_backend.h"

#include "tests/ops/attention_case.h"
#include "tests/ops/graph_interpreter.h"

using namespace axonn;

namespace {

/// Computes attention by graphs, in pieces of at most `bytes` of probabilities.
class GraphBackend final : public ForwardingBackend {
 public:
  GraphBackend(bool ordered, std::int64_t bytes)
      : ForwardingBackend(nullptr), ordered_(ordered), bytes_(bytes) {}

  void attention(const Attention& args) override {
    compute(graph_shape_of(args), {.forward = args});
  }
  void attention_backward(const AttentionBackward& args) override {
    compute(graph_shape_of(args, ordered_), args);
  }

 private:
  void compute(const std::optional<AttentionGraphShape>& shape, const AttentionBackward& args) {
    ASSERT_TRUE(shape);
    const AttentionGraphShape piece = graph_piece(*shape, bytes_);
    const AttentionGraph graph = attention_graph(piece);
    std::vector<float> delta(piece.sequences * piece.heads * piece.positions),
        d_q_sum(delta.size() * piece.head_dim);
    for (std::int64_t s = 0; s < shape->sequences; s += piece.sequences)
      for (std::int64_t k = 0; k < shape->kv_heads; k += piece.kv_heads)
        interpret(graph, graph_memory(graph, args, {delta.data(), d_q_sum.data()}, {s, k}));
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

TEST(AttentionGraph, InPiecesOfSequencesAndOfKeyValueHeadsEqualsPlainLoops) {
  for (std::int64_t bytes : {1, 2 * 20 * 20 * 2 * 2, 2 * 20 * 20 * 2 * 4}) {
    GraphBackend backend(true, bytes);
    check_attention_case(
        backend, {4, {20, 8, 4, 8, 2, 0, 0.3, 0, starts_of(4, 20, {3, 9})}, DType::bf16, 8});
  }
}

TEST(AttentionGraph, PiecesTakeAShareOfTheGpusMemoryWithinBounds) {
  constexpr std::int64_t kMiB = 1 << 20, kGiB = 1 << 30;
  EXPECT_EQ(score_bytes_of(4 * kGiB), 256 * kMiB);
  EXPECT_EQ(score_bytes_of(40 * kGiB), 640 * kMiB);
  EXPECT_EQ(score_bytes_of(141 * kGiB), 2 * kGiB);
}

TEST(AttentionGraph, PiecesAreTheLargestThatFitAndDivideTheWhole) {
  const AttentionGraphShape shape{
      .sequences = 12, .positions = 1024, .heads = 32, .kv_heads = 8, .head_dim = 128};
  constexpr std::int64_t kHead = std::int64_t{2} << 20;
  const auto piece = [&](std::int64_t heads) {
    const AttentionGraphShape got = graph_piece(shape, heads * kHead);
    EXPECT_EQ(got.heads, 4 * got.kv_heads);
    return std::pair(got.sequences, got.kv_heads);
  };
  EXPECT_EQ(piece(12 * 32), std::pair(std::int64_t{12}, std::int64_t{8}));
  EXPECT_EQ(piece(12 * 32 - 1), std::pair(std::int64_t{6}, std::int64_t{8}));
  EXPECT_EQ(piece(5 * 32), std::pair(std::int64_t{4}, std::int64_t{8}));
  EXPECT_EQ(piece(31), std::pair(std::int64_t{1}, std::int64_t{4}));
  EXPECT_EQ(piece(7), std::pair(std::int64_t{1}, std::int64_t{1}));
  EXPECT_EQ(piece(0), std::pair(std::int64_t{1}, std::int64_t{1}));
}

TEST(AttentionGraph, HasNoShapeForOperandsThatNoGraphComputes) {
  EXPECT_TRUE(graph_shape_of(Operands(4, 2, 16, 2).args));
  EXPECT_TRUE(graph_shape_of(Operands(3, 1, 16, 4).args));
  EXPECT_FALSE(graph_shape_of(Operands(4, 2, 12, 2).args)) << "heads that are not aligned";
  EXPECT_FALSE(graph_shape_of(Operands(2, 3, 16, 2).args)) << "a key-value head without queries";
  EXPECT_FALSE(graph_shape_of(Operands(0, 1, 16, 2).args)) << "no heads";
  Operands inside(4, 2, 16, 3);
  inside.args.first_query = 1;
  EXPECT_FALSE(graph_shape_of(inside.args)) << "heads that begin inside a group";
  Operands beyond(3, 1, 16, 4);
  beyond.args.first_query = 1;
  EXPECT_TRUE(graph_shape_of(beyond.args));
  Operands shifted(4, 2, 16, 2);
  shifted.args.q = shifted.args.q.col_range(1, 63);
  EXPECT_FALSE(graph_shape_of(shifted.args)) << "rows that are not aligned";
  Operands single(4, 2, 16, 2);
  single.args.q.dtype = DType::f32;
  EXPECT_FALSE(graph_shape_of(single.args)) << "f32";
  Operands some(4, 2, 16, 2);
  some.args.query_blocks = some.q;
  EXPECT_FALSE(graph_shape_of(some.args)) << "queries at some of the positions";
}

TEST(AttentionGraph, RefusesHeadsThatKeyValueHeadsDoNotDivide) {
  EXPECT_THAT(
      [] {
        attention_graph({.sequences = 1, .positions = 4, .heads = 3, .kv_heads = 2, .head_dim = 8});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("3 heads, 2 key-value heads of width 8")));
}
