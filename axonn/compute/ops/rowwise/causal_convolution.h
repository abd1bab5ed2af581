#pragma once

#include <array>
#include <cstdint>
#include <tuple>

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
  /// Whether a row sees the one that is so many rows above it. Not of slots.
  AXONN_DEVICE bool sees(std::int64_t row, int distance) const {
    return row_quotient(row, positions) == row_quotient(row - distance, positions) &&
           before(row) >= distance;
  }
};

/// The rows that a row of a convolution reads, at distances 0 to `before`.
template <typename T>
struct ConvolutionRows {
  Matrix<const T> inp, kept;
  Seen seen;
  std::int64_t R;
  int before;  // J - 1
  bool adjoint;

  /// Where it is true for a distance, it is for those below.
  AXONN_DEVICE bool sees(std::int64_t row, int distance) const {
    if (!adjoint) return seen.before(row) >= distance;
    const std::int64_t later = row + distance;
    return later < R && seen.sees(later, distance);
  }
  /// One that it sees.
  AXONN_DEVICE const T* input(std::int64_t row, int distance) const {
    if (adjoint) return inp.row(row + distance);
    const std::int64_t above = row - distance;
    if (!seen.slots) return inp.row(above);
    const int slot = seen.slots[row], position = seen.position[row] - distance;
    if (above >= 0 && seen.slots[above] == slot && seen.position[above] == position)
      return inp.row(above);
    return kept.row(std::int64_t{slot} * before + position % before);
  }
};

/// See ops::CausalConvolution, of 4 taps. One team per row. Bound by memory: 2 · R · C · sizeof(T)
/// bytes.
template <typename T>
struct ConvolutionKernel {
  Matrix<T> out;
  Matrix<const float> weight;
  ConvolutionRows<T> rows;
  int C;

  /// The row `distance` away, where the tap's weight is not that of a row that is not seen.
  struct Tap {
    const T* row;
    const float* weight;
  };
  AXONN_DEVICE Tap tap(std::int64_t row, int distance) const {
    if (rows.sees(row, distance)) return {rows.input(row, distance), weight.row(3 - distance)};
    return {rows.inp.row(row), weight.row(4)};
  }

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    if (rows.seen.slots && rows.seen.slots[row] < 0) return;
    const Tap now = tap(row, 0), one = tap(row, 1), two = tap(row, 2), three = tap(row, 3);
    team.map(
        out.row(row), C,
        [](auto a, auto b, auto c, auto d, auto wa, auto wb, auto wc, auto wd) {
          return wa * a + wb * b + wc * c + wd * d;
        },
        three.row, two.row, one.row, now.row, three.weight, two.weight, one.weight, now.weight);
  }
};

/// The same of any number of taps, a column at a time.
template <typename T>
struct LongConvolutionKernel {
  Matrix<T> out;
  Matrix<const float> weight;
  ConvolutionRows<T> rows;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    if (rows.seen.slots && rows.seen.slots[row] < 0) return;
    int last = 0;
    while (last < rows.before && rows.sees(row, last + 1)) ++last;
    team.each(C, [=, this](int c) {
      float sum = 0;
      for (int distance = last; distance >= 0; --distance)
        sum += weight.row(rows.before - distance)[c] * get(rows.input(row, distance)[c]);
      put(out.row(row)[c], sum);
    });
  }
};

/// A term of the gradient of a tap: d_out of row r + distance times inp of row r, if it sees it.
struct TapTerm {
  Seen seen;
  int distance;

  AXONN_DEVICE auto operator()(std::int64_t row) const {
    return [factor = seen.sees(row + distance, distance) ? 1.0f : 0.0f](auto d, auto x) {
      return factor * (d * x);
    };
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
  AXONN_CHECK(weight.rows > 2, check.operation, ": weight has ", weight.rows,
              " rows, want 3 or more");
  check_seen(check, seen, inp.rows);
  AXONN_CHECK(out.data != inp.data && !(adjoint && seen.slots.data), check.operation,
              ": out is inp, or adjoint with slots");
  if (seen.slots.data) check.typed("kept", kept, inp.dtype, kept.rows, inp.cols);
  const auto run = [&]<typename T, template <typename> typename Kernel>() {
    const rowwise::ConvolutionRows<T> rows{
        inp, kept, rowwise::Seen(seen), inp.rows, static_cast<int>(weight.rows - 2), adjoint};
    launch.rows({inp.rows, inp.cols, width(inp)}, Kernel<T>{out, weight, rows, width(inp)});
  };
  with_type(inp.dtype, [&]<typename T>(T) {
    if (weight.rows == 5) return run.template operator()<T, rowwise::ConvolutionKernel>();
    run.template operator()<T, rowwise::LongConvolutionKernel>();
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
