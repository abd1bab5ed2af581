#pragma once

#include "axonn/ops/cpu/floats.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::cpu {

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
