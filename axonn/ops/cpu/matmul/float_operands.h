#pragma once

#include <cstdint>

#include "axonn/ops/backend.h"
#include "axonn/ops/cpu/scratch.h"

namespace axonn::cpu {

/// Computes products of bf16 operands as f32 products, for processors without bf16 products. Holds
/// one thread's memory for that.
///
/// A panel of the result is the sum of a few steps, each over a range of K: the step's operands are
/// converted to f32 and stay in cache while they are multiplied. Sums are f32 over all of K and the
/// result is rounded once, as in a bf16 product.
///
///   panel  out (m, n) bf16 or f32   a (m, K) or (K, m), b (K, n) or (n, K) bf16
///   step   out (m, n) f32           a (m, k) or (k, m), b (k, n) or (n, k) f32
///
/// Costs (m + n) · K conversions for 2 · m · n · K flops.
class FloatOperands {
 public:
  /// The number of steps of a panel, which depends on K alone.
  static std::int64_t steps(const Matmul& panel);
  /// The f32 product of one step; operands in a thread's memory have no addresses yet.
  static Matmul step(const Matmul& panel, std::int64_t index);

  /// The product of step(), with its operands converted to this thread's memory.
  Matmul load(const Matmul& panel, std::int64_t index);
  /// Writes panel.out: the sums of the steps, plus the bias, plus the old out if it accumulates.
  void finish(const Matmul& panel);
  /// Call this between products, because their operands may have the same addresses.
  void forget() { loaded_b_ = nullptr; }

 private:
  Scratch a_, b_, sums_;
  const void* loaded_b_ = nullptr;  // the bf16 part that b_ holds
};

}  // namespace axonn::cpu
