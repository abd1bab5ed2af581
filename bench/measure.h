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

/// The rates of vector instructions of `threads` threads together, each on kLanes floats, in giga a
/// second: fused multiply-adds, divisions, square roots.
struct VectorRates {
  double fma = 0, divide = 0, root = 0;
};
VectorRates vector_rates(int threads);

/// Vector instructions on 16 lanes that an operation needs for each 16 elements, loads and stores
/// not counted.
struct VectorWork {
  double simple = 0;  ///< at the rate of fused multiply-adds
  int divisions = 0, roots = 0;
};

/// The best seconds of two functions that are called in turn, after one call of each.
struct Pair {
  double first, second;
};
Pair best_of(int repetitions, const std::function<void()>& first,
             const std::function<void()>& second);
double best_of(int repetitions, const std::function<void()>& run);

/// Moves `bytes` in as many streams of f32 as `streams` has (each of the same length, an update
/// counted twice) with ordinary loads and stores: the bandwidth that the same pattern of access
/// gets where nothing is computed. Errors: more streams than it was made for.
std::function<void()> stream(Memory& memory, int threads, Streams streams, std::int64_t bytes);

}  // namespace axonn::bench
