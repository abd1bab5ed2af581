#pragma once

#include <bit>
#include <cstdint>

#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/tensor.h"

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
  Matrix(const View& view) : data(address<T>(view)), stride(view.stride) {}  // NOLINT: see above

  AXONN_DEVICE T* row(std::int64_t r) const { return data + r * stride; }
  AXONN_DEVICE T* at(const Tile& tile) const { return row(tile.row) + tile.begin; }
  /// The columns from c on.
  AXONN_DEVICE Matrix from(std::int64_t c) const { return {data + c, stride}; }
  /// Whether the first elements of all rows are a multiple of n elements apart.
  template <int n>
  AXONN_DEVICE bool apart() const {
    return stride % n == 0;
  }
};

/// A number in device memory, made from a View of one element of f32, bf16 or f16. Kernels that
/// read it once a row or tile are the same for every type of it.
struct Number {
  const void* at;
  DType type;

  Number(const View& view) : at(view.data), type(view.dtype) {}  // NOLINT: as Matrix is made

  AXONN_DEVICE float value() const {
    if (type == DType::bf16) return get(*static_cast<const bf16*>(at));
    if (type == DType::f16) return get(*static_cast<const f16*>(at));
    return *static_cast<const float*>(at);
  }
};

/// Divides numbers below 2^31 by the same one, by a product and a shift.
/// Source: Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.
struct Divisor {
  std::uint32_t value;
  int shift;
  std::uint64_t factor;

  explicit Divisor(int divisor)
      : value(static_cast<std::uint32_t>(divisor)),
        shift(32 + std::bit_width(value - 1)),
        factor(((std::uint64_t{1} << shift) + value - 1) / value) {}

  AXONN_DEVICE std::uint32_t quotient(std::uint32_t x) const {
    return static_cast<std::uint32_t>(x * factor >> shift);
  }
};

/// The heads of a matrix (R, h · D) as rows of D columns: row r · h + i is head i of row r. R · h
/// must be less than 2^31.
template <typename T>
struct HeadRows {
  Matrix<T> all;  // (R, h · D)
  Divisor heads;
  int D;

  AXONN_DEVICE T* row(std::int64_t r) const {
    const auto i = static_cast<std::uint32_t>(r), row = heads.quotient(i);
    return all.row(row) + static_cast<std::int64_t>(i - row * heads.value) * D;
  }
  AXONN_DEVICE HeadRows from(std::int64_t c) const { return {all.from(c), heads, D}; }
  template <int n>
  AXONN_DEVICE bool apart() const {
    return all.template apart<n>() && D % n == 0;
  }
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

/// A row of which each number counts `factor` times; values null: none.
template <typename T>
struct ScaledRow {
  const T* values;
  double factor;
};

/// Rows of a matrix to add up in their order, each times its weight.
struct RowTerms {
  const std::int32_t* rows;  // (count)
  const float* weights;      // (count), or null: all are 1
  int count;

  AXONN_DEVICE float weight(int j) const { return weights ? weights[j] : 1.0f; }
};

/// The rows of a launch with one team per row.
struct RowWork {
  std::int64_t rows, cols;
  std::int64_t at_once = cols;  ///< columns that a team handles in one call of its functions
};

/// The heads of a launch: a team has some of a row's.
struct HeadWork {
  std::int64_t rows, heads, width;
  std::int64_t at_once = width;  ///< as of RowWork
};

/// The heads that a team has of a row.
struct HeadSpan {
  int begin, end;
};

}  // namespace axonn::rowwise
