#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/tensor.h"

namespace axonn {

/// Checksums of the bytes that operations and collectives write to a rank's memory, from the write
/// to the reads, in lines of 64 bytes: 10 bytes for each. A line has the sum of those of its bytes
/// that the last write covered, joined with what was there if they touch.
///
/// A change of one or two words always changes the sum, others with a chance of 2⁻⁶⁰. A single bit
/// that has flipped is found by trying all of them, and set right. Memory that is not the arena's,
/// or that was allocated since the last write, has no sums. In the host's memory only.
class ValueSums {
 public:
  /// A reference to the arena is kept. `threads` compute the sums of large values.
  ValueSums(Arena& arena, int threads);
  ~ValueSums();
  ValueSums(const ValueSums&) = delete;
  ValueSums& operator=(const ValueSums&) = delete;

  /// Takes the bytes as they are now as right.
  void keep(const View& view);
  void keep(const void* data, std::int64_t bytes);
  /// Forgets the lines, which are about to be written.
  void forget(const void* data, std::int64_t bytes);

  /// While a collective reads them, a bit that has flipped may have been sent: comparisons do not
  /// set it right.
  void hold(const void* data, std::int64_t bytes);
  void release(const void* data, std::int64_t bytes);

  /// What comparisons found.
  struct Found {
    std::int64_t repaired = 0;  ///< bits that are set right
    std::int64_t lost = 0;      ///< lines that are not
  };
  Found compare(const View& view);
  Found compare(const void* data, std::int64_t bytes);
  Found compare_all();

  static constexpr std::int64_t kLine = 64;  ///< bytes

 private:
  using Address = std::uintptr_t;

  struct Segment {
    Address begin = 0, end = 0;
    std::vector<std::uint64_t> sums;
    std::vector<std::uint8_t> from, to;  // the bytes of a line that its sum covers
  };

  Segment* segment_of(const void* data);
  void follow_arena();
  /// Calls f(line, from, to) for each line of which the run has bytes.
  template <typename F>
  void for_lines(const Segment& segment, Address begin, std::int64_t bytes, const F& f) const;
  bool is_held(Address begin, std::int64_t bytes) const;
  static void repair_line(Segment& segment, std::int64_t line, Found& found);

  Arena& arena_;
  int threads_;
  std::int64_t device_calls_ = -1;  // of the arena, when segments_ were its segments
  std::vector<Segment> segments_;
  std::vector<std::pair<Address, std::int64_t>> held_;  // begin, bytes
};

}  // namespace axonn
