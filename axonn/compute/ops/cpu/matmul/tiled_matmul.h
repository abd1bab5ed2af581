#pragma once

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/cpu/matmul/product_plan.h"

namespace axonn::cpu {

/// Whether tiled_matmul() is the default. The library's products for AVX2 and SSE reach their full
/// speed, the same as these, only if neither operand is transposed or packed and panels are large;
/// else they take up to three times as long. On ARM it computes panels by loops of f32 that are the
/// same for every processor.
constexpr bool kTilesByDefault = kArm64 || Registers::kCount == 16;

/// One thread's memory for tiled_matmul().
class TileMemory {
 public:
  /// Call this between products, because their operands may have the same addresses.
  void forget() { packed_b_ = nullptr; }

 private:
  friend void tiled_matmul(const Matmul& panel, TileMemory& memory);

  HostScratch a_, b_, sums_;
  const void* packed_b_ = nullptr;  // the panel's part of b, if b_ holds all of it
};

/// Computes a panel of a product on one thread, from operands that are copied into the order in
/// which tiles of registers read them, and converted to f32 if they are f16, or bf16 without
/// instructions for its products. Keeps the copy of b for a next panel with the same columns.
///
///   out (m, n) (+)= a (m, K) · b (K, n) + bias (n), either operand transposed
///
/// Each element of out is one f32 sum that begins with what there is of the bias and of the old
/// out, goes on in the order of K, in products of bf16 by pairs, and is rounded once. So no bit of
/// it depends on how the result is cut, on the other rows or columns, or on the operands' layout.
///
/// Bound by arithmetic: 2 · m · n · K flops, beside K · (m + n) copies of elements.
/// Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
void tiled_matmul(const Matmul& panel, TileMemory& memory);

/// Into which panels a product is cut for so many threads: into those that take the least time,
/// with the copies of their operands.
ProductPlan tile_panels(const MatmulShape& shape, int threads);

}  // namespace axonn::cpu
