#pragma once

#include <cstdint>
#include <vector>

#include "axonn/comm/call.h"

namespace axonn {

/// The work of one collective whose ranks share memory, cut into pieces that may be done in any
/// order, by any threads, at the same time. Empty: nothing to do.
class Pieces {
 public:
  Pieces() = default;
  /// The calls of all ranks in rank order (a send, then its recv); they agree.
  explicit Pieces(std::vector<Call> calls);

  std::int64_t count() const { return count_; }
  /// Bytes that all pieces together read and write, about.
  std::int64_t bytes() const { return bytes_; }
  void run(std::int64_t piece) const;

 private:
  struct Range {
    std::int64_t begin, count;
  };
  Range range(std::int64_t chunk) const;
  void reduce_range(Range range, std::int64_t inp_begin, int only_rank) const;
  void copy(int to, std::int64_t to_begin, int from, std::int64_t from_begin,
            std::int64_t count) const;
  void exchange(int rank, Range range) const;

  std::vector<Call> calls_;
  std::int64_t n_ = 0;       // elements of one rank's part (Call::count)
  std::int64_t grain_ = 1;   // elements of a chunk of it
  std::int64_t chunks_ = 0;  // chunks of one part
  std::int64_t count_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace axonn
