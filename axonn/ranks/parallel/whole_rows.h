#pragma once

#include <cstdint>
#include <vector>

#include "axonn/ranks/parallel/context.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// The rows of whole sequences in host memory, where a rank may hold only a part of each
/// (SequenceShare).
class WholeRows {
 public:
  WholeRows() = default;
  /// Of this rank's rows. Collective over the ranks that share their sequences.
  WholeRows(const Context& ctx, const Rows& rows);

  /// Rows of each sequence.
  std::int64_t positions() const { return positions_; }
  /// The values of all rows, sequence by sequence, from those of this rank's rows, `cols` each, of
  /// type float or std::int32_t. Collective as the constructor; the same on every rank.
  template <typename T>
  std::vector<T> gather(std::vector<T> own, std::int64_t cols = 1) const;
  /// From the values of all rows, one each, those of this rank's rows.
  std::vector<float> own(const std::vector<float>& whole) const;

 private:
  /// The row, among all, of the first of the rows of block i of a rank.
  std::int64_t first_row(std::int64_t rank, std::int64_t i) const;

  Communicator* among_ = nullptr;  // the ranks that share sequences; null: each has its own
  std::int64_t sequences_ = 0, positions_ = 0;
  std::int64_t own_blocks_ = 0;       // of each rank, of all sequences together
  std::vector<std::int32_t> blocks_;  // SequenceShare::numbers, of one rank after another
};

}  // namespace axonn
