#pragma once

#include <bit>
#include <cstdint>

#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// Reduces a whole matrix to one number: one team per tile writes a partial result, then one team
// adds these in their order. Sums are double. Bound by memory: R · C · sizeof(T) bytes.

template <typename T>
struct SumPartials {
  double* partial;      // (tiles)
  Matrix<const T> inp;  // (R, C)

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    const double total = team.sum_double(
        tile.count, [](auto x) { return x; }, inp.row(tile.row) + tile.begin);
    team.once([&] { partial[tile.index] = total; });
  }
};

template <typename T>
struct SquaredSumPartials {
  double* partial;      // (tiles)
  Matrix<const T> inp;  // (R, C)

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    const double total = team.sum_double(
        tile.count, [](auto x) { return x * x; }, inp.row(tile.row) + tile.begin);
    team.once([&] { partial[tile.index] = total; });
  }
};

/// Counts the elements whose exponent bits are all ones: NaN and infinities.
template <typename T>
struct NonfinitePartials {
  std::int64_t* partial;  // (tiles)
  Matrix<const T> inp;    // (R, C)

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    const int total = team.count_if(
        tile.count,
        [](float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) == 0x7f800000u; },
        inp.row(tile.row) + tile.begin);
    team.once([&] { partial[tile.index] = total; });
  }
};

/// out += the partials, in their order.
template <typename T>
struct AddPartials {
  T* out;
  const T* partial;
  std::int64_t count;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile) const {
    team.once([&] {
      T total = 0;
      for (std::int64_t i = 0; i < count; ++i) total += partial[i];
      *out += total;
    });
  }
};

}  // namespace axonn::rowwise
