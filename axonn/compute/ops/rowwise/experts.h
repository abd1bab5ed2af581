#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

// The rows of R · k copies of rows, ordered by expert, then by row, on any number of threads:
// teams count the experts' copies in blocks of rows, teams add these counts up for some experts
// each, and teams then number the copies of each block. Bound by memory: 2 · R · k · 4 bytes, but
// every step waits for the last one.

/// Rows that a team counts.
constexpr std::int64_t kOrderRows = 64;

/// Experts whose counts a team adds up.
constexpr std::int64_t kOrderExperts = 32;

/// Whether a member of a team counts the copies of the expert.
AXONN_DEVICE inline bool has_expert(int member, auto members, int id) {
  return id < members ? id == member : id % members == member;
}

/// before[block] = the number of copies of each expert in the block.
struct CountExperts {
  Matrix<std::int32_t> before;     // (blocks, E)
  Matrix<const std::int32_t> ids;  // (R, k)
  std::int64_t R;
  int k, E;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t block) const {
    const std::int64_t begin = block * kOrderRows, end = std::min(begin + kOrderRows, R);
    std::int32_t* counts = before.row(block);
    team.share([&](int member, auto members) {
      for (int e = member; e < E; e += members) counts[e] = 0;
      for (std::int64_t r = begin; r < end; ++r)
        for (int j = 0; j < k; ++j)
          if (const int id = ids.row(r)[j]; has_expert(member, members, id)) ++counts[id];
    });
  }
};

/// counts = the sums of all blocks, and before = the sums of the blocks before each. One team for
/// kOrderExperts experts.
struct AddExperts {
  std::int32_t* counts;         // (E)
  Matrix<std::int32_t> before;  // (blocks, E)
  std::int64_t blocks;
  int E;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t group) const {
    const std::int64_t first = group * kOrderExperts, left = E - first;
    team.column_prefixes(before.from(first), blocks,
                         static_cast<int>(left < kOrderExperts ? left : kOrderExperts),
                         counts + first);
  }
};

/// copy_rows[r][j] = the row of that copy, for each row of a block.
struct OrderCopies {
  Matrix<std::int32_t> copy_rows;  // (R, k)
  Matrix<std::int32_t> before;     // (blocks, E)
  const std::int32_t* counts;      // (E)
  Matrix<const std::int32_t> ids;  // (R, k)
  std::int64_t R;
  int k, E;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t block) const {
    const std::int64_t begin = block * kOrderRows, end = std::min(begin + kOrderRows, R);
    std::int32_t* next = before.row(block);
    team.share([&](int member, auto members) {
      std::int32_t first = 0;  // row of the expert
      for (int e = member, added = 0; e < E; e += members) {
        for (; added < e; ++added) first += counts[added];
        next[e] += first;
      }
      for (std::int64_t r = begin; r < end; ++r)
        for (int j = 0; j < k; ++j)
          if (const int id = ids.row(r)[j]; has_expert(member, members, id))
            copy_rows.row(r)[j] = next[id]++;
    });
  }
};

/// Where the copies of R rows stand.
struct CopyRows {
  Matrix<const std::int32_t> all;  // (R, k)
  std::int64_t R;
  int k;

  AXONN_DEVICE std::int64_t operator()(std::int64_t row, int j) const { return all.row(row)[j]; }
  /// The row of the copy after copy j of the row; the same one if there is none.
  AXONN_DEVICE std::int64_t after(std::int64_t row, int j) const {
    if (j + 1 < k) return all.row(row)[j + 1];
    return row + 1 < R ? all.row(row + 1)[0] : all.row(row)[j];
  }
};

/// out[copy_rows[row][j]] = inp[row]. One team per row. Bound by memory: R · (k + 1) · C ·
/// sizeof(T) bytes.
template <typename T>
struct SpreadRowsKernel {
  Matrix<T> out;        // (R · k, C)
  Matrix<const T> inp;  // (R, C)
  CopyRows copy_rows;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    for (int j = 0; j < copy_rows.k; ++j)
      team.map_asking(
          std::tuple<const T*>{out.row(copy_rows.after(row, j))}, out.row(copy_rows(row, j)), C,
          [](auto x) { return x; }, inp.row(row));
  }
};

/// out[row] = the sum of its copies, each times its weight. One team per row. Bound by memory:
/// R · (k + 1) · C · sizeof(T) bytes.
template <typename T>
struct CombineRowsKernel {
  Matrix<T> out;                // (R, C)
  Matrix<const T> inp;          // (R · k, C)
  Matrix<const float> weights;  // (R, k) or absent
  CopyRows copy_rows;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const std::int64_t next = row + 1 < copy_rows.R ? row + 1 : row;
    const RowTerms terms{copy_rows.all.row(row), weights.data ? weights.row(row) : nullptr,
                         copy_rows.k};
    team.combine(out.row(row), C, inp, terms, copy_rows.all.row(next));
  }
};

/// d_inp[copy] = weight · d_out[row] and d_weight = the sum of d_out[row] · inp[copy], for each
/// copy of the row. One team per row. Bound by memory: R · (2 k + 1) · C · sizeof(T) bytes.
template <typename T>
struct CombineRowsBackwardKernel {
  Matrix<T> d_inp;              // (R · k, C), may be inp
  Matrix<float> d_weights;      // (R, k)
  Matrix<const T> d_out;        // (R, C)
  Matrix<const T> inp;          // (R · k, C)
  Matrix<const float> weights;  // (R, k)
  CopyRows copy_rows;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    for (int j = 0; j < copy_rows.k; ++j) {
      const std::int64_t copy = copy_rows(row, j), next = copy_rows.after(row, j);
      const float dot = team.map_sum_asking(
          std::tuple<const T*, const T*>{inp.row(next), d_inp.row(next)}, d_inp.row(copy), C,
          [weight = weights.row(row)[j]](auto d, auto x) { return pair(d * weight, d * x); },
          d_out.row(row), inp.row(copy));
      team.once([&] { d_weights.row(row)[j] = dot; });
    }
  }
};

/// The weights of a row's experts times these experts' factors. One team per row.
template <typename W>
struct ExpertFactorsKernel {
  Matrix<float> out;
  Matrix<const float> inp;
  Matrix<const std::int32_t> ids;
  const W* factors;
  int k;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    team.each(
        k, [=, this](int j) { out.row(row)[j] = inp.row(row)[j] * get(factors[ids.row(row)[j]]); });
  }
};

/// See ops::ExpertFactorTerms. One team per row.
struct ExpertFactorTermsKernel {
  Matrix<float> out;
  Matrix<const float> d_out, inp;
  Matrix<const std::int32_t> ids;
  int k, E;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    team.each(E, [=, this](int i) {
      float term = 0;
      for (int j = 0; j < k; ++j)
        if (ids.row(row)[j] == i) term = d_out.row(row)[j] * inp.row(row)[j];
      out.row(row)[i] = term;
    });
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void ExpertOrder::run(auto launch, const Checker& check) const {
  const std::int64_t R = ids.rows, blocks = (R + rowwise::kOrderRows - 1) / rowwise::kOrderRows;
  const int k = width(ids), E = width(counts);
  check.typed("ids", ids, DType::i32, R, k);
  check.like("copy_rows", copy_rows, ids);
  check.ids("counts", counts, E);
  AXONN_CHECK(R * k <= std::numeric_limits<std::int32_t>::max(), "expert_order: ids is ", ids,
              ", want less than 2^31 elements");
  const Matrix<std::int32_t> before{launch.scratch.template take<std::int32_t>(blocks * E), E};
  auto* const sums = address<std::int32_t>(counts);
  constexpr std::int64_t kExperts = rowwise::kOrderExperts,
                         kAllThreads = 4096;  // a GPU's thread takes 8 at once
  const std::int64_t threads = std::int64_t{E} * 8, work = rowwise::kOrderRows * k;
  launch.rows({blocks, work, threads}, rowwise::CountExperts{before, ids, R, k, E});
  launch.rows({(E + kExperts - 1) / kExperts, blocks * kExperts, kAllThreads},
              rowwise::AddExperts{sums, before, blocks, E});
  launch.rows({blocks, work, threads}, rowwise::OrderCopies{copy_rows, before, sums, ids, R, k, E});
}

/// Checks copies of `rows` at copy_rows (R, k), one after another in `copies`.
inline rowwise::CopyRows check_copies(const Checker& check, const View& rows, const View& copies,
                                      const View& copy_rows) {
  const std::int64_t R = rows.rows, k = copy_rows.cols;
  check.typed("copy_rows", copy_rows, DType::i32, R, k);
  AXONN_CHECK(copies.rows == R * k, check.operation, ": ", copies, " for ", k, " copies of ", rows,
              ", want ", R * k, " rows");
  return {copy_rows, R, static_cast<int>(k)};
}

void ExpertFactors::run(auto launch, const Checker& check) const {
  check.f32("inp", inp, inp.rows, inp.cols);
  check.f32("out", out, inp.rows, inp.cols);
  check.typed("ids", ids, DType::i32, inp.rows, inp.cols);
  check.values("factors", factors, 1, factors.cols);
  with_type(factors.dtype, [&]<typename W>(W) {
    launch.rows(
        {inp.rows, inp.cols, inp.cols},
        rowwise::ExpertFactorsKernel<W>{out, inp, ids, address<const W>(factors), width(inp)});
  });
}

void ExpertFactorTerms::run(auto launch, const Checker& check) const {
  check.f32("d_out", d_out, d_out.rows, d_out.cols);
  check.f32("inp", inp, d_out.rows, d_out.cols);
  check.typed("ids", ids, DType::i32, d_out.rows, d_out.cols);
  check.f32("out", out, d_out.rows, out.cols);
  launch.rows({out.rows, out.cols, out.cols},
              rowwise::ExpertFactorTermsKernel{out, d_out, inp, ids, width(d_out), width(out)});
}

void SpreadRows::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.typed("out", out, inp.dtype, out.rows, inp.cols);
  const rowwise::CopyRows at = check_copies(check, inp, out, copy_rows);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.rows({inp.rows, at.k * inp.cols, inp.cols},
                rowwise::SpreadRowsKernel<T>{out, inp, at, width(inp)});
  });
}

void CombineRows::run(auto launch, const Checker& check) const {
  check.values("out", out);
  check.typed("inp", inp, out.dtype, inp.rows, out.cols);
  const rowwise::CopyRows at = check_copies(check, out, inp, copy_rows);
  if (weights.data) check.f32("weights", weights, out.rows, at.k);
  with_type(out.dtype, [&]<typename T>(T) {
    launch.rows({out.rows, at.k * out.cols, out.cols},
                rowwise::CombineRowsKernel<T>{out, inp, weights, at, width(out)});
  });
}

void CombineRowsBackward::run(auto launch, const Checker& check) const {
  check.values("d_out", d_out);
  check.typed("inp", inp, d_out.dtype, inp.rows, d_out.cols);
  check.like("d_inp", d_inp, inp);
  const rowwise::CopyRows at = check_copies(check, d_out, inp, copy_rows);
  check.f32("weights", weights, d_out.rows, at.k);
  check.f32("d_weights", d_weights, d_out.rows, at.k);
  with_type(d_out.dtype, [&]<typename T>(T) {
    launch.rows({d_out.rows, at.k * d_out.cols, d_out.cols},
                rowwise::CombineRowsBackwardKernel<T>{d_inp, d_weights, d_out, inp, weights, at,
                                                      width(d_out)});
  });
}

}  // namespace axonn::ops
