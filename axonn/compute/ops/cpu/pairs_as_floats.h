#pragma once

#include "axonn/compute/ops/cpu/floats.h"

// Products of pairs of bf16 on processors without instructions for them; part of bf16.h.

namespace axonn::cpu {

/// Whether multiplying pairs of bf16 is faster than multiplying them as floats.
constexpr bool kDotProducts = false;

/// Products of two rows and two columns by one instruction, for matrix_tile.h: none.
using BlockProduct = void;

/// sum += left.first · right.first + left.second · right.second on each float of a register; each
/// float of left and right holds a pair of bf16.
[[gnu::always_inline]] inline void add_pair_products(Registers::Register& sum,
                                                     const Registers::Register& left,
                                                     const Registers::Register& right) {
  using Register = Registers::Register;
  using Words = Registers::Words;
  const auto a = reinterpret_cast<Words>(left), b = reinterpret_cast<Words>(right);
  sum += reinterpret_cast<Register>(a << 16) * reinterpret_cast<Register>(b << 16);
  sum += reinterpret_cast<Register>(a & 0xffff0000u) * reinterpret_cast<Register>(b & 0xffff0000u);
}

/// add_pair_products() with one `left` for all floats.
[[gnu::always_inline]] inline void add_product(Registers::Register& sum, float left,
                                               const Registers::Register& right) {
  add_pair_products(sum, left - Registers::Register{}, right);
}

}  // namespace axonn::cpu
