#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

// out = f(inp...) elementwise. One team per tile. Bound by memory: the bytes of the arguments.

/// The tanh form of GELU: x/2 · (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x³), written as
/// x · sigmoid(2u), which is the same and loses no digits where tanh(u) is near -1.
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
struct TanhGelu {
  static constexpr float kLinear = 1.595769122f;  // 2u = x · (kLinear + kCubic · x²)
  static constexpr float kCubic = 0.044715f * kLinear;

  /// x², capped where sigmoid(2u) is 0 or 1 already, so that no float overflows.
  [[gnu::always_inline]] AXONN_DEVICE static auto square(auto x) { return least(x * x, 1e4f); }
  /// 1 + e^-2u = 1 / sigmoid(2u).
  [[gnu::always_inline]] AXONN_DEVICE static auto inverse_sigmoid(auto x, auto squared) {
    return 1.0f + power_of_two(x * (-kLog2E * kLinear - kLog2E * kCubic * squared));
  }

  AXONN_DEVICE auto operator()(auto x) const { return quotient(x, inverse_sigmoid(x, square(x))); }
};

/// d_inp = d_out · (s + x · s · (1 - s) · d(2u)/dx), s = sigmoid(2u).
struct TanhGeluGradient {
  AXONN_DEVICE auto operator()(auto d_out, auto x) const {
    const auto squared = TanhGelu::square(x),
               s = quotient(1.0f, TanhGelu::inverse_sigmoid(x, squared));
    const auto slope = x * (TanhGelu::kLinear + 3 * TanhGelu::kCubic * squared);
    return d_out * (s + s * (slope * (1.0f - s)));
  }
};

struct Plus {
  AXONN_DEVICE auto operator()(auto a, auto b) const { return a + b; }
};

struct Identity {
  AXONN_DEVICE auto operator()(auto x) const { return x; }
};

/// The term of a column's sum: the element itself.
struct ValueTerm {
  AXONN_DEVICE Identity operator()(std::int64_t) const { return {}; }
};

template <typename F, typename Out, typename In>
struct Unary {
  Matrix<Out> out;
  Matrix<const In> inp;
  F f = {};

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    team.map(out.at(tile), tile.count, f, inp.at(tile));
  }
};

template <typename F, typename Out, typename A, typename B>
struct Binary {
  Matrix<Out> out;
  Matrix<const A> a;
  Matrix<const B> b;
  F f = {};

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    team.map(out.at(tile), tile.count, f, a.at(tile), b.at(tile));
  }
};

// Arithmetic of users' models. Bound by memory: the bytes of the arguments, beside at most one
// exponential per element.

struct Relu {
  AXONN_DEVICE auto operator()(auto x) const { return greatest(0.0f, x); }
};

struct ReluGradient {
  AXONN_DEVICE auto operator()(auto d_out, auto x) const {
    return select_less(0.0f, x, d_out, 0.0f);
  }
};

struct SquaredRelu {
  AXONN_DEVICE auto operator()(auto x) const {
    const auto above = greatest(0.0f, x);
    return above * above;
  }
};

struct SquaredReluGradient {
  AXONN_DEVICE auto operator()(auto d_out, auto x) const {
    return d_out * (2.0f * greatest(0.0f, x));
  }
};

struct Silu {
  AXONN_DEVICE auto operator()(auto x) const { return x * sigmoid(x); }
};

/// d_inp = d_out · (s + x · s · (1 - s)), s = sigmoid(x).
struct SiluGradient {
  AXONN_DEVICE auto operator()(auto d_out, auto x) const {
    const auto s = sigmoid(x);
    return d_out * (s + x * s * (1.0f - s));
  }
};

struct Sigmoid {
  AXONN_DEVICE auto operator()(auto x) const { return sigmoid(x); }
};

struct SigmoidGradient {
  AXONN_DEVICE auto operator()(auto d_out, auto x) const {
    const auto s = sigmoid(x);
    return d_out * (s * (1.0f - s));
  }
};

/// tanh(x) = 1 - 2 / (1 + e^2x), and a polynomial near 0, where that would lose digits: within a
/// relative error of 5e-7. Source of the polynomial: Moshier, Cephes library, tanhf.
struct Tanh {
  AXONN_DEVICE auto operator()(auto x) const {
    const auto squared = x * x;
    auto p = squared * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * squared - 5.37397155531e-2f;
    p = p * squared + 1.33314422036e-1f;
    p = p * squared - 3.33332819422e-1f;
    const auto within = least(20.0f, x);  // there it is 1, and e^2x is finite
    const auto far = 1.0f - quotient(2.0f, 1.0f + exponential(2.0f * within));
    return select_less(squared, 0.390625f, p * squared * x + x, far);
  }
};

/// cap · tanh(x / cap).
struct Capped {
  float cap;
  AXONN_DEVICE auto operator()(auto x) const { return cap * Tanh{}(x * (1.0f / cap)); }
};

/// d_inp = d_out · (1 - (y / cap)²) of y = Capped(x).
struct CappedGradient {
  float cap;
  AXONN_DEVICE auto operator()(auto d_out, auto y) const {
    const auto t = y * (1.0f / cap);
    return d_out * ((1.0f - t) * (1.0f + t));
  }
};

struct TanhGradient {
  AXONN_DEVICE auto operator()(auto d_out, auto x) const {
    const auto t = Tanh{}(x);
    return d_out * ((1.0f - t) * (1.0f + t));
  }
};

struct Times {
  AXONN_DEVICE auto operator()(auto a, auto b) const { return a * b; }
};

struct TimesFactor {
  float factor;
  AXONN_DEVICE auto operator()(auto x) const { return x * factor; }
};

struct PlusNumber {
  float number;
  AXONN_DEVICE auto operator()(auto x) const { return x + number; }
};

/// out = inp · number, which lies in memory. One team per tile. Bound by memory.
template <typename T>
struct ScaleByNumberKernel {
  Matrix<T> out;        // (R, C), may be inp
  Matrix<const T> inp;  // (R, C)
  Number number;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    team.map(out.at(tile), tile.count, TimesFactor{number.value()}, inp.at(tile));
  }
};

// out = f(gate, up) of ops::Gate, where a row of inp is its gate, then its up. One team per tile of
// columns.
//
// Bound by memory: 3 · R · F · sizeof(T) bytes forward and 5 backward, beside one exponential per
// element. Source: Shazeer, "GLU variants improve transformer", 2020.

struct SiluGate {
  AXONN_DEVICE static auto value(auto gate, auto up) { return gate * sigmoid(gate) * up; }
  /// d_gate = d_out · up · (s + gate · s · (1 - s)), d_up = d_out · gate · s, s = sigmoid(gate).
  AXONN_DEVICE static auto gradients(auto d, auto gate, auto up) {
    const auto s = sigmoid(gate);
    return pair(d * up * (s + gate * s * (1 - s)), d * gate * s);
  }
};

/// Of a value beyond a limit, the gradient is 0, as torch.clamp has it.
struct ClampedGate {
  float alpha, limit;

  AXONN_DEVICE auto value(auto gate, auto up) const {
    const auto g = least(limit, gate), u = greatest(-limit, least(limit, up));
    // In another order, clang 15 does not come to an end for AMD GPUs (in floats).
    return (u + 1.0f) * g * sigmoid(alpha * g);
  }
  AXONN_DEVICE auto gradients(auto d, auto gate, auto up) const {
    const auto g = least(limit, gate), u = greatest(-limit, least(limit, up)),
               s = sigmoid(alpha * g);
    const auto d_g = d * (u + 1.0f) * (s + alpha * g * s * (1.0f - s)), d_u = d * g * s;
    const auto within = select_less(limit, up, 0.0f, d_u);
    return pair(select_less(limit, gate, 0.0f, d_g), select_less(up, -limit, 0.0f, within));
  }
};

struct GeluGate {
  AXONN_DEVICE static auto value(auto gate, auto up) { return TanhGelu{}(gate)*up; }
  AXONN_DEVICE static auto gradients(auto d, auto gate, auto up) {
    return pair(TanhGeluGradient{}(d * up, gate), d * TanhGelu{}(gate));
  }
};

template <typename T, typename Gate>
struct SwigluKernel {
  Matrix<T> out;        // (R, F)
  Matrix<const T> inp;  // (R, 2F)
  std::int64_t F;
  Gate f;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const T* gate = inp.at(tile);
    team.map(
        out.at(tile), tile.count, [f = f](auto g, auto u) { return f.value(g, u); }, gate,
        gate + F);
  }
};

template <typename T, typename Gate>
struct SwigluBackwardKernel {
  Matrix<T> d_inp;        // (R, 2F), may be inp
  Matrix<const T> d_out;  // (R, F)
  Matrix<const T> inp;    // (R, 2F)
  std::int64_t F;
  Gate f;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const T* gate = inp.at(tile);
    T* d_gate = d_inp.at(tile);
    team.map_pair(
        d_gate, d_gate + F, tile.count,
        [f = f](auto d, auto g, auto u) { return f.gradients(d, g, u); }, d_out.at(tile), gate,
        gate + F);
  }
};

// out = factor · inp where an element is kept, else 0. Whether it is kept depends only on the key
// and on its index in the whole value, so every grid keeps the same elements. One team per tile.
//
// Bound by memory: 2 · R · C · sizeof(T) bytes. Source: Srivastava et al., "Dropout", 2014.

/// The finalizer of splitmix64: every bit of the result depends on every bit of x.
AXONN_DEVICE inline std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Uniform in [0, 2^24), a function of all bits of `row` and of `col`.
AXONN_DEVICE inline std::uint32_t uniform_24(std::uint64_t row, std::uint32_t col) {
  std::uint32_t x = (col ^ static_cast<std::uint32_t>(row)) * 0x9e3779b1u;
  x = (x ^ (x >> 15)) * 0x85ebca77u;
  x = (x ^ (x >> 13) ^ static_cast<std::uint32_t>(row >> 32)) * 0xc2b2ae3du;
  return (x ^ (x >> 16)) >> 8;
}

template <typename T>
struct DropoutKernel {
  Matrix<T> out;        // (R, C), may be inp
  Matrix<const T> inp;  // (R, C)
  std::uint64_t key, first_row;
  std::uint32_t first_col;
  std::uint32_t dropped;  // probability · 2^24
  float factor;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const std::uint64_t row = mixed(key ^ mixed(first_row + tile.row));
    const std::uint32_t col = first_col + static_cast<std::uint32_t>(tile.begin);
    team.map_indexed(
        out.at(tile), tile.count,
        [row, col, factor = factor, dropped = dropped](int i, float x) {
          return uniform_24(row, col + i) < dropped ? 0.0f : factor * x;
        },
        inp.at(tile));
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Checks that out and inp are of the same shape, and each f32, bf16 or f16.
inline void check_elements(const Checker& check, const View& out, const char* name,
                           const View& inp) {
  check.values("out", out);
  check.values(name, inp, out.rows, out.cols);
}

/// out = F(inp), elementwise.
template <typename F>
void run_unary(auto launch, View out, View inp) {
  flatten(out, inp);
  with_types(out.dtype, inp.dtype, [&]<typename Out, typename In>(Out, In) {
    launch.tiles(out.rows, out.cols, rowwise::Unary<F, Out, In>{out, inp});
  });
}

/// out = F(a, b), elementwise.
template <typename F>
void run_binary(auto launch, View out, View a, View b) {
  flatten(out, a, b);
  with_types(out.dtype, a.dtype, b.dtype, [&]<typename Out, typename A, typename B>(Out, A, B) {
    launch.tiles(out.rows, out.cols, rowwise::Binary<F, Out, A, B>{out, a, b});
  });
}

void Add::run(auto launch, const Checker& check) const {
  check_elements(check, out, "a", a);
  check_elements(check, out, "b", b);
  run_binary<rowwise::Plus>(launch, out, a, b);
}

void Cast::run(auto launch, const Checker& check) const {
  check_elements(check, out, "inp", inp);
  run_unary<rowwise::Identity>(launch, out, inp);
}

void ColumnSum::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.f32("out", out, 1, inp.cols);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.columns({inp.rows, inp.cols}, std::array{address<float>(out)}, [&](const auto& blocks) {
      return rowwise::ColumnPartials<1, rowwise::ValueTerm, Matrix<const T>>{
          blocks, inp.rows, {}, {inp}};
    });
  });
}

/// Calls f with the function of this kind and its gradient.
void with_activation(ActivationKind kind, auto f) {
  switch (kind) {
    case ActivationKind::relu:
      return f(rowwise::Relu{}, rowwise::ReluGradient{});
    case ActivationKind::silu:
      return f(rowwise::Silu{}, rowwise::SiluGradient{});
    case ActivationKind::tanh:
      return f(rowwise::Tanh{}, rowwise::TanhGradient{});
    case ActivationKind::relu2:
      return f(rowwise::SquaredRelu{}, rowwise::SquaredReluGradient{});
    case ActivationKind::sigmoid:
      return f(rowwise::Sigmoid{}, rowwise::SigmoidGradient{});
  }
}

/// out = f(inp), elementwise, of one element type.
template <typename F>
void run_unary_of_one_type(auto launch, F f, View out, View inp) {
  flatten(out, inp);
  with_type(out.dtype, [&]<typename T>(T) {
    launch.tiles(out.rows, out.cols, rowwise::Unary<F, T, T>{out, inp, f});
  });
}

/// out = F(a, b), elementwise, of one element type.
template <typename F>
void run_binary_of_one_type(auto launch, View out, View a, View b) {
  flatten(out, a, b);
  with_type(out.dtype, [&]<typename T>(T) {
    launch.tiles(out.rows, out.cols, rowwise::Binary<F, T, T, T>{out, a, b});
  });
}

void Gelu::run(auto launch, const Checker& check) const {
  check.values("out", out);
  check.like("inp", inp, out);
  run_unary_of_one_type(launch, rowwise::TanhGelu{}, out, inp);
}

void GeluBackward::run(auto launch, const Checker& check) const {
  check.values("d_inp", d_inp);
  check.like("d_out", d_out, d_inp);
  check.like("inp", inp, d_inp);
  run_binary_of_one_type<rowwise::TanhGeluGradient>(launch, d_inp, d_out, inp);
}

void Activation::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("out", out, inp);
  with_activation(kind, [&](auto f, auto) { run_unary_of_one_type(launch, f, out, inp); });
}

void ActivationBackward::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("d_inp", d_inp, inp);
  check.like("d_out", d_out, inp);
  with_activation(
      kind, [&]<typename F>(auto, F) { run_binary_of_one_type<F>(launch, d_inp, d_out, inp); });
}

void Multiply::run(auto launch, const Checker& check) const {
  check.values("out", out);
  check.like("a", a, out);
  check.like("b", b, out);
  run_binary_of_one_type<rowwise::Times>(launch, out, a, b);
}

void Scale::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("out", out, inp);
  run_unary_of_one_type(launch, rowwise::TimesFactor{factor}, out, inp);
}

void ScaleByNumber::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("out", out, inp);
  check.values("number", number, 1, 1);
  View to = out, from = inp;
  flatten(to, from);
  with_type(to.dtype, [&]<typename T>(T) {
    launch.tiles(to.rows, to.cols, rowwise::ScaleByNumberKernel<T>{to, from, number});
  });
}

void SoftCap::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("out", out, inp);
  run_unary_of_one_type(launch, rowwise::Capped{cap}, out, inp);
}

void SoftCapBackward::run(auto launch, const Checker& check) const {
  check.values("d_inp", d_inp);
  check.like("d_out", d_out, d_inp);
  check.values("out", out, d_inp.rows, d_inp.cols);
  View to = d_inp, from = d_out, capped = out;
  flatten(to, from, capped);
  with_types(to.dtype, capped.dtype, [&]<typename T, typename Y>(T, Y) {
    launch.tiles(to.rows, to.cols,
                 rowwise::Binary<rowwise::CappedGradient, T, T, Y>{to, from, capped, {cap}});
  });
}

void AddNumber::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.f32("out", out, inp.rows, inp.cols);
  View to = out, from = inp;
  flatten(to, from);
  with_type(from.dtype, [&]<typename T>(T) {
    launch.tiles(to.rows, to.cols,
                 rowwise::Unary<rowwise::PlusNumber, float, T>{to, from, {number}});
  });
}

/// Checks inp (R, 2F), and `half` (R, F) of its type.
inline void check_gated(const Checker& check, const View& inp, const char* name, const View& half) {
  check.values("inp", inp);
  AXONN_CHECK(inp.cols % 2 == 0, check.operation, ": inp is ", inp,
              ", want an even number of columns: gate, then up");
  check.typed(name, half, inp.dtype, inp.rows, inp.cols / 2);
}

/// Calls f with the function of the gate.
void with_gate(const Gate& gate, auto f) {
  if (gate.kind == GateKind::silu) return f(rowwise::SiluGate{});
  if (gate.kind == GateKind::gelu) return f(rowwise::GeluGate{});
  f(rowwise::ClampedGate{gate.alpha, gate.limit});
}

void Swiglu::run(auto launch, const Checker& check) const {
  check_gated(check, inp, "out", out);
  with_gate(gate, [&]<typename F>(F f) {
    with_type(inp.dtype, [&]<typename T>(T) {
      launch.tiles(out.rows, out.cols, rowwise::SwigluKernel<T, F>{out, inp, out.cols, f});
    });
  });
}

void SwigluBackward::run(auto launch, const Checker& check) const {
  check_gated(check, inp, "d_out", d_out);
  check.like("d_inp", d_inp, inp);
  with_gate(gate, [&]<typename F>(F f) {
    with_type(inp.dtype, [&]<typename T>(T) {
      launch.tiles(d_out.rows, d_out.cols,
                   rowwise::SwigluBackwardKernel<T, F>{d_inp, d_out, inp, d_out.cols, f});
    });
  });
}

void Dropout::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("out", out, inp);
  AXONN_CHECK(probability >= 0 && probability < 1, "dropout: probability ", probability,
              ", want 0 or more and less than 1");
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.tiles(
        inp.rows, inp.cols,
        rowwise::DropoutKernel<T>{out, inp, key, static_cast<std::uint64_t>(first_row),
                                  static_cast<std::uint32_t>(first_col),
                                  static_cast<std::uint32_t>(std::lround(probability * (1 << 24))),
                                  scale / (1 - probability)});
  });
}

}  // namespace axonn::ops
