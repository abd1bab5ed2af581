#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

// Reduces a whole matrix to one number: one team per tile writes a partial result, then these
// are added in a fixed order. Sums are double. Bound by memory: R · C · sizeof(T) bytes.

template <typename T>
struct SumPartials {
  double* partial;      // (tiles)
  Matrix<const T> inp;  // (R, C)

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const double total = team.sum_double(
        tile.count, [](auto x) { return x; }, inp.at(tile));
    team.once([&] { partial[tile.index] = total; });
  }
};

template <typename T>
struct SquaredSumPartials {
  double* partial;      // (tiles)
  Matrix<const T> inp;  // (R, C)

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const double total = team.sum_double(
        tile.count, [](auto x) { return x * x; }, inp.at(tile));
    team.once([&] { partial[tile.index] = total; });
  }
};

/// |x|^p of a double, or of each double of a vector register.
template <typename V>
AXONN_DEVICE V power_of_size(V x, double p) {
  if constexpr (std::is_same_v<V, double>) {
    return std::pow(std::abs(x), p);
  } else {
    for (std::size_t i = 0; i < sizeof x / sizeof(double); ++i) x[i] = std::pow(std::abs(x[i]), p);
    return x;
  }
}

template <typename T>
struct PowerSumPartials {
  double* partial;      // (tiles)
  Matrix<const T> inp;  // (R, C)
  const double* squared_norm;
  double p;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const double norm = std::sqrt(*squared_norm), inverse = norm > 0 ? 1 / norm : 0;
    const double total = team.sum_double(
        tile.count, [=, power = p](auto x) { return power_of_size(x * inverse, power); },
        inp.at(tile));
    team.once([&] { partial[tile.index] = total; });
  }
};

template <typename T>
struct LargestSizePartials {
  double* partial;      // (tiles)
  Matrix<const T> inp;  // (R, C)

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const double most = team.largest_size(tile.count, inp.at(tile));
    team.once([&] { partial[tile.index] = most; });
  }
};

/// The larger of two partial results.
struct Larger {
  AXONN_DEVICE double operator()(double a, double b) const { return a > b ? a : b; }
};

/// Counts the elements whose exponent bits are all ones: NaN and infinities.
template <typename T>
struct NonfinitePartials {
  std::int64_t* partial;  // (tiles)
  Matrix<const T> inp;    // (R, C)

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const int total = team.count_if(
        tile.count,
        [](float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) == 0x7f800000u; },
        inp.at(tile));
    team.once([&] { partial[tile.index] = total; });
  }
};

/// out = the factor that clips a gradient of this squared norm to max_norm; 1 if max_norm is 0. A
/// `sum` that is not null makes it the norm of another p, as in ops::ClipFactor.
struct ClipFactorKernel {
  float* out;
  const double* squared_norm;
  float max_norm;
  const double* sum;
  double p;

  AXONN_DEVICE void operator()(const auto& team, Tile) const {
    team.once([&] {
      double norm = std::sqrt(*squared_norm);
      if (sum) norm = std::isinf(p) ? *sum : norm * std::pow(*sum, 1 / p);
      *out = max_norm > 0 && norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
    });
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// out (1, 1) = out combined with what Partials, of further members `rest`, makes of inp (R, C).
template <typename Total, template <typename> typename Partials, typename Combine = rowwise::Added>
void run_reduction(auto launch, const Checker& check, const View& out, View inp,
                   const auto&... rest) {
  check.values("inp", inp);
  check.typed("out", out, dtype_of<Total>, 1, 1);
  flatten(inp);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.reduce(
        inp.rows, inp.cols, address<Total>(out),
        [&](Total* partial) {
          return Partials<T>{partial, inp, rest...};
        },
        Combine{});
  });
}

void Sum::run(auto launch, const Checker& check) const {
  run_reduction<double, rowwise::SumPartials>(launch, check, out, inp);
}

void SquaredSum::run(auto launch, const Checker& check) const {
  run_reduction<double, rowwise::SquaredSumPartials>(launch, check, out, inp);
}

void PowerSum::run(auto launch, const Checker& check) const {
  check.typed("squared_norm", squared_norm, DType::f64, 1, 1);
  run_reduction<double, rowwise::PowerSumPartials>(launch, check, out, inp,
                                                   address<const double>(squared_norm), p);
}

void LargestSize::run(auto launch, const Checker& check) const {
  run_reduction<double, rowwise::LargestSizePartials, rowwise::Larger>(launch, check, out, inp);
}

void CountNonfinite::run(auto launch, const Checker& check) const {
  run_reduction<std::int64_t, rowwise::NonfinitePartials>(launch, check, out, inp);
}

void ClipFactor::run(auto launch, const Checker& check) const {
  check.f32("out", out, 1, 1);
  check.typed("squared_norm", squared_norm, DType::f64, 1, 1);
  if (sum.data) check.typed("sum", sum, DType::f64, 1, 1);
  launch.tiles(1, 1,
               rowwise::ClipFactorKernel{address<float>(out), address<const double>(squared_norm),
                                         max_norm, static_cast<const double*>(sum.data), p});
}

}  // namespace axonn::ops
