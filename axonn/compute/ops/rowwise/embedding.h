#pragma once

#include <cstdint>
#include <tuple>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

/// Rows of a table lie anywhere, so the hardware does not prefetch them: a team prefetches the row
/// that it needs this many rows later.
constexpr std::int64_t kAhead = 4;

/// out[row] = table[ids[row] - first], or zeros if the table has no such row, + the learned row of
/// its position. One team per row. Bound by memory: (2 or 3) · R · C · sizeof(T) bytes.
template <typename T>
struct EmbeddingKernel {
  Matrix<T> out;                  // (R, C)
  const std::int32_t* ids;        // (R)
  Matrix<const T> table;          // (V, C)
  Matrix<const T> learned;        // (P, C) or absent
  const std::int32_t* positions;  // (R), or null: row % P
  std::int64_t first, V, P;
  std::int64_t R;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const std::int64_t id = ids[row] - first;
    const bool here = id >= 0 && id < V;
    const std::int64_t next = row + kAhead < R ? ids[row + kAhead] - first : id;
    const std::tuple<const T*> soon{table.row(next >= 0 && next < V ? next : 0)};
    T* y = out.row(row);
    if (learned.data) {
      const T* position = learned.row(positions ? positions[row] : row_remainder(row, P));
      if (here)
        team.map_asking(
            soon, y, C, [](auto a, auto b) { return a + b; }, table.row(id), position);
      else
        team.map(
            y, C, [](auto a) { return a; }, position);
    } else if (here) {
      team.map_asking(
          soon, y, C, [](auto a) { return a; }, table.row(id));
    } else {
      team.map(y, C, [] { return 0.0f; });
    }
  }
};

/// d_table[ids[row] - first] += d_out[row], in the order of the rows, without atomics. One team per
/// part of the table: the table's rows whose index modulo `parts` is `part`. Bound by memory:
/// R · C · (sizeof(T) + 8) bytes.
template <typename T>
struct EmbeddingBackwardKernel {
  Matrix<float> d_table;    // (V, C)
  Matrix<const T> d_out;    // (R, C)
  const std::int32_t* ids;  // (R)
  std::int64_t first, V, R;

  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t part, std::int64_t parts) const {
    std::int64_t soon = next(-1, part, parts), row = soon;
    for (int i = 0; i < kAhead; ++i) soon = next(soon, part, parts);
    for (; row < R; row = next(row, part, parts), soon = next(soon, part, parts)) {
      const std::int64_t later = soon < R ? soon : row;
      float* y = d_table.row(ids[row] - first);
      team.map_asking(
          std::tuple<const float*, const T*>{d_table.row(ids[later] - first), d_out.row(later)}, y,
          C, [](auto a, auto b) { return a + b; }, y, d_out.row(row));
    }
  }

 private:
  /// The first row after `row` whose id is in the part; R if there is none.
  AXONN_DEVICE std::int64_t next(std::int64_t row, std::int64_t part, std::int64_t parts) const {
    for (++row; row < R; ++row) {
      const std::int64_t id = ids[row] - first;
      if (id >= 0 && id < V && id % parts == part) return row;
    }
    return R;
  }
};

/// d_positions[t] += d_out[b · T + t] over the sequences b, in their order. One team per position.
template <typename T>
struct PositionsBackwardKernel {
  Matrix<float> d_positions;  // (positions_count, C)
  Matrix<const T> d_out;      // (R, C)
  std::int64_t positions_count, R;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t t) const {
    float* y = d_positions.row(t);
    for (std::int64_t r = t; r < R; r += positions_count)
      team.map(
          y, C, [](auto a, auto b) { return a + b; }, y, d_out.row(r));
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void Embedding::run(auto launch, const Checker& check) const {
  check.values("out", out);
  check.ids("ids", ids, out.rows);
  check.typed("table", table, out.dtype, table.rows, out.cols);
  if (positions.data) check.ids("positions", positions, out.rows);
  if (learned.data) {
    check.typed("learned", learned, out.dtype, learned.rows, out.cols);
    AXONN_CHECK(learned.rows > 0, "embedding: learned is ", learned, ", want at least one row");
  }
  with_type(out.dtype, [&]<typename T>(T) {
    launch.rows({out.rows, out.cols}, rowwise::EmbeddingKernel<T>{
                                          .out = out,
                                          .ids = address<const std::int32_t>(ids),
                                          .table = table,
                                          .learned = learned,
                                          .positions = address<const std::int32_t>(positions),
                                          .first = first,
                                          .V = table.rows,
                                          .P = learned.rows,
                                          .R = out.rows,
                                          .C = width(out),
                                      });
  });
}

void EmbeddingBackward::run(auto launch, const Checker& check) const {
  check.values("d_out", d_out);
  check.ids("ids", ids, d_out.rows);
  check.f32("d_table", d_table, d_table.rows, d_out.cols);
  with_type(d_out.dtype, [&]<typename T>(T) {
    launch.rows_by_id(rowwise::EmbeddingBackwardKernel<T>{
        .d_table = d_table,
        .d_out = d_out,
        .ids = address<const std::int32_t>(ids),
        .first = first,
        .V = d_table.rows,
        .R = d_out.rows,
        .C = width(d_out),
    });
  });
}

void PositionsBackward::run(auto launch, const Checker& check) const {
  check.values("d_out", d_out);
  check.f32("d_positions", d_positions, d_positions.rows, d_out.cols);
  with_type(d_out.dtype, [&]<typename T>(T) {
    launch.rows({d_positions.rows, d_out.cols}, rowwise::PositionsBackwardKernel<T>{
                                                    .d_positions = d_positions,
                                                    .d_out = d_out,
                                                    .positions_count = d_positions.rows,
                                                    .R = d_out.rows,
                                                    .C = width(d_out),
                                                });
  });
}

}  // namespace axonn::ops
