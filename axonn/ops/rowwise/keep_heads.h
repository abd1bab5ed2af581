#pragma once

#include <cstdint>

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
