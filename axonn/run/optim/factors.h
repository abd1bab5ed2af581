#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "axonn/ranks/parallel/parameters.h"

namespace axonn {

/// The kinds of factored second moments in checkpoints: mean squares of a matrix's rows, which lie
/// in its column 0, and of its columns, in its row 0. Those of a vector's rows are its elements'.
inline constexpr std::array<const char*, 2> kFactorKinds = {"exp_avg_sq_row", "exp_avg_sq_col"};

/// Where factors of a group's parameters lie: one number for each global row of each parameter, and
/// one for each column of a matrix. All of them are one flat vector (N), cut over all ranks in
/// equal pieces, whatever the parameters' own cuts are. Arithmetic alone.
///
///   example   a matrix (8, 4) and a vector (8), on two ranks: rows of the matrix are [0, 8), its
///             columns [32, 36), the vector is [64, 72); N = 128, a piece has 64
class FactorLayout {
 public:
  /// The group must outlive it; all its parameters are declared.
  explicit FactorLayout(const ParameterGroup& group);

  /// One parameter's factors.
  struct Factored {
    const ParameterSpec* spec = nullptr;
    std::int64_t rows_begin = 0, cols_begin = 0;  ///< in the flat vector
    /// Whether it has no factors of columns.
    bool is_vector() const { return spec->layout.cols == 1; }
    std::int64_t rows() const { return spec->layout.rows; }
    std::int64_t cols() const { return spec->layout.cols; }
  };
  const std::vector<Factored>& factored() const { return factored_; }
  /// The index in factored() of a parameter of the group.
  std::size_t index_of(const ParameterSpec& spec) const { return indices_.at(&spec); }

  std::int64_t flat() const { return piece_ * ranks_; }  ///< N
  std::int64_t piece() const { return piece_; }          ///< of each rank
  /// Those of all ranks without padding.
  std::int64_t count() const { return count_; }
  /// The parts of parameters in this rank's piece of a kind of kFactorKinds, as checkpoints know
  /// them.
  const std::vector<NamedSlice>& slices(std::size_t kind) const { return slices_[kind]; }

 private:
  void add_slice(std::size_t kind, const ParameterSpec& spec, std::int64_t begin, int rank);

  std::vector<Factored> factored_;
  std::unordered_map<const ParameterSpec*, std::size_t> indices_;
  std::int64_t piece_ = 0, ranks_ = 1, count_ = 0;
  std::array<std::vector<NamedSlice>, kFactorKinds.size()> slices_;
};

/// A rectangle of a slice's elements: rows [row, row + rows) × columns [col, col + cols) of the
/// slice's matrix. They lie from `offset` on in the buffer that the slice's elements begin.
struct Rectangle {
  std::int64_t row = 0, col = 0, rows = 0, cols = 0, offset = 0;

  /// These elements in `flat`, where the slice begins.
  View in(const View& flat) const {
    View part = flat.col_range(offset, rows * cols);
    part.rows = rows;
    part.cols = part.stride = cols;
    return part;
  }
};

/// Calls f(rectangle) for at most three rectangles that make up a slice.
void for_rectangles(const Slice& slice, const auto& f) {
  const std::int64_t width = slice.cols;
  for (std::int64_t e = slice.begin; e < slice.end;) {
    const std::int64_t row = e / width, col = e % width, left = slice.end - e;
    const std::int64_t rows = col == 0 ? std::max<std::int64_t>(1, left / width) : 1,
                       cols = std::min(left, width - col);
    f(Rectangle{slice.row + row, slice.col + col, rows, cols, e - slice.begin});
    e += rows * cols;
  }
}

}  // namespace axonn
