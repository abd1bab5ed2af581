#pragma once

#include <cstdint>

#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

/// Rotates the pairs (x[i], x[i + D/2]) of every head by the angles of the row's position:
///
///   out[i] = x[i] · cos - x[i + D/2] · sin        out[i + D/2] = x[i + D/2] · cos + x[i] · sin
///
/// and by the opposite angles if `sign` is -1, as a gradient needs. One team per row. Bound by
/// memory: 2 · R · h · D · sizeof(T) bytes; all heads of a row share its angles.
/// Source: Su et al., "RoFormer", 2021, with the halves of a head paired, as Hugging Face does.
template <typename T>
struct RotaryKernel {
  Matrix<T> out;              // (R, h · D), may be inp
  Matrix<const T> inp;        // (R, h · D)
  Matrix<const float> table;  // (T, D): each row cosines, then sines
  std::int64_t count;         // T
  int heads, D;
  float sign;
  const std::int32_t* positions;  // (R), or null: row % T

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, std::int64_t row) const {
    const int half = D / 2;
    const float* cosine = table.row(positions ? positions[row] : row % count);
    for (int h = 0; h < heads; ++h) {
      const T* x = inp.row(row) + h * D;
      T* y = out.row(row) + h * D;
      team.map_pair(
          y, y + half, half,
          [s = sign](auto a, auto b, auto cos, auto sin) {
            return pair(a * cos - b * (s * sin), b * cos + a * (s * sin));
          },
          x, x + half, cosine, cosine + half);
    }
  }
};

}  // namespace axonn::rowwise
