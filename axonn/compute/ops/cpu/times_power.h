#pragma once

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/rowwise/math.h"

// times_power() by arithmetic of words, which arithmetic_portable.h and arithmetic_sve.h share.

namespace axonn::cpu::detail {

inline Register times_power(Register x, Register n) {
  using Words = Registers::Words;
  // Unsigned: of n below -126, whose results are not taken, the sum may wrap around.
  const Register shifted = least(127.0f - Register{}, n) + rowwise::kRound;
  const Register scaled = reinterpret_cast<Register>(reinterpret_cast<Words>(x) +
                                                     (reinterpret_cast<Words>(shifted) << 23));
  return n < -126.0f ? Register{} : scaled;
}

}  // namespace axonn::cpu::detail
