#pragma once

#include <cstdint>

#include "axonn/compute/ops/cpu/architecture.h"
#include "axonn/compute/ops/cpu/instructions.h"

// Intel's AMX: a thread's eight tiles of registers, each of 16 rows of 64 bytes, and products of
// them. By assembly, because the compiler's functions want flags for a whole source, and kernels
// with these flags would not run on processors without AMX.
//
// Bound: a product of two tiles takes 16 cycles, 8,192 multiplications and additions of bf16, if
// four sums grow in turn. Loading a tile takes 8. Subnormal operands and results are zeros.
// Source: Intel, "Architecture Instruction Set Extensions", chapter 3.

namespace axonn::cpu::amx {

constexpr int kRows = 16, kRowBytes = 64;
constexpr int kWords = kRowBytes / 4;  ///< of a row: floats, or pairs of bf16

/// The shapes of tiles: all as large as can be.
struct alignas(64) Shapes {
  std::uint8_t palette = 1, start_row = 0, unused[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr Shapes() {
    for (int tile = 0; tile < 8; ++tile) {
      row_bytes[tile] = kRowBytes;
      rows[tile] = kRows;
    }
  }
};

/// Lets this thread use tiles while it exists, if uses_amx(). Takes about 90 ns. oneDNN
/// gives tiles other shapes, so its primitives may not run meanwhile.
class TilesInUse {
 public:
  TilesInUse() : used_(kHasAmx && uses_amx()) {
    static constexpr Shapes kShapes;
    if constexpr (kHasAmx)
      if (used_) asm volatile("ldtilecfg %0" : : "m"(kShapes));
  }
  ~TilesInUse() {
    if constexpr (kHasAmx)
      if (used_) asm volatile("tilerelease");
  }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;

 private:
  bool used_;
};

template <int tile>
inline void clear() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
/// From rows that lie so many bytes apart.
template <int tile>
inline void load(const void* rows, std::int64_t apart) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(apart), "i"(tile) : "memory");
}
template <int tile>
inline void store(void* rows, std::int64_t apart) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(apart), "i"(tile) : "memory");
}
/// sum (16, 16) of floats += a (16, 16 pairs of bf16) · b (16 pairs, 16).
template <int sum, int a, int b>
inline void add_products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}

}  // namespace axonn::cpu::amx
