#pragma once

#include <cstdint>

#include "axonn/tensor/tensor.h"

namespace axonn::rowwise {

/// Columns [begin, begin + count) of a row: the work of one team in kernels whose elements do not
/// depend on each other.
struct Tile {
  std::int64_t row, begin;
  int count;
  std::int64_t index;  ///< of this tile among all tiles of a launch
};

/// A matrix in device memory, which kernels take by value. Absent if data is null. Made from a View
/// of elements of T.
template <typename T>
struct Matrix {
  T* data = nullptr;
  std::int64_t stride = 0;  ///< elements from one row to the next

  Matrix() = default;
  AXONN_DEVICE Matrix(T* first, std::int64_t apart) : data(first), stride(apart) {}
  Matrix(const View& view) : data(view.as<T>()), stride(view.stride) {}  // NOLINT: see above

  AXONN_DEVICE T* row(std::int64_t r) const { return data + r * stride; }
  AXONN_DEVICE T* at(const Tile& tile) const { return row(tile.row) + tile.begin; }
};

/// Two results of a kernel body.
template <typename V>
struct Pair {
  V first, second;
};
template <typename V>
AXONN_DEVICE Pair<V> pair(V first, V second) {
  return {first, second};
}

/// The rows of a launch with one team per row.
struct RowWork {
  std::int64_t rows, cols;
  std::int64_t at_once = cols;  ///< columns that a team handles in one call of its functions
};

}  // namespace axonn::rowwise
