#pragma once

#include <cstdint>

#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

/// delta[row][head] = the sum of d_out · out over the head's columns, as the gradient of attention
/// needs it. One team per row. Bound by memory: 2 · R · h · D · sizeof(T) bytes.
template <typename T>
struct HeadDots {
  Matrix<float> delta;         // (R, h)
  Matrix<const T> d_out, out;  // (R, h · D)
  std::int64_t heads;
  int D;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    for (std::int64_t h = 0; h < heads; ++h) {
      const float sum = team.sum(
          D, [](auto a, auto b) { return a * b; }, d_out.row(row) + h * D, out.row(row) + h * D);
      team.once([&] { delta.row(row)[h] = sum; });
    }
  }
};

}  // namespace axonn::rowwise
