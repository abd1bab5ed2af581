#pragma once

#include <array>
#include <cstdint>

#include "axonn/ops/rowwise/columns.h"
#include "axonn/ops/rowwise/launch.h"
#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

// out = f(inp...) elementwise. One team per tile. Bound by memory: the bytes of the arguments.

/// The tanh form of GELU: x/2 · (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x³), written as
/// x · sigmoid(2u), which is the same and loses no digits where tanh(u) is near -1.
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
struct TanhGelu {
  static constexpr float kLinear = 1.595769122f;  // 2u = x · (kLinear + kCubic · x²)
  static constexpr float kCubic = 0.044715f * kLinear;

  /// x², capped where sigmoid(2u) is 0 or 1 already, so that no float overflows.
  template <typename V>
  [[gnu::always_inline]] AXONN_DEVICE static V square(V x) {
    return least(x * x, 1e4f);
  }
  /// 1 + e^-2u = 1 / sigmoid(2u).
  template <typename V>
  [[gnu::always_inline]] AXONN_DEVICE static V inverse_sigmoid(V x, V squared) {
    return 1.0f + power_of_two(x * (-kLog2E * kLinear - kLog2E * kCubic * squared));
  }

  template <typename V>
  AXONN_DEVICE V operator()(V x) const {
    return x / inverse_sigmoid(x, square(x));
  }
};

/// d_inp = d_out · (s + x · s · (1 - s) · d(2u)/dx), s = sigmoid(2u).
struct TanhGeluGradient {
  template <typename V>
  AXONN_DEVICE V operator()(V d_out, V x) const {
    const V squared = TanhGelu::square(x), s = 1.0f / TanhGelu::inverse_sigmoid(x, squared);
    const V slope = x * (TanhGelu::kLinear + 3 * TanhGelu::kCubic * squared);
    return d_out * (s + s * (slope * (1.0f - s)));
  }
};

struct Plus {
  template <typename V>
  AXONN_DEVICE V operator()(V a, V b) const {
    return a + b;
  }
};

struct Identity {
  template <typename V>
  AXONN_DEVICE V operator()(V x) const {
    return x;
  }
};

/// The term of a column's sum: the element itself.
struct ValueTerm {
  AXONN_DEVICE Identity operator()(std::int64_t) const { return {}; }
};

template <typename F, typename Out, typename In>
struct Unary {
  Matrix<Out> out;
  Matrix<const In> inp;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    team.map(out.row(tile.row) + tile.begin, tile.count, F{}, inp.row(tile.row) + tile.begin);
  }
};

template <typename F, typename Out, typename A, typename B>
struct Binary {
  Matrix<Out> out;
  Matrix<const A> a;
  Matrix<const B> b;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    team.map(out.row(tile.row) + tile.begin, tile.count, F{}, a.row(tile.row) + tile.begin,
             b.row(tile.row) + tile.begin);
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Checks that out and inp are of the same shape, and each f32 or bf16.
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
  with_type(out.dtype, [&]<typename Out>(Out) {
    with_types(a.dtype, b.dtype, [&]<typename A, typename B>(A, B) {
      launch.tiles(out.rows, out.cols, rowwise::Binary<F, Out, A, B>{out, a, b});
    });
  });
}

void Gelu::run(auto launch) const {
  check_elements({kName}, out, "inp", inp);
  run_unary<rowwise::TanhGelu>(launch, out, inp);
}

void GeluBackward::run(auto launch) const {
  check_elements({kName}, d_inp, "d_out", d_out);
  check_elements({kName}, d_inp, "inp", inp);
  run_binary<rowwise::TanhGeluGradient>(launch, d_inp, d_out, inp);
}

void Add::run(auto launch) const {
  check_elements({kName}, out, "a", a);
  check_elements({kName}, out, "b", b);
  run_binary<rowwise::Plus>(launch, out, a, b);
}

void Cast::run(auto launch) const {
  check_elements({kName}, out, "inp", inp);
  run_unary<rowwise::Identity>(launch, out, inp);
}

void ColumnSum::run(auto launch) const {
  const Checker check{kName};
  check.values("inp", inp);
  check.f32("out", out, 1, inp.cols);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.columns(
        inp.rows, inp.cols, std::array{out.as<float>()},
        [&](const std::array<Matrix<float>, 1>& partial) {
          return rowwise::ColumnPartials<rowwise::ValueTerm, T>{partial[0], inp.rows, {}, {inp}};
        });
  });
}

}  // namespace axonn::ops
