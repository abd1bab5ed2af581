#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "axonn/tensor/device.h"
#include "axonn/tensor/tensor.h"

namespace axonn::bench {

/// Memory for an operation's arguments, filled with numbers between 0 and 1 and written by the
/// threads that will use it. Views given out lie until the next clear().
class Memory {
 public:
  Memory();
  ~Memory();
  View view(std::int64_t rows, std::int64_t cols, DType dtype);
  /// (1, count) i32, spread over [0, bound).
  View ids(std::int64_t count, std::int64_t bound);
  void clear() { used_ = 0; }

 private:
  std::unique_ptr<Device> device_ = make_cpu_device();  // whose pages are huge, as an arena's are
  std::byte* begin_;
  std::int64_t used_ = 0;
};

/// What an operation moves through memory: arrays that it reads, reads and writes, and writes.
struct Streams {
  int read = 0, update = 0, write = 0;
};

/// The rates of vector instructions of `threads` threads together, in giga a second: what a
/// register of 16 floats takes where nothing waits for anything.
struct VectorRates {
  double multiply = 0;  ///< fused multiply-adds
  double add = 0;       ///< sums of floats; maxima, shifts and roundings take the same units
  double issue = 0;     ///< additions of integers, which any unit does
  double divide = 0, root = 0;
  double beside = 0;  ///< multiply-adds that could have begun where a division does
};
VectorRates vector_rates(int threads);

/// Vector instructions that an operation needs for each 16 elements, loads and stores not counted.
struct VectorWork {
  double multiplies = 0;  ///< products, fused with a sum or not
  double sums = 0;        ///< sums not fused with a product, maxima, roundings, conversions
  double others = 0;      ///< what any unit does: widening bf16
  int divisions = 0, roots = 0;

  /// Least seconds for `registers` of 16 elements: the busiest of the units for products, for sums
  /// and for divisions and roots, or what all units together can begin.
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
