#pragma once

#include <cstdint>

namespace axonn::cpu {

/// As many floats as fill four of the widest registers, with the arithmetic of one. What is
/// computed with it goes through the four in turn, so that a long chain of dependent instructions,
/// with a division say, waits less for each one's latency: GELU's gradient takes three quarters of
/// the time that it takes one register after the other.
class Floats {
 public:
  static constexpr int kBytes = __BIGGEST_ALIGNMENT__;
  static constexpr int kEach = kBytes / 4, kCount = 4 * kEach;
  using Register = float __attribute__((vector_size(kBytes), may_alias));
  using Integers = std::uint32_t __attribute__((vector_size(kBytes), may_alias));
  using Unaligned = float __attribute__((vector_size(kBytes), aligned(4), may_alias));

  Floats() : Floats(0.0f) {}
  /// All of them x.
  Floats(float x) : Floats(x - Register{}, x - Register{}, x - Register{}, x - Register{}) {}
  Floats(Register a, Register b, Register c, Register d) : a_(a), b_(b), c_(c), d_(d) {}

  static Floats load(const float* p) {
    const auto* r = reinterpret_cast<const Unaligned*>(p);
    return {r[0], r[1], r[2], r[3]};
  }
  void store(float* p) const {
    auto* r = reinterpret_cast<Unaligned*>(p);
    r[0] = a_;
    r[1] = b_;
    r[2] = c_;
    r[3] = d_;
  }

  friend Floats operator+(const Floats& x, const Floats& y) {
    return {x.a_ + y.a_, x.b_ + y.b_, x.c_ + y.c_, x.d_ + y.d_};
  }
  friend Floats operator-(const Floats& x, const Floats& y) {
    return {x.a_ - y.a_, x.b_ - y.b_, x.c_ - y.c_, x.d_ - y.d_};
  }
  friend Floats operator*(const Floats& x, const Floats& y) {
    return {x.a_ * y.a_, x.b_ * y.b_, x.c_ * y.c_, x.d_ * y.d_};
  }
  friend Floats operator/(const Floats& x, const Floats& y) {
    return {x.a_ / y.a_, x.b_ / y.b_, x.c_ / y.c_, x.d_ / y.d_};
  }

  // As rowwise/math.h has them for a float.
  friend Floats select_less(const Floats& x, const Floats& y, const Floats& yes, const Floats& no) {
    return {x.a_ < y.a_ ? yes.a_ : no.a_, x.b_ < y.b_ ? yes.b_ : no.b_,
            x.c_ < y.c_ ? yes.c_ : no.c_, x.d_ < y.d_ ? yes.d_ : no.d_};
  }
  friend Floats select_equal(const Floats& x, const Floats& y, const Floats& yes,
                             const Floats& no) {
    return {x.a_ == y.a_ ? yes.a_ : no.a_, x.b_ == y.b_ ? yes.b_ : no.b_,
            x.c_ == y.c_ ? yes.c_ : no.c_, x.d_ == y.d_ ? yes.d_ : no.d_};
  }
  friend Floats times_power(const Floats& x, const Floats& shifted) {
    return {times_power(x.a_, shifted.a_), times_power(x.b_, shifted.b_),
            times_power(x.c_, shifted.c_), times_power(x.d_, shifted.d_)};
  }

 private:
  static Register times_power(Register x, Register shifted) {
    return reinterpret_cast<Register>(reinterpret_cast<Integers>(x) +
                                      (reinterpret_cast<Integers>(shifted) << 23));
  }

  Register a_, b_, c_, d_;
};

}  // namespace axonn::cpu
