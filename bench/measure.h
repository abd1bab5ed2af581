#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "axonn/compute/tensor/device.h"
#include "axonn/compute/tensor/tensor.h"

namespace axonn::bench {

/// Memory for an operation's arguments. The calling thread fills it with numbers between 0 and 1.
/// Views are valid until the next clear().
class Memory {
 public:
  Memory();
  ~Memory();
  View view(std::int64_t rows, std::int64_t cols, DType dtype);
  /// (1, count) i32, spread over [0, bound).
  View ids(std::int64_t count, std::int64_t bound);
  void clear() { used_ = 0; }

 private:
  std::unique_ptr<Device> device_ = make_cpu_device();  // gives huge pages, like an arena's
  std::byte* begin_;
  std::int64_t used_ = 0;
};

/// The arrays that an operation moves through memory: read, read and written, or written.
struct Streams {
  int read = 0, update = 0, write = 0;
};

/// The throughput of vector instructions on 16 floats, of `threads` threads together, in 10^9 per
/// second, for instructions that do not depend on each other.
struct VectorRates {
  double multiply = 0;  ///< fused multiply-adds
  double add = 0;       ///< sums of floats; maxima, shifts and roundings use the same units
  double issue = 0;     ///< additions of integers, which every unit can execute
  double divide = 0, root = 0;
  double beside = 0;  ///< multiply-adds that a division displaces
};
VectorRates vector_rates(int threads);

/// The vector instructions of an operation per 16 elements, without loads and stores.
struct VectorWork {
  double multiplies = 0;  ///< products, fused with a sum or not
  double sums = 0;        ///< sums not fused with a product, maxima, roundings, conversions
  double others = 0;      ///< instructions that every unit can execute: widening bf16
  int divisions = 0, roots = 0;

  /// The least seconds for `registers` of 16 elements: the time of the busiest unit (products,
  /// sums, or divisions and roots), or the time to issue all instructions.
  double seconds(double registers, const VectorRates& rates) const;
};

/// The best seconds of two functions, called in turn in bursts of `burst` calls, so that each finds
/// in cache what its last call left there. The first call of a longer burst does not count.
struct Pair {
  double first, second;
};
Pair best_of(int repetitions, const std::function<void()>& first,
             const std::function<void()>& second, int burst = 1);
double best_of(int repetitions, const std::function<void()>& run);

/// Returns a function that moves `bytes` in f32 streams of equal length, as many as `streams` has
/// (an update counts twice), by ordinary loads and stores: the bandwidth of that access pattern
/// with next to no arithmetic. Throws if there is no loop for this combination of streams.
std::function<void()> stream(Memory& memory, int threads, Streams streams, std::int64_t bytes);

}  // namespace axonn::bench
