#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// For each sequence another permutation of its blocks.
std::vector<std::int32_t> permutations(std::int64_t sequences, std::int64_t blocks) {
  std::vector<std::int32_t> all;
  for (std::int64_t s = 0; s < sequences; ++s) {
    const std::vector<std::int32_t> keys = random_ids("keys " + std::to_string(s), blocks, 1 << 30);
    std::vector<std::int32_t> order(blocks);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::int32_t i) { return keys[i]; });
    all.insert(all.end(), order.begin(), order.end());
  }
  return all;
}

/// The rows of ordered sequences stacked as pieces: piece by piece, and in each the rows of one
/// sequence after another.
Matrix stacked(const Matrix& ordered, const std::vector<std::int32_t>& slots,
               std::int64_t sequences, int ways) {
  const std::int64_t T = ordered.rows / sequences, own = T / ways;
  Matrix out(ordered.rows, ordered.cols);
  std::int64_t to = 0;
  for (int piece = 0; piece < ways; ++piece)
    for (std::int64_t b = 0; b < sequences; ++b)
      for (std::int64_t r = piece * own; r < (piece + 1) * own; ++r, ++to) {
        const auto first = slots.begin() + b * T / 64;
        const std::int64_t block = std::find(first, first + T / 64, r / 64) - first;
        for (std::int64_t c = 0; c < ordered.cols; ++c)
          out(to, c) = ordered(b * T + block * 64 + r % 64, c);
      }
  return out;
}

}  // namespace

TEST(OrderBlocks, MovesRowsBetweenTheStackedPiecesOfRanksAndTheOrderOfPositions) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes)
    for (const std::int64_t sequences : {1, 3})
      for (const int ways : {1, 2, 4})
        for (const std::int64_t C : {1, 24, 65}) {
          const std::int64_t R = sequences * 256;
          const std::vector<std::int32_t> slots = permutations(sequences, 4);
          // Columns of wider matrices.
          const Matrix rows = random_values("rows", R, C, type),
                       pieces = stacked(rows, slots, sequences, ways);
          const Operand ordered(rows, type, 3), in_pieces(pieces, type, 8), to_order(R, C, type, 5),
              to_pieces(R, C, type, 1), at(slots);
          ops::OrderBlocks order{
              .out = to_order, .inp = in_pieces, .slots = at, .sequences = sequences, .ways = ways};
          backend->run(order);
          EXPECT_TRUE(close(to_order, rows, {}));
          order.inverse = true;
          order.out = to_pieces;
          order.inp = ordered;
          backend->run(order);
          EXPECT_TRUE(close(to_pieces, pieces, {}));
        }
}

TEST(OrderBlocks, OfAnyValuesKeepsTheirBits) {
  const auto backend = test_backend();
  const Operand inp(Matrix(64, 8, std::numeric_limits<double>::infinity()), DType::bf16),
      out(64, 8, DType::bf16), at(std::vector<std::int32_t>(1));
  backend->run(ops::OrderBlocks{.out = out, .inp = inp, .slots = at, .sequences = 1});
  EXPECT_EQ(out.memory(), inp.memory());
}

TEST(OrderBlocks, RefusesSequencesThatAreNotWholeBlocksOfEveryPiece) {
  const Operand out(384, 2, DType::f32), inp(384, 2, DType::f32), at(std::vector<std::int32_t>(6)),
      few(std::vector<std::int32_t>(5));
  const auto order = [&](std::int64_t sequences, int ways) {
    return ops::OrderBlocks{
        .out = out, .inp = inp, .slots = at, .sequences = sequences, .ways = ways};
  };
  test_backend()->run(order(2, 3));
  expect_refusal("order_blocks: inp is (384,2) f32, want 2 sequences of a multiple of 2 x 64",
                 order(2, 2));
  expect_refusal("want 0 sequences", order(0, 1));
  expect_refusal("a multiple of 0 x 64", order(1, 0));
  ops::OrderBlocks wrong = order(1, 1);
  wrong.slots = few;
  expect_refusal("order_blocks: slots is (1,5) i32, want (1,6)", wrong);
}

TEST(BranchCopies, PutEachBranchBehindTheRowsThatBothBeginWith) {
  constexpr std::int32_t kLength = 300;  // more rows than a team has
  const std::vector<std::array<std::int32_t, 3>> branches = {
      {70, 150, 260}, {0, 100, 100}, {0, kLength, kLength}, {kLength, kLength, kLength}};
  std::vector<std::int32_t> given, starts;
  std::vector<double> copy_rows, weights;
  for (const auto& [shared, second, end] : branches) {
    given.insert(given.end(), {shared, second, end});
    std::vector<std::int32_t> order;  // rows of the sequence of the second branch
    const auto add = [&](std::int32_t from, std::int32_t to) {
      for (std::int32_t row = from; row < to; ++row) order.push_back(row);
    };
    add(0, shared), add(second, end), add(shared, second), add(end, kLength);
    const auto first = static_cast<double>(starts.size());
    for (std::int32_t row = 0; row < kLength; ++row) {
      const auto at = std::ranges::find(order, row) - order.begin();
      copy_rows.insert(copy_rows.end(), {first + row, first + kLength + static_cast<double>(at)});
      const bool of_second = row >= second && row < end;
      weights.insert(weights.end(), {of_second ? 0.0 : 1.0, of_second ? 1.0 : 0.0});
      starts.push_back(row < second ? 0 : row);
    }
    for (std::int32_t at = 0; at < kLength; ++at)
      starts.push_back(order[at] >= second && order[at] < end ? 0 : at);
  }
  const auto R = static_cast<std::int64_t>(branches.size()) * kLength;
  Operand of(R, 2, DType::i32), by(R, 2, DType::f32), from(std::vector<std::int32_t>(2 * R));
  test_backend()->run(ops::BranchCopies{
      .copy_rows = of, .weights = by, .starts = from, .branches = Operand(given)});
  EXPECT_EQ(of.values().values, copy_rows);
  EXPECT_EQ(by.values().values, weights);
  EXPECT_EQ(from.memory(), Operand(starts).memory());
}
