#pragma once

#include <cstdint>

#include "axonn/tensor/tensor.h"

namespace axonn::rowwise {

/// Rows in device memory, as a kernel takes them by value. Absent where data is null.
template <typename T>
struct Matrix {
  T* data = nullptr;
  std::int64_t stride = 0;  ///< elements from one row to the next

  AXONN_DEVICE T* row(std::int64_t r) const { return data + r * stride; }
};

template <typename T>
Matrix<T> matrix(const View& view) {
  return {static_cast<T*>(view.data), view.stride};
}

/// What a body returns for two results at once.
template <typename V>
struct Pair {
  V first, second;
};
template <typename V>
AXONN_DEVICE Pair<V> pair(V first, V second) {
  return {first, second};
}

/// Columns [begin, begin + count) of a row: what a team does at a time where elements do not depend
/// on each other.
struct Tile {
  std::int64_t row, begin;
  int count;
  std::int64_t index;  ///< of this tile among all of a launch
};

}  // namespace axonn::rowwise
