#pragma once

#include <cstddef>

#include "axonn/ops/cpu/floats.h"
#include "axonn/ops/cpu/registers.h"
#include "axonn/ops/rowwise/matrix.h"

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

/// Mean and sum of squared deviations in one pass. Each lane sums deviations from its first value
/// k, s = sum(x - k) and q = sum((x - k)²), so no digits cancel if the mean is far from zero. In
/// the end a lane of n values contributes q + d · (2 s + n d), d = k - mean, which is the sum of
/// its (x - mean)². If k is far from the mean, this loses digits relative to (mean - k)², but then
/// the row's whole sum is no smaller than that.
class Moments {
 public:
  /// x: the first strip, or the whole row if it is shorter, with zeros after it.
  [[gnu::always_inline]] explicit Moments(const Floats& x) : first_(x) {}

  /// Adds the next strip, of which n values count.
  template <typename N>
  [[gnu::always_inline]] void add(const Floats& x, N n) {
    const Floats d = first_of(x - first_, n);
    sums_ = sums_ + d;
    squares_ = squares_ + d * d;
  }

  /// Mean and sum of squared deviations of all `count` values.
  [[gnu::always_inline]] rowwise::Pair<float> total(int count) const {
    Floats n = static_cast<float>(count / Floats::kCount);
    if (const int rest = count % Floats::kCount; rest > 0) n = n + first_of(Floats(1.0f), rest);
    const float mean = fold(n * first_ + sums_) / static_cast<float>(count);
    const Floats d = first_ - mean;
    return {mean, fold(squares_ + d * (2.0f * sums_ + n * d))};
  }

 private:
  Floats first_, sums_, squares_;
};

}  // namespace axonn::cpu
