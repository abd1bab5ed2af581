#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "axonn/compute/ops/rowwise/elementwise.h"
#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

// xIELU of each element, with two learned numbers p and n for all:
//
//   x > 0     ap · x² + beta · x             ap = softplus(p)
//   else      an · (expm1(x) - x) + beta · x  an = beta + softplus(n)
//
// Published code has expm1(min(x, -1e-6)), whose slope jumps from beta to beta - an between -1e-6
// and 0. There a rounding would change gradients, and with them the losses of ten steps by 1e-5
// from one grid to another; without the limit the slope is continuous. The values differ by at most
// 1e-6 · an, and only there.
//
// One team per row. Bound by memory: 2 · R · C · sizeof(T) bytes forward and 3 backward, beside one
// exponential per element. Source: Huang and Schlag, "Deriving activation functions using
// integration", 2024 (arXiv 2411.13010).

/// The slope at 0 of both branches.
constexpr float kXieluBeta = 0.5f;

/// log(1 + e^x) and its derivative, of one number per row.
AXONN_DEVICE inline float softplus(float x) {
  return (x > 0 ? x : 0.0f) + std::log1p(std::exp(-std::fabs(x)));
}
AXONN_DEVICE inline float softplus_slope(float x) { return 1 / (1 + std::exp(-x)); }

/// expm1(x) - x for x <= 0; finite but meaningless for finite x above. Near 0 it is about
/// x²/2, where e^x - 1 - x would lose all digits: a Taylor polynomial, within 1e-7 of the result.
template <typename V>
[[gnu::always_inline]] AXONN_DEVICE inline V xielu_tail(V x) {
  V p = x * 2.48015873e-5f + 1.98412698e-4f;
  p = p * x + 1.38888889e-3f;
  p = p * x + 8.33333333e-3f;
  p = p * x + 4.16666667e-2f;
  p = p * x + 1.66666667e-1f;
  p = p * x + 0.5f;
  return select_less(x, -0.5f, exponential(x) - 1.0f - x, p * x * x);
}

/// ap and an, loaded once for a row.
struct XieluSlopes {
  Number p, n;

  AXONN_DEVICE Pair<float> operator()() const {
    return {softplus(p.value()), kXieluBeta + softplus(n.value())};
  }
};

template <typename T>
struct XieluKernel {
  Matrix<T> out;        // (R, C)
  Matrix<const T> inp;  // (R, C)
  XieluSlopes slopes;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const Pair<float> a = slopes();
    team.map(
        out.row(row), C,
        [ap = a.first, an = a.second](auto x) {
          return select_less(0.0f, x, x * (ap * x + kXieluBeta),
                             an * xielu_tail(x) + kXieluBeta * x);
        },
        inp.row(row));
  }
};

/// d_inp = d_out · (2 ap · x + beta where x > 0, else an · (e^x - 1) + beta). sums[row] = the row's
/// terms of d_p and d_n, or absent.
template <typename T>
struct XieluBackwardKernel {
  Matrix<T> d_inp;             // (R, C), may be d_out
  Matrix<float> sums;          // (R, 2) or absent
  Matrix<const T> d_out, inp;  // (R, C)
  XieluSlopes slopes;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const Pair<float> a = slopes();
    const T *dy = d_out.row(row), *x = inp.row(row);
    if (sums.data) {
      const auto terms = team.sum_two(
          C,
          [](auto d, auto v) {
            return pair(select_less(0.0f, v, d * v * v, 0.0f),
                        select_less(0.0f, v, 0.0f, d * xielu_tail(v)));
          },
          dy, x);
      const float p = softplus_slope(slopes.p.value()), n = softplus_slope(slopes.n.value());
      team.once([&] {
        sums.row(row)[0] = p * terms.first;
        sums.row(row)[1] = n * terms.second;
      });
    }
    team.map(
        d_inp.row(row), C,
        [ap = a.first, an = a.second](auto d, auto v) {
          return d * select_less(0.0f, v, 2.0f * ap * v, an * (xielu_tail(v) + v)) + kXieluBeta * d;
        },
        dy, x);
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Checks the operands that Xielu and its gradients read.
inline void check_xielu(const Checker& check, const Xielu& xielu) {
  check.values("inp", xielu.inp);
  check.values("p", xielu.p, 1, 1);
  check.like("n", xielu.n, xielu.p);
}

void Xielu::run(auto launch, const Checker& check) const {
  check_xielu(check, *this);
  check.like("out", out, inp);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.rows({inp.rows, inp.cols}, rowwise::XieluKernel<T>{out, inp, {p, n}, width(inp)});
  });
}

void XieluBackward::run(auto launch, const Checker& check) const {
  check_xielu(check, forward);
  const View &inp = forward.inp, &p = forward.p, &n = forward.n;
  check.like("d_out", d_out, inp);
  check.like("d_inp", d_inp, inp);
  if (sums.data) {
    check.f32("sums", sums, inp.rows, 2);
    check.f32("d_p", d_p, 1, 1);
    check.f32("d_n", d_n, 1, 1);
  }
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.rows({inp.rows, inp.cols},
                rowwise::XieluBackwardKernel<T>{d_inp, sums, d_out, inp, {p, n}, width(inp)});
  });
  if (!sums.data || inp.count() == 0) return;
  const auto add = [&](const View& to, const View& column) {
    launch.columns({inp.rows, 1}, std::array{address<float>(to)}, [&](const auto& blocks) {
      using Rows = Matrix<const float>;
      return rowwise::ColumnPartials<1, rowwise::ValueTerm, Rows>{blocks, inp.rows, {}, {column}};
    });
  };
  add(d_p, sums.col_range(0, 1));
  add(d_n, sums.col_range(1, 1));
}

}  // namespace axonn::ops
