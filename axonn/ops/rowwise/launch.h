#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "axonn/base/check.h"
#include "axonn/ops/operand_checks.h"
#include "axonn/ops/operations.h"
#include "axonn/ops/rowwise/matrix.h"

// What the run() of row-wise operations needs. A device has a Launch (ops/cpu/launch.h and
// ops/cuda/launch.cuh), a small value that launches kernels of this folder by these functions:
//
// - rows(work, kernel): kernel(team, row) for every row.
// - tiles(rows, cols, kernel): kernel(team, tile) for tiles that cover all columns of all rows.
// - reduce(rows, cols, out, make): the same, where kernel = make(partial) writes a partial sum for
//   each tile. Adds these to out.
// - columns(R, C, out, make): sums down columns, see ColumnPartials. kernel = make(partial),
//   with an array of n partial sums (blocks, C). Adds their rows, in their order, to the n arrays
//   of out (C).
// - row_blocks(work, C, out, make): kernel(team, block) for every kRowBlock rows. kernel =
//   make(partial), with partial sums (blocks, C). Adds their rows, in their order, to out (C).
// - rows_by_id(kernel): an EmbeddingBackwardKernel.

namespace axonn {

/// Calls f with a value of the element type. The caller has checked that it is f32 or bf16.
void with_type(DType dtype, auto f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else
    f(float{});
}

/// The same for two element types.
void with_types(DType a, DType b, auto f) {
  with_type(a, [&]<typename A>(A) { with_type(b, [&]<typename B>(B) { f(A{}, B{}); }); });
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
// blocks of kRowBlock, a team sums a tile of columns of one block in the order of its rows, and a
// second launch adds the blocks' sums in their order.
//
// Bound by memory: R · C · sizeof(T) bytes per input.

/// Enough rows that partial sums are few, and so few that a thousand rows are work for eight teams.
constexpr std::int64_t kRowBlock = 128;
/// Columns of a tile: few enough that its running sums stay in the L1 cache beside the rows that
/// stream by, and enough that the hardware prefetches little beyond the tile's rows.
constexpr int kColumnTile = 4096;

/// partial[i][block] = n sums over the block's rows of term(row)(inp...), which returns one term,
/// or a Pair of them if n is 2.
template <std::size_t n, typename Term, typename... In>
struct ColumnPartials {
  std::array<Matrix<float>, n> partial;  // (blocks, C) each
  std::int64_t R;
  Term term;
  std::tuple<Matrix<const In>...> inp;  // (R, C) each

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const std::int64_t begin = tile.row * kRowBlock, end = std::min(begin + kRowBlock, R);
    std::array<float*, n> sums;
    for (std::size_t i = 0; i < n; ++i) sums[i] = partial[i].at(tile);
    std::apply(
        [&](auto... in) {
          team.column_sums(sums, tile.count, begin, end, term,
                           decltype(in){in.data + tile.begin, in.stride}...);
        },
        inp);
  }
};

/// n matrices of partial sums, (blocks, C), in memory of a Scratch.
template <std::size_t n>
std::array<Matrix<float>, n> partial_sums(auto& scratch, std::int64_t blocks, std::int64_t C) {
  float* memory = scratch.template take<float>(static_cast<std::int64_t>(n) * blocks * C);
  std::array<Matrix<float>, n> sums;
  for (Matrix<float>& one : sums) one = {memory + (&one - sums.data()) * blocks * C, C};
  return sums;
}

}  // namespace axonn::rowwise

namespace axonn::ops {

using rowwise::Matrix;

/// The columns of a view, as kernels count them.
inline int width(const View& view) { return static_cast<int>(view.cols); }

}  // namespace axonn::ops
