#pragma once

#include "axonn/ops/cpu/block_matmul.h"
#include "axonn/ops/cpu/floats.h"
#include "axonn/ops/cpu/strips.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::cpu::detail {

/// The sum of all, halves on halves; the last ones within a register.
inline float fold(float (&sums)[kStrip]) {
  using Index = std::int32_t __attribute__((vector_size(64)));
  const auto lanes = [&](int i) {
    return *reinterpret_cast<const Lanes*>(sums + std::ptrdiff_t{i} * kLanes);
  };
  Lanes x = (lanes(0) + lanes(2)) + (lanes(1) + lanes(3));
  x += __builtin_shuffle(x, Index{8, 9, 10, 11, 12, 13, 14, 15});
  x += __builtin_shuffle(x, Index{4, 5, 6, 7});
  x += __builtin_shuffle(x, Index{2, 3});
  return x[0] + x[1];
}

/// Mean and sum of squared deviations in one pass: each of the kStrip sums that run side by side is
/// of deviations from the first value k that it met, s = sum(x - k) and q = sum((x - k)²), so no
/// digits cancel where the mean is far from zero. In the end a lane of n values adds
/// q + d · (2 s + n d), d = k - mean, which is the sum of its (x - mean)². Where k lies far from
/// the mean that loses digits of (mean - k)², but then the row's whole sum is no smaller than that.
class Moments {
 public:
  /// Begins with the first `count` values, at most kStrip.
  template <typename T>
  Moments(const T* in, int count) {
    Source<T> source;
    if (count == kStrip)
      begin(source.load(in, kStrip));
    else
      begin(Padded(source.load(in, count), count).values);
  }

  /// `n` more.
  template <typename N>
  [[gnu::always_inline]] void add(const float* x, N n) {
    if (n == kStrip) return add_strip(x);
    float values[kStrip];  // beyond n no deviation
    for (int i = 0; i < kParts; ++i) first_[i].store(values + i * Floats::kCount);
    std::copy_n(x, static_cast<int>(n), values);
    add_strip(values);
  }

  rowwise::Pair total(int count) const {
    float values[kStrip], numbers[kStrip];
#pragma omp simd
    for (int i = 0; i < kStrip; ++i)
      numbers[i] = static_cast<float>(count / kStrip + (i < count % kStrip ? 1 : 0));
    const auto n = [&](int i) { return Floats::load(numbers + i * Floats::kCount); };
    for (int i = 0; i < kParts; ++i)
      (n(i) * first_[i] + sums_[i]).store(values + i * Floats::kCount);
    const float mean = fold(values) / static_cast<float>(count);
    for (int i = 0; i < kParts; ++i) {
      const Floats d = first_[i] - mean;
      (squares_[i] + d * (2.0f * sums_[i] + n(i) * d)).store(values + i * Floats::kCount);
    }
    return {mean, fold(values)};
  }

 private:
  static constexpr int kParts = kStrip / Floats::kCount;

  void begin(const float* x) {
    for (int i = 0; i < kParts; ++i) first_[i] = Floats::load(x + i * Floats::kCount);
  }
  void add_strip(const float* x) {
    for (int i = 0; i < kParts; ++i) {
      const Floats d = Floats::load(x + i * Floats::kCount) - first_[i];
      sums_[i] = sums_[i] + d;
      squares_[i] = squares_[i] + d * d;
    }
  }

  Floats first_[kParts], sums_[kParts], squares_[kParts];
};

}  // namespace axonn::cpu::detail
