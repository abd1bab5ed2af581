#pragma once

#include <cstdint>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

/// Copies each row of ordered sequences from its position in the stacked pieces, or to it. One team
/// per row. Bound by memory: 2 · R · C · sizeof(T) bytes.
template <typename T>
struct OrderBlocksKernel {
  Matrix<T> out;                        // (R, C)
  Matrix<const T> inp;                  // (R, C)
  const std::int32_t* slots;            // (R / 64)
  std::int64_t sequences, blocks, own;  // blocks of a sequence: in all pieces, in one
  int C;
  bool inverse;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const std::int64_t block = row_quotient(row, kSequenceBlock), slot = slots[block],
                       piece = row_quotient(slot, own),
                       at = (piece * sequences + row_quotient(block, blocks)) * own +
                            row_remainder(slot, own),
                       stacked = at * kSequenceBlock + row % kSequenceBlock;
    team.map(
        out.row(inverse ? stacked : row), C, [](auto x) { return x; },
        inp.row(inverse ? row : stacked));
  }
};

/// See ops::BranchCopies. One team for kCopyRows rows.
constexpr std::int64_t kCopyRows = 256;
struct BranchCopiesKernel {
  Matrix<std::int32_t> copy_rows;  // (R, 2)
  Matrix<float> weights;           // (R, 2)
  std::int32_t* starts;            // (2 · R)
  const std::int32_t* branches;    // (3 · B)
  std::int64_t rows, length;       // R, T

  AXONN_DEVICE void operator()(const auto& team, std::int64_t block) const {
    const std::int64_t begin = block * kCopyRows, left = rows - begin;
    team.each(static_cast<int>(left < kCopyRows ? left : kCopyRows), [=, this](int i) {
      const std::int64_t row = begin + i, sequence = row_quotient(row, length),
                         at = row - sequence * length, first = 2 * sequence * length;
      const std::int32_t* const of = branches + 3 * sequence;
      const std::int64_t shared = of[0], from = of[1], end = of[2];
      const bool second = at >= from && at < end, beside = at >= shared && at < from;
      const std::int64_t other = second ? at - from + shared : beside ? at + end - from : at;
      copy_rows.row(row)[0] = static_cast<std::int32_t>(first + at);
      copy_rows.row(row)[1] = static_cast<std::int32_t>(first + length + other);
      weights.row(row)[0] = second ? 0 : 1;
      weights.row(row)[1] = second ? 1 : 0;
      starts[first + at] = static_cast<std::int32_t>(at < from ? 0 : at);
      starts[first + length + other] = static_cast<std::int32_t>(second ? 0 : other);
    });
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void OrderBlocks::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("out", out, inp);
  const std::int64_t multiple = ways * kSequenceBlock;
  AXONN_CHECK(sequences > 0 && ways > 0 && inp.rows % (sequences * multiple) == 0,
              "order_blocks: inp is ", inp, ", want ", sequences, " sequences of a multiple of ",
              ways, " x ", kSequenceBlock, " positions");
  const std::int64_t blocks = inp.rows / sequences / kSequenceBlock;
  check.ids("slots", slots, sequences * blocks);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.rows({inp.rows, inp.cols}, rowwise::OrderBlocksKernel<T>{
                                          out, inp, address<const std::int32_t>(slots), sequences,
                                          blocks, blocks / ways, width(inp), inverse});
  });
}

void BranchCopies::run(auto launch, const Checker& check) const {
  const std::int64_t R = copy_rows.rows, sequences = branches.cols / 3;
  check.typed("copy_rows", copy_rows, DType::i32, R, 2);
  check.f32("weights", weights, R, 2);
  check.ids("starts", starts, 2 * R);
  check.ids("branches", branches, 3 * sequences);
  AXONN_CHECK(sequences > 0 && R % sequences == 0 && R <= (1 << 30), "branch_copies: copy_rows is ",
              copy_rows, ", want as many of at most 2^30 rows for each of ", sequences,
              " sequences");
  const std::int64_t each = rowwise::kCopyRows;
  launch.rows({(R + each - 1) / each, each, each},
              rowwise::BranchCopiesKernel{copy_rows, weights, address<std::int32_t>(starts),
                                          address<const std::int32_t>(branches), R, R / sequences});
}

}  // namespace axonn::ops
