// The table of row-wise operations, and what a ForwardingBackend sees of an operation.
#include "axonn/ops/operations.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/ops/forwarding_backend.h"

using namespace axonn;
using testing::ElementsAreArray;
using testing::SizeIs;

namespace {

/// Calls f with an empty operation of each kind.
template <typename F>
void for_each_operation(F f) {
  [&]<typename... Operation>(std::type_identity<std::variant<Operation...>>) {
    (f(Operation{}), ...);
  }(std::type_identity<RowwiseOperation>{});
}

/// A view of memory that nothing reads.
View matrix(std::int64_t rows, std::int64_t cols, DType dtype) {
  static int memory = 0;
  return {&memory, dtype, rows, cols, cols};
}

Schedule::Compute recorded(const RowwiseOperation& operation) {
  Schedule schedule;
  make_dry_backend(&schedule)->run(operation);
  return std::get<Schedule::Compute>(schedule.events.at(0));
}

}  // namespace

TEST(RowwiseOperations, HaveDifferentNamesUnderWhichTheyAreRecorded) {
  EXPECT_THAT(std::set(kRowwiseNames.begin(), kRowwiseNames.end()), SizeIs(kRowwiseNames.size()));
  std::vector<std::string> names;
  for_each_operation(
      [&](const auto& operation) { names.push_back(recorded(operation).operation); });
  EXPECT_THAT(names, ElementsAreArray(kRowwiseNames));
}

TEST(RowwiseOperations, MoveTheBytesOfTheirOperandsWithoutThoseLeftOut) {
  const View x = matrix(10, 20, DType::bf16), weight = matrix(1, 20, DType::f32),
             stats = matrix(10, 2, DType::f32);
  const auto norm = recorded(ops::LayerNorm{.out = x, .inp = x, .weight = weight, .stats = stats});
  EXPECT_EQ(norm.kind, OperationKind::rowwise);
  EXPECT_THAT(norm.operands, SizeIs(4)) << "no bias";
  EXPECT_EQ(norm.bytes(), 2 * 400 + 80 + 80);
}

TEST(RowwiseOperations, OfAnEmbeddingMoveAsManyRowsOfItsTableAsThereAreTokens) {
  const View out = matrix(100, 50, DType::bf16), ids = matrix(1, 100, DType::i32);
  const auto forward =
      recorded(ops::Embedding{.out = out, .ids = ids, .table = matrix(100000, 50, DType::bf16)});
  EXPECT_THAT(forward.operands, SizeIs(3));
  EXPECT_EQ(forward.bytes(), 2 * 100 * 50 * 2);
  const auto backward = recorded(
      ops::EmbeddingBackward{.d_table = matrix(100000, 50, DType::f32), .d_out = out, .ids = ids});
  EXPECT_EQ(backward.bytes(), 100 * 50 * (2 + 2 * 4));
}

TEST(AttentionFlops, AreThoseOfThePairsOfItsQueriesOrElseOfHalfThePositions) {
  const View q = matrix(128, 24, DType::bf16), k = matrix(512, 8, DType::bf16);
  Attention args{.q = q, .k = k, .v = k, .out = q, .positions = 512, .heads = 3, .head_dim = 8};
  const auto flops = [&] {
    Schedule schedule;
    const auto backend = make_dry_backend(&schedule);
    backend->attention(args);
    backend->attention_backward({.forward = args, .d_out = q, .d_q = q, .d_k = k, .d_v = k});
    const auto of = [&](int i) { return std::get<Schedule::Compute>(schedule.events.at(i)).flops; };
    EXPECT_EQ(of(1), 2.5 * of(0));
    return of(0);
  };
  EXPECT_EQ(flops(), 2 * 128 * 512 * 24);
  const std::vector<std::int32_t> blocks{0, 3};
  args.query_blocks = matrix(1, 2, DType::i32);  // which a dry device cannot read
  args.pairs = attention_pairs(blocks);
  EXPECT_EQ(flops(), 4 * (64 * 32 + 64 * (192 + 32)) * 24);
}

TEST(RowwiseOperations, OfTheUpdateAreMarkedSo) {
  std::set<std::string> updates;
  for_each_operation([&](const auto& operation) {
    const Schedule::Compute compute = recorded(operation);
    if (compute.kind == OperationKind::update) updates.insert(compute.operation);
  });
  EXPECT_THAT(updates,
              testing::ElementsAre("adamw", "clip_factor", "divide_by_norm", "momentum",
                                   "moving_average", "sgd", "squared_sum", "weighted_sum"));
}
