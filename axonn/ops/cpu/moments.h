#pragma once

#include "axonn/ops/cpu/floats.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::cpu {

/// Mean and sum of squared deviations in one pass: each of the sums that run side by side is of
/// deviations from the first value k that it met, s = sum(x - k) and q = sum((x - k)²), so no
/// digits cancel where the mean is far from zero. In the end a lane of n values adds
/// q + d · (2 s + n d), d = k - mean, which is the sum of its (x - mean)². Where k lies far from
/// the mean that loses digits of (mean - k)², but then the row's whole sum is no smaller than that.
class Moments {
 public:
  /// Begins with the first strip, or with what there is and zeros behind it.
  [[gnu::always_inline]] explicit Moments(const Floats& x) : first_(x) {}

  /// n more.
  template <typename N>
  [[gnu::always_inline]] void add(const Floats& x, N n) {
    const Floats d = first_of(x - first_, n);
    sums_ = sums_ + d;
    squares_ = squares_ + d * d;
  }

  /// Of `count` values in all.
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
