#pragma once

#include <cstddef>

namespace emulated_gpu {

/// A stack that host threads run on by turns, for x86-64.
///
/// Every jump is from and to the same line of code for most of a kernel's threads. So it ends with
/// `ret`, as functions do: processors predict by that where this and its callers return to, which
/// makes exchanges of a warp twice as fast as with Boost.Context's jumps.
struct Fiber {
  const void* stack = nullptr;  ///< its lowest byte
  std::size_t bytes = 0;
  int context = 0;             ///< for the user
  void* at = nullptr;          ///< its stack while it waits; null: it has not begun
  void* fake_stack = nullptr;  ///< AddressSanitizer's
  void (*entry)(Fiber& self) = nullptr;

  /// Lets the first jump call the endless function f(self), whose stack begins `unused` bytes below
  /// the end.
  void begin(std::size_t unused, void (*f)(Fiber& self));
};

/// Continues with `to`, until something jumps to `from`. Host threads are Fibers without a stack.
void jump(Fiber& from, Fiber& to);

}  // namespace emulated_gpu
