#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/ranks/comm/call.h"

namespace axonn {

/// The work of one collective whose ranks share memory, cut into pieces. Any threads may run the
/// pieces, in any order and concurrently. A default-constructed Pieces has no work.
class Pieces {
 public:
  Pieces() = default;
  /// `calls` has the calls of all ranks in rank order (or a send, then its recv), which must match.
  explicit Pieces(std::vector<Call> calls);

  std::int64_t count() const { return count_; }
  /// Approximate bytes that all pieces together read and write.
  std::int64_t bytes() const { return bytes_; }
  void run(std::int64_t piece) const;

 private:
  void reduce_to(std::span<const Call> receivers, std::int64_t begin, std::int64_t inp_begin,
                 std::int64_t count) const;
  void exchange(int rank, std::int64_t begin, std::int64_t count) const;

  std::vector<Call> calls_;
  std::int64_t n_ = 0;       // elements of one rank's part (Call::count)
  std::int64_t grain_ = 1;   // elements of a chunk of such a part
  std::int64_t chunks_ = 0;  // number of chunks of such a part
  std::int64_t count_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace axonn
