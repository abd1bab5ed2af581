#pragma once

#include <cstdint>

#include "axonn/ops/backend.h"
#include "axonn/ops/cpu/scratch.h"

namespace axonn::cpu {

/// One thread's memory for products of bf16 operands as f32, on processors that multiply no bf16.
///
/// A panel of the result is the sum of a few steps, each over a stretch of K: the step's operands
/// are converted to f32 and stay in cache while they are multiplied. Sums are f32 over all of K and
/// the result is rounded once, so only the instructions differ from those of a bf16 product.
///
///   panel  out (m, n) bf16 or f32   a (m, K) or (K, m), b (K, n) or (n, K) bf16
///   step   out (m, n) f32           a (m, k) or (k, m), b (k, n) or (n, k) f32
///
/// Costs (m + n) · K conversions for 2 · m · n · K flops.
class FloatOperands {
 public:
  /// The number of steps of a panel, which depends on K alone.
  static std::int64_t steps(const Matmul& panel);
  /// The f32 product of one step, without the addresses of what lies in a thread's memory.
  static Matmul step(const Matmul& panel, std::int64_t index);

  /// step() with its operands converted.
  Matmul load(const Matmul& panel, std::int64_t index);
  /// Writes panel.out from the sums of the steps, plus the bias and what is accumulated.
  void finish(const Matmul& panel);
  /// To be called between products: their operands may lie at the same addresses.
  void forget() { loaded_b_ = nullptr; }

 private:
  Scratch a_, b_, sums_;
  const void* loaded_b_ = nullptr;  // the bf16 part that b_ holds
};

}  // namespace axonn::cpu
