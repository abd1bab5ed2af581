#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/cpu/matmul/block_dots.h"
#include "axonn/compute/ops/cpu/matmul/coded_rows.h"
#include "axonn/compute/ops/cpu/registers.h"

namespace axonn::cpu {

/// The number of elements of T in Lanes: floats, or bf16 or f16 in pairs.
template <typename T>
constexpr int kLaneCount = sizeof(Lanes) / sizeof(T);

/// Loads `count` elements from p, at most kLaneCount<T>; the rest is zero.
template <typename T>
[[gnu::always_inline]] inline Lanes load_lanes(const T* p, int count) {
  Lanes lanes{};
  if (count == kLaneCount<T>)
    std::memcpy(&lanes, p, sizeof lanes);
  else
    std::memcpy(&lanes, p, count * sizeof(T));
  return lanes;
}

/// sum += left · right on one register; the products of a pair are added to the same float.
template <typename T>
[[gnu::always_inline]] inline void add_to_register(Floats::Register& sum,
                                                   const Floats::Register& left,
                                                   const Floats::Register& right) {
  if constexpr (std::is_same_v<T, float>)
    sum += left * right;
  else if constexpr (std::is_same_v<T, f16>)
    add_f16_products(sum, left, right);
  else
    add_pair_products(sum, left, right);
}

/// The sum of all lanes, folded in halves.
inline float sum_of_lanes(const Lanes& lanes) {
  using Eight = float __attribute__((vector_size(32)));
  using Four = float __attribute__((vector_size(16)));
  Eight eights[2];
  std::memcpy(eights, &lanes, sizeof eights);
  const Eight eight = eights[0] + eights[1];
  Four fours[2];
  std::memcpy(fours, &eight, sizeof fours);
  const Four four = fours[0] + fours[1];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/// out[r][c] = sum_of_lanes(sums[r][c]), of registers that hold all lanes: the same additions,
/// those of four to sixteen sums at a time.
[[gnu::always_inline]] inline void sums_of_lanes(float (&out)[4][4], const Lanes (&sums)[4][4]) {
  using Sixteen = float __attribute__((vector_size(64), may_alias));
  using Index = std::int32_t __attribute__((vector_size(64)));
  const auto of = [&](int r, int c) { return reinterpret_cast<const Sixteen&>(sums[r][c]); };
  // The halves, then the quarters, then ... of two are added to each other.
  const auto joined =
      [](Sixteen x, Sixteen y, Index first, Index second) __attribute__((always_inline)) {
    return __builtin_shuffle(x, y, first) + __builtin_shuffle(x, y, second);
  };
  constexpr Index kHalves{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23},
      kQuarters{0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27},
      kPairs{0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29},
      kSingles{0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30};
  Sixteen column[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c)
    column[c] = joined(joined(of(0, c), of(1, c), kHalves, kHalves + 8),
                       joined(of(2, c), of(3, c), kHalves, kHalves + 8), kQuarters, kQuarters + 4);
  const Sixteen all =
      joined(joined(column[0], column[1], kPairs, kPairs + 2),
             joined(column[2], column[3], kPairs, kPairs + 2), kSingles, kSingles + 1);
  std::memcpy(out, &all, sizeof out);
}

/// The rows of two operands, K elements each.
template <typename T>
struct RowPairs {
  const T* a;
  std::int64_t a_row;  ///< elements from one row to the next
  const T* b;
  std::int64_t b_row;
  std::int64_t K;
};

namespace detail {

/// Rows of a, and of b, whose sums are computed together: with AVX-512, 16 sums and 5 operands in
/// 32 registers; else 12 halves of sums and 3 halves of operands in 16, or quarters of fewer. Pairs
/// need registers for both halves of their operands. On ARM 16 quarters of sums in 32, or of blocks
/// 8 sums in two registers each.
template <typename T>
constexpr int kDotRows = kDotsInBlocks<T>                                     ? 8
                         : Lanes::kRegisters == 1                             ? 4
                         : Lanes::kRegisters == 2 && std::is_same_v<T, float> ? 3
                                                                              : 2;
template <typename T>
constexpr int kDotCols = kDotsInBlocks<T> || Lanes::kRegisters == 1 ? 4
                         : kArm64 || Lanes::kRegisters == 2         ? 2
                                                                    : 1;
template <typename T>
using Dots = float[std::max(4, kDotRows<T>)][4];

/// The sums of Rows rows of a and Cols rows of b, two dimensions of Lanes or of blocks.
template <typename T, int Rows, int Cols>
using TileSums = std::conditional_t<kDotsInBlocks<T>, BlockSums[(Rows + 1) / 2][(Cols + 1) / 2],
                                    Lanes[Rows][Cols]>;

/// sums += the products of kLaneCount elements from `a` and `b`, whose rows are that far apart.
/// Always inlined, or the sums would live in memory.
template <typename T, int Rows, int Cols>
[[gnu::always_inline]] inline void add_products(Lanes (&sums)[Rows][Cols], const T* a,
                                                std::int64_t a_row, const T* b,
                                                std::int64_t b_row) {
  using Vector = Floats::Unaligned;
  constexpr int kEach = kLaneCount<T> / Lanes::kRegisters;
  Lanes::for_each([&](int i) __attribute__((always_inline)) {
    Floats::Register right[Cols];
#pragma GCC unroll 4
    for (int c = 0; c < Cols; ++c)
      right[c] = *reinterpret_cast<const Vector*>(b + c * b_row + i * kEach);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const Floats::Register left = *reinterpret_cast<const Vector*>(a + r * a_row + i * kEach);
      if constexpr (std::is_same_v<T, float>) asm volatile("" ::: "memory");  // not loaded again
#pragma GCC unroll 4
      for (int c = 0; c < Cols; ++c) add_to_register<T>(sums[r][c].r[i], left, right[c]);
    }
  });
}

/// sums += the products of kLaneCount elements of a tile's rows.
template <typename T, int Rows, int Cols>
[[gnu::always_inline]] inline void add_to_tile(TileSums<T, Rows, Cols>& sums, const T* a,
                                               std::int64_t a_row, const T* b, std::int64_t b_row) {
  if constexpr (kDotsInBlocks<T>)
    add_block_products<Rows, Cols, kLaneCount<T>>(sums, a, a_row, b, b_row);
  else
    add_products(sums, a, a_row, b, b_row);
}

/// The same of the last `count` elements, copied beside zeros.
template <typename T, int Rows, int Cols>
[[gnu::always_inline]] inline void add_last_to_tile(TileSums<T, Rows, Cols>& sums,
                                                    const RowPairs<T>& at, int count) {
  Lanes a[Rows], b[Cols];
  for (int r = 0; r < Rows; ++r) a[r] = load_lanes(at.a + r * at.a_row, count);
  for (int c = 0; c < Cols; ++c) b[c] = load_lanes(at.b + c * at.b_row, count);
  add_to_tile<T, Rows, Cols>(sums, reinterpret_cast<const T*>(a), kLaneCount<T>,
                             reinterpret_cast<const T*>(b), kLaneCount<T>);
}

/// out[r][c] = the sum of a tile's row r and column c.
template <typename T, int Rows, int Cols>
[[gnu::always_inline]] inline void fold_sums(Dots<T>& out, const TileSums<T, Rows, Cols>& sums) {
  if constexpr (kDotsInBlocks<T>) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < Cols; ++c) out[r][c] = sums[r / 2][c / 2].sum(r % 2, c % 2);
    return;
  } else if constexpr (Lanes::kRegisters == 1 && Rows >= 3 && Cols == 4) {
    if constexpr (Rows == 4) return sums_of_lanes(out, sums);
    Lanes four[4][4] = {};
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < Cols; ++c) four[r][c] = sums[r][c];
    return sums_of_lanes(out, four);
  } else {
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < Cols; ++c) out[r][c] = sum_of_lanes(sums[r][c]);
  }
}

/// Adds the products of the rows of a tile to sums, and prefetches what lies `ahead` elements
/// behind each row of b.
template <bool prefetches, typename T, int Rows, int Cols>
[[gnu::always_inline]] inline void add_tile(TileSums<T, Rows, Cols>& sums, RowPairs<T> at,
                                            std::int64_t ahead) {
  constexpr int kFull = kLaneCount<T>;
  for (; at.K >= kFull; at.K -= kFull) {
    if constexpr (prefetches)
#pragma GCC unroll 4
      for (int c = 0; c < Cols; ++c) __builtin_prefetch(at.b + c * at.b_row + ahead);
    add_to_tile<T, Rows, Cols>(sums, at.a, at.a_row, at.b, at.b_row);
    at.a += kFull;
    at.b += kFull;
  }
  if (at.K > 0) add_last_to_tile<T, Rows, Cols>(sums, at, static_cast<int>(at.K));
}

template <typename T, int Rows, int Cols>
void dot_tile(Dots<T>& out, const RowPairs<T>& at) {
  TileSums<T, Rows, Cols> sums = {};
  // Prefetches the next rows of b: 1.5 times as fast as with the hardware's prefetching alone.
  add_tile<true, T, Rows, Cols>(sums, at, Cols * at.b_row);
  fold_sums<T, Rows, Cols>(out, sums);
}

/// The sums of a tile that are not complete yet.
template <typename T>
using KeptSums = TileSums<T, kDotRows<T>, kDotCols<T>>;

/// The part of dot_tile() of at.K elements, of which the first ones begin the sums and the last
/// ones, `out` not null, complete them. `ahead` < 0: nothing is prefetched.
template <typename T, int Rows, int Cols>
void dot_part(KeptSums<T>& kept, const RowPairs<T>& at, bool first, std::int64_t ahead,
              Dots<T>* out) {
  using Sums = TileSums<T, Rows, Cols>;
  using Sum = std::remove_all_extents_t<Sums>;
  constexpr int kSumRows = std::extent_v<Sums, 0>, kSumCols = std::extent_v<Sums, 1>;
  Sums sums;
#pragma GCC unroll 4
  for (int r = 0; r < kSumRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kSumCols; ++c) sums[r][c] = first ? Sum{} : kept[r][c];
  if (ahead >= 0)
    add_tile<true, T, Rows, Cols>(sums, at, ahead);
  else
    add_tile<false, T, Rows, Cols>(sums, at, 0);
  if (out) return fold_sums<T, Rows, Cols>(*out, sums);
#pragma GCC unroll 4
  for (int r = 0; r < kSumRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kSumCols; ++c) kept[r][c] = sums[r][c];
}

/// Calls write(r, c, dot product) for one or two rows of a and the first 16 / Rows rows of b, with
/// registers that hold all lanes: the sums of dot_tile(), of which the last ones of 16 at a time.
template <int Rows, typename T, typename Write>
void dot_sixteen(RowPairs<T> at, const Write& write) {
  constexpr int kFull = kLaneCount<T>, kCols = 16 / Rows;
  Lanes sums[4][4] = {};
  const auto add = [&](const auto& left, const auto& right) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
      const Lanes a = left(r);
#pragma GCC unroll 16
      for (int c = 0; c < kCols; ++c) {
        const int i = r * kCols + c;
        add_to_register<T>(sums[i / 4][i % 4].r[0], a.r[0], right(c).r[0]);
      }
    }
  };
  const auto rows_at = [](const T* first, std::int64_t row, int count) {
    return [=](int i) __attribute__((always_inline)) { return load_lanes(first + i * row, count); };
  };
  for (; at.K >= kFull; at.K -= kFull, at.a += kFull, at.b += kFull) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) __builtin_prefetch(at.b + (kCols + c) * at.b_row);
    add(rows_at(at.a, at.a_row, kFull), rows_at(at.b, at.b_row, kFull));
  }
  const int left = static_cast<int>(at.K);
  if (left > 0) add(rows_at(at.a, at.a_row, left), rows_at(at.b, at.b_row, left));
  float dots[4][4];
  sums_of_lanes(dots, sums);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) write(i / kCols, i % kCols, dots[i / 4][i % 4]);
}

/// dot_tile() and dot_part() for 1 to kDotRows<T> rows.
template <typename T, int Cols>
constexpr auto dot_tiles() {
  return []<int... r>(std::integer_sequence<int, r...>) {
    return std::array{dot_tile<T, r + 1, Cols>...};
  }
  (std::make_integer_sequence<int, kDotRows<T>>{});
}
template <typename T, int Cols>
constexpr auto dot_parts() {
  return []<int... r>(std::integer_sequence<int, r...>) {
    return std::array{dot_part<T, r + 1, Cols>...};
  }
  (std::make_integer_sequence<int, kDotRows<T>>{});
}

/// Writes the sums of a tile: those of four columns at once if a register has them.
template <int Cols, typename Write, typename Dots>
[[gnu::always_inline]] inline void write_tile(const Write& write, std::int64_t row,
                                              std::int64_t rows, std::int64_t col,
                                              const Dots& dots) {
  if constexpr (Lanes::kRegisters == 1 && Cols == 4 && requires { write.by_registers(); })
    if (write.by_registers()) return write.four_columns(row, rows, col, dots);
  for (std::int64_t r = 0; r < rows; ++r)
    for (int c = 0; c < Cols; ++c) write(row + r, col + c, dots[r][c]);
}

/// Rows of a whose sums with kDotCols<T> rows of b are kept while parts of K are added one after
/// another, and bytes of a row in such a part: both operands of a part stay in the L1 cache.
constexpr int kPartRows = 48, kPartBytes = 4096;

/// dot_columns() of at most kPartRows rows, from row `row` on, of which each has several parts.
template <int Cols, typename T, typename Write>
void dot_in_parts(const RowPairs<T>& of, std::int64_t row, std::int64_t rows, std::int64_t col,
                  const Write& write) {
  constexpr auto kParts = dot_parts<T, Cols>();
  constexpr std::int64_t kPart = kPartBytes / sizeof(T);
  KeptSums<T> sums[(kPartRows + kDotRows<T> - 1) / kDotRows<T>];
  for (std::int64_t k = 0; k < of.K; k += kPart) {
    const bool last = k + kPart >= of.K;
    RowPairs<T> at{of.a + k, of.a_row, of.b + k, of.b_row, last ? of.K - k : kPart};
    for (std::int64_t r = 0; r < rows; r += kDotRows<T>, at.a += kDotRows<T> * at.a_row) {
      const std::int64_t count = std::min<std::int64_t>(kDotRows<T>, rows - r);
      Dots<T> dots;
      kParts[count - 1](sums[r / kDotRows<T>], at, k == 0, r == 0 ? Cols * of.b_row : -1,
                        last ? &dots : nullptr);
      if (last) write_tile<Cols>(write, row + r, count, col, dots);
    }
  }
}

/// All rows of a with Cols rows of b, from row `col`.
template <int Cols, typename T, typename Write>
void dot_columns(RowPairs<T> at, std::int64_t rows, std::int64_t col, const Write& write) {
  constexpr auto kTiles = dot_tiles<T, Cols>();
  at.b += col * at.b_row;
  if (rows > kDotRows<T> && at.K * static_cast<std::int64_t>(sizeof(T)) > kPartBytes) {
    for (std::int64_t row = 0; row < rows; row += kPartRows, at.a += kPartRows * at.a_row)
      dot_in_parts<Cols>(at, row, std::min<std::int64_t>(kPartRows, rows - row), col, write);
    return;
  }
  for (std::int64_t row = 0; row < rows; row += kDotRows<T>, at.a += kDotRows<T> * at.a_row) {
    const std::int64_t count = std::min<std::int64_t>(kDotRows<T>, rows - row);
    Dots<T> dots;
    kTiles[count - 1](dots, at);
    write_tile<Cols>(write, row, count, col, dots);
  }
}

/// Independent partial sums of one dot product: vector i of a row belongs to chain i % kChains. On
/// ARM two, since with registers of 128 bits two rows' sums of more chains would not fit in
/// registers, and sums are the same whatever the width.
constexpr int kChains = kArm64 ? 2 : 4;

/// Calls write(r, dot product) for Rows rows of a and one row of b, a PlainRow or a CodedRow.
template <int Rows, typename T, typename Row, typename Write>
void stream_tile(const RowPairs<T>& at, const Row& b, const Write& write) {
  constexpr int kFull = kLaneCount<T>, kEach = kFull / Lanes::kRegisters;
  using Vector = Floats::Unaligned;
  // Large blocks are read one after another, others a vector of each chain at a time.
  constexpr int kVectors = std::max(kChains, Row::kUnit / kFull);
  Lanes sums[Rows][kChains] = {};
  const auto add = [&](const auto& of, int chain, std::int64_t k, int offset)
      __attribute__((always_inline)) {
    Lanes::for_each([&](int i) __attribute__((always_inline)) {
      const Floats::Register right = of.get(offset + i * kEach);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        const T* const a = at.a + r * at.a_row + k + offset + i * kEach;
        const Floats::Register left = *reinterpret_cast<const Vector*>(a);
        add_to_register<T>(sums[r][chain].r[i], left, right);
      }
    });
  };
  std::int64_t k = 0;
  for (; k + kVectors * kFull <= at.K; k += kVectors * kFull) {
    const auto here = b.from(k);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      here.prefetch(v * kFull);
      add(here, v % kChains, k, v * kFull);
    }
  }
#pragma GCC unroll 4
  for (int chain = 0; chain < kChains; ++chain) {
    const std::int64_t at_chain = k + chain * kFull;
    if (at_chain >= at.K) break;
    if (at_chain + kFull <= at.K) {
      add(b.from(k), chain, k, chain * kFull);
      continue;
    }
    if constexpr (std::is_same_v<Row, PlainRow<T>>) {  // of a CodedRow all are whole
      const int count = static_cast<int>(at.K - at_chain);
      const Lanes right = load_lanes(b.values + at_chain, count);
      for (int r = 0; r < Rows; ++r) {
        const Lanes left = load_lanes(at.a + r * at.a_row + at_chain, count);
        Lanes::for_each([&](int i) __attribute__((always_inline)) {
          add_to_register<T>(sums[r][chain].r[i], left.r[i], right.r[i]);
        });
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    Lanes all;
    Lanes::for_each([&](int i) {
      if constexpr (kChains == 4)
        all.r[i] = (sums[r][0].r[i] + sums[r][1].r[i]) + (sums[r][2].r[i] + sums[r][3].r[i]);
      else
        all.r[i] = sums[r][0].r[i] + sums[r][1].r[i];
    });
    write(r, sum_of_lanes(all));
  }
}

}  // namespace detail

/// Like row_dots() below, for one or two rows of a: reads b row after row, at the full memory
/// bandwidth; reading four rows at a time gets half of it. Sums are in another order. row_of(c) is
/// row c of b, a PlainRow or a CodedRow.
template <typename T, typename RowOf, typename Write>
void stream_dots(const RowPairs<T>& of, std::int64_t rows, std::int64_t cols, const RowOf& row_of,
                 const Write& write) {
  for (std::int64_t col = 0; col < cols; ++col) {
    const auto tile = [&](int r, float sum) { write(r, col, sum); };
    if (rows == 1)
      detail::stream_tile<1>(of, row_of(col), tile);
    else
      detail::stream_tile<2>(of, row_of(col), tile);
  }
}

/// Calls write(r, c, dot product of row r of a and row c of b) for r below rows, c below cols.
/// Reads b once, as one stream. The order of each sum depends on K alone.
template <typename T, typename Write>
void row_dots(const RowPairs<T>& of, std::int64_t rows, std::int64_t cols, const Write& write) {
  std::int64_t col = 0;
  if constexpr (Lanes::kRegisters == 1) {
    const auto sixteen = [&]<int Rows>() {
      for (constexpr int kCols = 16 / Rows; col + kCols <= cols; col += kCols) {
        RowPairs<T> here = of;
        here.b += col * of.b_row;
        detail::dot_sixteen<Rows>(
            here, [&](std::int64_t r, std::int64_t c, float dot)
                      __attribute__((always_inline)) { write(r, col + c, dot); });
      }
    };
    if (rows == 1) sixteen.template operator()<1>();
    if (rows == 2) sixteen.template operator()<2>();
  }
  constexpr int kCols = detail::kDotCols<T>;
  for (; col + kCols <= cols; col += kCols) detail::dot_columns<kCols>(of, rows, col, write);
  for (; col < cols; ++col) detail::dot_columns<1>(of, rows, col, write);
}

/// Whether a product has few rows and a matrix b stored (N, K), like the products of a generation
/// step. Reading the matrix then takes longer than the arithmetic.
bool has_few_rows(const MatmulShape& shape);

/// The order of the sums of a product by row_dots.h.
enum class SumOrder : std::uint8_t {
  fastest,   ///< one or two rows are computed by stream_dots()
  invariant  ///< that of row_dots() for any number of rows
};

/// Computes a product whose matrix b is stored (N, K), of few or of many rows; the caller has
/// checked the arguments. Each thread reads its part of b once for some hundred rows, as one
/// stream.
///
/// The order of an element's sum depends only on K and, with SumOrder::fastest, on whether there
/// are more than two rows, so its bits do not depend on other rows or on the number of threads.
/// Bound by memory, N · K elements of b, up to about 8 rows; by arithmetic for more.
void rows_matmul(const Matmul& args, SumOrder order, int threads);

/// The same of a matrix b that is kept as codes: each thread makes the values of a few rows of b at
/// a time, in its cache. The bits are those of the values' product. Bound by memory, the bytes of
/// the records, for one or two rows of q8_0.
void rows_matmul(const QuantizedMatmul& args, SumOrder order, int threads);

/// The parts of a product of values that rows_strip() computes, each on one thread.
std::int64_t rows_strips(const Matmul& args);
void rows_strip(const Matmul& args, SumOrder order, std::int64_t strip);

}  // namespace axonn::cpu
