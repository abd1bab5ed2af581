#pragma once

#include <array>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"

// Kernels of the convolutions of delta_operations.h, and which rows a row sees there.

namespace axonn::rowwise {

/// ops::SeenRows on a device.
struct Seen {
  std::int64_t positions;
  const std::int32_t *starts, *slots, *position;

  explicit Seen(const ops::SeenRows& seen)
      : positions(seen.positions),
        starts(address<const std::int32_t>(seen.starts)),
        slots(address<const std::int32_t>(seen.slots)),
        position(address<const std::int32_t>(seen.position)) {}

  /// The position of a row in its sequence.
  AXONN_DEVICE std::int64_t at(std::int64_t row) const {
    return slots ? position[row] : row_remainder(row, positions);
  }
  /// How many rows before it a row sees.
  AXONN_DEVICE std::int64_t before(std::int64_t row) const {
    return at(row) - (starts ? starts[row] : 0);
  }
};

/// The sum of products of as many weights as there are values, which come first.
struct SumOfTaps {
  AXONN_DEVICE auto operator()(auto... all) const {
    return sum(std::make_index_sequence<sizeof...(all) / 2>(), std::tuple(all...));
  }
  template <std::size_t... I>
  AXONN_DEVICE static auto sum(std::index_sequence<I...>, const auto& all) {
    return (... + (std::get<sizeof...(I) + I>(all) * std::get<I>(all)));
  }
};

/// See ops::CausalConvolution. One team per row. Bound by memory: 2 · R · C · sizeof(T) bytes.
template <typename T, int kTaps>
struct ConvolutionKernel {
  static constexpr int kBefore = kTaps - 1;

  Matrix<T> out;
  Matrix<const T> inp, kept;
  Matrix<const float> weight;
  Seen seen;
  std::int64_t R;
  int C;
  bool adjoint;

  /// The row `distance` away, where the tap's weight is not that of a row that is not seen.
  struct Tap {
    const T* row;
    const float* weight;
  };
  AXONN_DEVICE Tap tap(std::int64_t row, int distance) const {
    const Tap none{inp.row(row), weight.row(kBefore + 1)};
    const float* const own = weight.row(kBefore - distance);
    if (adjoint) {
      const std::int64_t later = row + distance;
      const bool sees = later < R &&
                        row_quotient(later, seen.positions) == row_quotient(row, seen.positions) &&
                        seen.before(later) >= distance;
      return sees ? Tap{inp.row(later), own} : none;
    }
    if (seen.before(row) < distance) return none;
    if (!seen.slots) return {inp.row(row - distance), own};
    const std::int64_t above = row - distance, slot = seen.slots[row];
    if (above >= 0 && seen.slots[above] == slot &&
        seen.position[above] == seen.position[row] - distance)
      return {inp.row(above), own};
    return {kept.row(slot * kBefore + (seen.position[row] - distance) % kBefore), own};
  }

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    if (seen.slots && seen.slots[row] < 0) return;
    convolve(team, row, std::make_index_sequence<kTaps>());
  }
  template <std::size_t... I>
  AXONN_DEVICE void convolve(const auto& team, std::int64_t row, std::index_sequence<I...>) const {
    const Tap taps[] = {tap(row, kBefore - static_cast<int>(I))...};  // the farthest first
    team.map(out.row(row), C, SumOfTaps(), taps[I].row..., taps[I].weight...);
  }
};

/// Calls f with the taps as an integral constant.
void with_taps(std::int64_t taps, const Checker& check, auto f) {
  AXONN_CHECK(taps == 4 || taps == 8 || taps == 16, check.operation, ": ", taps,
              " taps, there are kernels for 4, 8 and 16");
  if (taps == 4) return f(std::integral_constant<int, 4>());
  if (taps == 8) return f(std::integral_constant<int, 8>());
  f(std::integral_constant<int, 16>());
}

/// A term of the gradient of a tap: d_out of row r + distance times inp of row r, if it sees it.
struct TapTerm {
  Seen seen;
  int distance;

  AXONN_DEVICE auto operator()(std::int64_t row) const {
    const std::int64_t later = row + distance;
    const bool sees = row_quotient(later, seen.positions) == row_quotient(row, seen.positions) &&
                      seen.before(later) >= distance;
    return [factor = sees ? 1.0f : 0.0f](auto d, auto x) { return factor * (d * x); };
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Checks which rows are seen, of R.
inline void check_seen(const Checker& check, const SeenRows& seen, std::int64_t R) {
  if (seen.slots.data) {
    check.ids("slots", seen.slots, R);
    check.ids("position", seen.position, R);
    return;
  }
  AXONN_CHECK(seen.positions > 0 && R % seen.positions == 0, check.operation, ": ", R,
              " rows, want whole sequences of ", seen.positions, " positions");
  if (seen.starts.data) check.ids("starts", seen.starts, R);
}

void CausalConvolution::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("out", out, inp);
  check.f32("weight", weight, weight.rows, inp.cols);
  check_seen(check, seen, inp.rows);
  AXONN_CHECK(out.data != inp.data && !(adjoint && seen.slots.data), check.operation,
              ": out is inp, or adjoint with slots");
  if (seen.slots.data) check.typed("kept", kept, inp.dtype, kept.rows, inp.cols);
  with_type(inp.dtype, [&]<typename T>(T) {
    rowwise::with_taps(weight.rows - 1, check, [&](auto taps) {
      launch.rows({inp.rows, inp.cols, width(inp)},
                  rowwise::ConvolutionKernel<T, taps>{out, inp, kept, weight, rowwise::Seen(seen),
                                                      inp.rows, width(inp), adjoint});
    });
  });
}

void CausalConvolutionWeights::run(auto launch, const Checker& check) const {
  const std::int64_t taps = d_weight.rows;
  check.values("inp", inp);
  check.like("d_out", d_out, inp);
  check.f32("d_weight", d_weight, taps, inp.cols);
  check_seen(check, seen, inp.rows);
  with_type(inp.dtype, [&]<typename T>(T) {
    for (int distance = 0; distance < taps && distance < inp.rows; ++distance) {
      const std::int64_t R = inp.rows - distance;
      const Matrix<const T> d = d_out.row_range(distance, R), x = inp.row_range(0, R);
      const std::array<float*, 1> to{address<float>(d_weight.row_range(taps - 1 - distance, 1))};
      launch.columns(
          rowwise::ColumnWork{R, inp.cols}, to, [&](const rowwise::RowBlocks<1>& blocks) {
            return rowwise::ColumnPartials<1, rowwise::TapTerm, Matrix<const T>, Matrix<const T>>{
                blocks, R, {rowwise::Seen(seen), distance}, {d, x}};
          });
    }
  });
}

}  // namespace axonn::ops
