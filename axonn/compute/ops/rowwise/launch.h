#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <tuple>

#include "axonn/compute/ops/operand_checks.h"
#include "axonn/compute/ops/operations.h"
#include "axonn/compute/ops/rowwise/matrix.h"
#include "axonn/foundation/base/check.h"

// Helpers of the run() of row-wise operations. A device has a Launch (ops/cpu/launch.h and
// ops/gpu/launch.cuh), a small value that launches kernels of this folder by these functions:
//
// - rows(work, kernel): kernel(team, row) for every row.
// - heads(work, kernel): kernel(team, row, heads) for all heads of every row. Kernels make the same
//   reductions for every head.
// - tiles(rows, cols, kernel): kernel(team, tile) for tiles that cover all columns of all rows.
// - reduce(rows, cols, out, make, combine): the same, where kernel = make(partial) writes a partial
//   result for each tile. Combines these with out: their sum, or another result of at least 0.
// - columns(work, out, make): sums down columns, see ColumnPartials. kernel = make(blocks), with
//   RowBlocks. Adds the rows of their sums, in a fixed order, to the n arrays of out (C).
// - rows_by_id(kernel): an EmbeddingBackwardKernel.
// - norm_backward(rows): computes NormBackwardRows, or returns false if a team cannot keep a row.

namespace axonn {

/// Calls f with a value of the element type. The caller has checked that it is f32, bf16 or f16.
void with_type(DType dtype, auto f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else if (dtype == DType::f16)
    f(f16{});
  else
    f(float{});
}

namespace detail {

/// Calls f with a value of the type of 16 bits that is among the dtypes; any, if all are f32. A
/// kernel has one such type: with both in all places there would be twice as many kernels.
void with_half(std::initializer_list<DType> dtypes, auto f) {
  const auto has = [&](DType dtype) { return std::ranges::find(dtypes, dtype) != dtypes.end(); };
  AXONN_CHECK(!has(DType::bf16) || !has(DType::f16),
              "an operation got bf16 and f16; want one of them, beside f32: cast to f32 between");
  if (has(DType::f16))
    f(f16{});
  else
    f(bf16{});
}

/// Calls f with a float, or with a Half if the dtype is not f32.
template <typename Half>
void with_float_or(DType dtype, auto f) {
  if (dtype == DType::f32)
    f(float{});
  else
    f(Half{});
}

}  // namespace detail

/// Calls f with the types of two dtypes. Throws Error if one is bf16 and the other f16.
void with_types(DType a, DType b, auto f) {
  detail::with_half({a, b}, [&]<typename Half>(Half) {
    detail::with_float_or<Half>(a, [&]<typename A>(A) {
      detail::with_float_or<Half>(b, [&]<typename B>(B) { f(A{}, B{}); });
    });
  });
}

/// The same of three.
void with_types(DType a, DType b, DType c, auto f) {
  detail::with_half({a, b, c}, [&]<typename Half>(Half) {
    detail::with_float_or<Half>(a, [&]<typename A>(A) {
      detail::with_float_or<Half>(b, [&]<typename B>(B) {
        detail::with_float_or<Half>(c, [&]<typename C>(C) { f(A{}, B{}, C{}); });
      });
    });
  });
}

/// Makes each view one long row if all are contiguous: narrow rows would make narrow tiles.
void flatten(auto&... views) {
  if (!(views.contiguous() && ...)) return;
  const auto one_row = [](View& v) {
    v.cols = v.stride = v.count();
    v.rows = 1;
  };
  (one_row(views), ...);
}

/// The number of tiles of `width` that cover `cols`.
inline std::int64_t tiles_of(std::int64_t cols, int width) { return (cols + width - 1) / width; }

}  // namespace axonn

namespace axonn::rowwise {

// Sums down the columns of (R, C), the same bits on any number of threads: rows are cut into
// blocks, a team sums a tile of columns of one block in a fixed order, and a second launch adds the
// blocks' sums in a fixed order. On a CPU both are the orders of the rows and of the blocks.
//
// Bound by memory: R · C · sizeof(T) bytes per input.

/// The sum of two partial results.
struct Added {
  template <typename T>
  AXONN_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};

/// Rows to sum down.
struct ColumnWork {
  /// Rows of a block on a CPU: enough that partial sums are few, and so few that a thousand rows
  /// are work for eight teams.
  static constexpr std::int64_t kBlock = 128;

  std::int64_t rows, cols;
  std::int64_t block = kBlock;  ///< rows of a block on a CPU; GPUs choose them by their number
};
/// Columns of a tile: few enough that its running sums stay in the L1 cache beside the rows that
/// stream by, and enough that the hardware prefetches little beyond the tile's rows.
constexpr int kColumnTile = 4096;

/// Blocks of rows, and n sums for each of their columns.
template <std::size_t n>
struct RowBlocks {
  std::array<Matrix<float>, n> partial;  // (blocks, C) each
  std::int64_t each;                     ///< rows of a block, but for the last
};

/// partial[i][block] = n sums over the block's rows of term(row)(inp...), which returns one term,
/// or a Pair of them if n is 2. Rows: Matrix or HeadRows, of const elements.
template <std::size_t n, typename Term, typename... Rows>
struct ColumnPartials {
  RowBlocks<n> blocks;
  std::int64_t R;
  Term term;
  std::tuple<Rows...> inp;  // (R, C) each

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const std::int64_t begin = tile.row * blocks.each, end = std::min(begin + blocks.each, R);
    std::array<float*, n> sums;
    for (std::size_t i = 0; i < n; ++i) sums[i] = blocks.partial[i].at(tile);
    std::apply(
        [&](auto... in) {
          team.column_sums(sums, tile.count, begin, end, term, in.from(tile.begin)...);
        },
        inp);
  }
};

/// Blocks of `each` rows, with sums in memory of a Scratch.
template <std::size_t n>
RowBlocks<n> row_blocks(auto& scratch, const ColumnWork& work, std::int64_t each) {
  const std::int64_t C = work.cols, all = (work.rows + each - 1) / each * C;
  float* memory = scratch.template take<float>(static_cast<std::int64_t>(n) * all);
  RowBlocks<n> blocks{.partial = {}, .each = each};
  for (Matrix<float>& one : blocks.partial)
    one = {memory + (&one - blocks.partial.data()) * all, C};
  return blocks;
}

}  // namespace axonn::rowwise

namespace axonn::ops {

using rowwise::Matrix;

/// The columns of a view, as kernels count them.
inline int width(const View& view) { return static_cast<int>(view.cols); }

}  // namespace axonn::ops
