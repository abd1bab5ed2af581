#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// How the ranks of Grid::context(), which share sequences, exchange rows: each has some positions
/// of all heads, and gets all positions of some heads, for layers that go through a sequence from
/// its beginning to its end. Each call is collective, in the same order on all of these ranks.
///
///   elements that a rank sends and gets   (c - 1)/c of its (R, sum of C_i), C_i the columns of
///                                         rank i's heads
class HeadExchange {
 public:
  /// Of the rows of a chunk, whose sequences are shared, without a halo.
  HeadExchange(const Context& ctx, const Chunk& chunk);

  int ranks() const { return group_.size(); }
  int rank() const { return group_.rank(); }
  /// Whole sequences, B · T.
  std::int64_t rows() const { return here_ * ranks(); }

  /// Calls fill(i, to) for each rank i, which writes the columns of its heads, `to` (R, cols[i]).
  /// Returns the columns of this rank's heads in rows of whole sequences: (B·T, cols[rank()]).
  Tensor gather(const std::vector<std::int64_t>& cols, DType dtype,
                const std::function<void(int i, const View& to)>& fill) const;
  /// The other way round: takes (B·T, cols[rank()]) and calls take(i, from) with the columns of
  /// each rank's heads in this rank's rows, (R, cols[i]).
  void scatter(const Tensor& whole, const std::vector<std::int64_t>& cols,
               const std::function<void(int i, const View& from)>& take) const;
  /// Rows::start of whole sequences, (1, B·T) i32; empty if the chunk has none.
  Tensor starts() const;

 private:
  Tensor exchanged(const Tensor& inp, const std::vector<std::int64_t>& to,
                   const std::vector<std::int64_t>& from) const;
  Tensor reordered(const Tensor& inp, bool inverse) const;
  void order(const View& out, const View& inp, bool inverse) const;

  const Context& ctx_;
  Communicator& group_;
  std::int64_t here_, sequences_;
  View slots_, starts_;  // of these sequences; of these rows
};

}  // namespace axonn
