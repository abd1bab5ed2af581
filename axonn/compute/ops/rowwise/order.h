#pragma once

#include <cstdint>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

/// Copies each row of ordered sequences from its place in the stacked pieces, or to it. One team
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

}  // namespace axonn::ops
