#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "axonn/ops/rowwise/matrix.h"

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

/// partial[block] = sums over the block's rows of term(row)(inp...).
template <typename Term, typename... In>
struct ColumnPartials {
  Matrix<float> partial;  // (blocks, C)
  std::int64_t R;
  Term term;
  std::tuple<Matrix<const In>...> inp;  // (R, C) each

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    const std::int64_t begin = tile.row * kRowBlock, end = std::min(begin + kRowBlock, R);
    std::apply(
        [&](auto... in) {
          team.column_sums(partial.row(tile.row) + tile.begin, tile.count, begin, end, term,
                           decltype(in){in.data + tile.begin, in.stride}...);
        },
        inp);
  }
};

/// The same with two sums per column: term(row)(inp...) returns both terms.
template <typename Term, typename... In>
struct ColumnPartialsTwo {
  Matrix<float> a, b;  // (blocks, C) each
  std::int64_t R;
  Term term;
  std::tuple<Matrix<const In>...> inp;  // (R, C) each

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    const std::int64_t begin = tile.row * kRowBlock, end = std::min(begin + kRowBlock, R);
    std::apply(
        [&](auto... in) {
          team.column_sums_two(a.row(tile.row) + tile.begin, b.row(tile.row) + tile.begin,
                               tile.count, begin, end, term,
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
