#pragma once

#include <cstddef>

#include "axonn/ops/cpu/floats.h"
#include "axonn/ops/cpu/registers.h"

namespace axonn::cpu {

/// 64 sums in double side by side, over strips of floats.
class Doubles {
 public:
  /// sums += f(x) in double; f must accept vector registers.
  template <typename F>
  [[gnu::always_inline]] void add(F f, const Floats& x) {
    Floats::for_each([&](int i) {
      sums_[2 * i] += f(lower(x.r[i]));
      sums_[2 * i + 1] += f(upper(x.r[i]));
    });
  }

  /// The total: halves are added to halves.
  double fold() const {
    alignas(64) double sums[Floats::kCount];
    for (int i = 0; i < 2 * Floats::kRegisters; ++i)
      *reinterpret_cast<Floats::Doubles*>(sums + std::ptrdiff_t{i} * kEach) = sums_[i];
    for (int half = Floats::kCount / 2; half > 0; half /= 2) {
#pragma omp simd
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    return sums[0];
  }

 private:
  static constexpr int kEach = Floats::kEach / 2;
  Floats::Doubles sums_[2 * Floats::kRegisters] = {};
};

}  // namespace axonn::cpu
