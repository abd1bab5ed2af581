#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/ops/rowwise/launch.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

/// Copies each head of a token, D columns, to its entry in the token's slot. One team per row.
/// Bound by memory: 2 · R · k · D · sizeof(T) bytes.
template <typename T>
struct KeepHeadsKernel {
  Matrix<T> kept;                 // (slots · k · entries, D)
  Matrix<const T> inp;            // (R, k · D)
  const std::int32_t* slots;      // (R), negative: the row is skipped
  const std::int32_t* positions;  // (R)
  std::int64_t entries, heads;
  int D;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    if (slots[row] < 0) return;
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t first = (slots[row] * heads + h) * entries;
      team.map(
          kept.row(first + positions[row] % entries), D, [](float x) { return x; },
          inp.row(row) + h * D);
    }
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void KeepHeads::run(auto launch) const {
  const Checker check{kName};
  const std::int64_t D = kept.cols;
  check.values("inp", inp);
  check.type("kept", kept, {inp.dtype});
  AXONN_CHECK(entries > 0 && D > 0 && inp.cols % D == 0 &&
                  kept.rows % std::max<std::int64_t>(1, inp.cols / D * entries) == 0,
              "keep_heads: inp ", inp, ", kept ", kept,
              ", want whole heads in inp, and whole slots of ", entries,
              " entries for each of them in kept");
  check.ids("slots", slots, inp.rows);
  check.ids("positions", positions, inp.rows);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.rows({inp.rows, inp.cols, D},
                rowwise::KeepHeadsKernel<T>{kept, inp, slots.as<const std::int32_t>(),
                                            positions.as<const std::int32_t>(), entries,
                                            inp.cols / D, width(kept)});
  });
}

}  // namespace axonn::ops
