#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "axonn/tensor/tensor.h"

namespace axonn::bench {

/// Memory for an operation's arguments, filled with numbers between 0 and 1 and written by the
/// threads that will use it. Views given out lie until the next clear().
class Memory {
 public:
  View view(std::int64_t rows, std::int64_t cols, DType dtype);
  /// (1, count) i32, spread over [0, bound).
  View ids(std::int64_t count, std::int64_t bound);
  void clear() { used_ = 0; }

 private:
  std::vector<std::vector<float>> values_;
  std::size_t used_ = 0;
};

/// What an operation moves through memory: arrays that it reads, reads and writes, and writes.
struct Streams {
  int read = 0, update = 0, write = 0;
};

/// The rates of vector instructions of `threads` threads together, in giga a second: what a
/// register of 16 floats takes where nothing waits for anything.
struct VectorRates {
  double multiply = 0;  ///< fused multiply-adds
  double issue = 0;     ///< additions of integers, which any unit does
  double divide = 0, root = 0;
};
VectorRates vector_rates(int threads);

/// Vector instructions that an operation needs for each 16 elements, loads and stores not counted.
struct VectorWork {
  double multiplies = 0;  ///< products, fused with a sum or not
  double others = 0;      ///< sums, maxima, comparisons, shifts, conversions
  int divisions = 0, roots = 0;

  /// Least seconds for `registers` of 16 elements: the busier of the units for products and for
  /// divisions, or what all units together can begin.
  double seconds(double registers, const VectorRates& rates) const;
};

/// The best seconds of two functions, called in turn `burst` times each, so that each finds in
/// cache what it left there; the first call of a burst does not count where there are more.
struct Pair {
  double first, second;
};
Pair best_of(int repetitions, const std::function<void()>& first,
             const std::function<void()>& second, int burst = 1);
double best_of(int repetitions, const std::function<void()>& run);

/// Moves `bytes` in as many streams of f32 as `streams` has (each of the same length, an update
/// counted twice) with ordinary loads and stores: the bandwidth that the same pattern of access
/// gets where nothing is computed. Errors: more streams than it was made for.
std::function<void()> stream(Memory& memory, int threads, Streams streams, std::int64_t bytes);

}  // namespace axonn::bench
