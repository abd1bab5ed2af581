#include "axonn/compute/ops/cpu/matmul/tiled_matmul.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "axonn/compute/ops/cpu/matmul/block_matmul.h"
#include "axonn/compute/ops/cpu/matmul/matrix_tile.h"
#include "axonn/compute/ops/cpu/team.h"
#include "axonn/compute/tensor/address.h"

// The loops, from the outermost: blocks of kBlockTiles tiles of rows of the result; steps of
// kStepDepth along K; strips of kStripCols columns; tiles of kRowsOfTile rows. A step's part of a
// strip of b stays in the L1 cache while all tiles of the block use it, and the step's part of the
// block of a in the L2 cache while all strips use it.

namespace axonn::cpu {

namespace {

using detail::kTileRows;
constexpr int kStripCols = detail::kTileRegisters * Floats::kEach;
constexpr int kBlockTiles = 32, kStepDepth = 256;

/// Packed operands are words of four bytes, each with so many elements along K: floats, or pairs of
/// bf16 if the processor multiplies those.
template <typename T>
constexpr int kPack = (kTilesByDefault && kDotProducts && std::is_same_v<T, bf16>) ? 2 : 1;

/// Whether matrix_tile.h multiplies them: each two words along K lie side by side.
template <typename T>
constexpr bool kInBlocks = kPack<T> == 2 && !std::is_void_v<BlockProduct>;

template <typename T>
constexpr int kRowsOfTile = kInBlocks<T> ? detail::kMatrixTileRows : kTileRows;
template <typename T>
constexpr int kBlockRows = kBlockTiles* kRowsOfTile<T>;
constexpr int kMostBlockRows = std::max(kBlockRows<float>, kBlockRows<bf16>);

/// The words along K of a panel's operands; the last may be filled up with zero.
std::int64_t words_of(const Matmul& panel) {
  const std::int64_t K = panel.a_transposed ? panel.a.rows : panel.a.cols;
  if (panel.a.dtype != DType::bf16) return K;
  const std::int64_t words = (K + kPack<bf16> - 1) / kPack<bf16>;
  return kInBlocks<bf16> ? (words + 1) / 2 * 2 : words;
}

/// Rows or columns of a matrix that are packed side by side, or words along K.
struct Range {
  std::int64_t begin, count;
};

/// to[i] = from[i] for i below count; then zeros.
template <int width, typename T>
[[gnu::always_inline]] inline void copy(float* to, const T* from, int count) {
  if (count == width) {
    for (int i = 0; i < width; ++i) to[i] = get(from[i]);
    return;
  }
  for (int i = 0; i < width; ++i) to[i] = i < count ? get(from[i]) : 0.0f;
}

/// to[i] = the pair (first[i], second[i]) for i below count; then zeros. Null stands for zeros.
template <int width>
[[gnu::always_inline]] inline void copy_pairs(float* to, const bf16* first, const bf16* second,
                                              int count) {
  constexpr bf16 kZeros[width] = {};
  if (!first) first = kZeros;
  if (!second) second = kZeros;
  const auto pair = [&](int i) {
    return std::bit_cast<float>(std::uint32_t{second[i].bits} << 16 | first[i].bits);
  };
  if (count == width) {
    for (int i = 0; i < width; ++i) to[i] = pair(i);
    return;
  }
  for (int i = 0; i < width; ++i) to[i] = i < count ? pair(i) : 0.0f;
}

/// to[p] = word k.begin + p, a pair, of a row of K elements.
inline void copy_words(float* to, const bf16* row, Range k, std::int64_t K) {
  const std::int64_t begin = 2 * k.begin, count = std::min(2 * k.count, K - begin);
  if (count % 2) to[k.count - 1] = 0;
  std::memcpy(to, row + begin, count * sizeof(bf16));
}

/// to[i · stride], and the word after it, = words k.begin + 2i and after it of a row of K elements.
inline void copy_twos(float* to, std::int64_t stride, const bf16* row, Range k, std::int64_t K) {
  const std::int64_t count = std::min(2 * k.count, K - 2 * k.begin), whole = count / 4;
  row += 2 * k.begin;
  for (std::int64_t i = 0; i < whole; ++i) std::memcpy(to + i * stride, row + 4 * i, 8);
  if (count % 4 == 0) return;
  bf16 last[4] = {};
  std::copy_n(row + 4 * whole, count % 4, last);
  std::memcpy(to + whole * stride, last, sizeof last);
}

/// to (width) = word p of `count` columns from `col` on of a matrix (K, n); then zeros.
template <int width, typename T>
[[gnu::always_inline]] inline void copy_word(float* to, const View& from, std::int64_t p,
                                             std::int64_t col, int count) {
  const auto row = [&](std::int64_t r) {
    return r < from.rows ? address<const T>(from, r) + col : nullptr;
  };
  if constexpr (kPack<T> == 1)
    copy<width>(to, address<const T>(from, p) + col, count);
  else
    copy_pairs<width>(to, row(2 * p), row(2 * p + 1), count);
}

/// to (strips, words, width): strips of `width` columns of a matrix (K, n).
template <int width, typename T>
void pack_columns(float* to, const View& from, Range k, Range cols) {
  constexpr std::int64_t kRows = 32;  // at a time: few enough pages for the TLB
  for (std::int64_t first = 0; first < k.count; first += kRows) {
    const std::int64_t end = std::min(k.count, first + kRows);
    for (std::int64_t col = 0; col < cols.count; col += width) {
      const int filled = static_cast<int>(std::min<std::int64_t>(width, cols.count - col));
      const auto copy = [&](float* words, std::int64_t p) {
        copy_word<width, T>(words, from, k.begin + p, cols.begin + col, filled);
      };
      for (std::int64_t p = first; p < end; ++p) {
        float* const words = to + col * k.count + p * width;
        if constexpr (kInBlocks<T>) {
          float even[width], odd[width];
          copy(even, p);
          copy(odd, ++p);
          for (int i = 0; i < width; ++i) {
            words[2 * i] = even[i];
            words[2 * i + 1] = odd[i];
          }
        } else {
          copy(words, p);
        }
      }
    }
  }
}

/// to (strips, words, width): strips of `width` rows of a matrix (n, K), transposed. Writes up to
/// kEach rows of `width` beyond the last.
template <int width, typename T>
void pack_rows(float* to, const View& from, Range k, Range rows) {
  constexpr int kDepth = 16, kEach = Floats::kEach;
  for (std::int64_t row = 0; row < rows.count; row += width) {
    const int filled = static_cast<int>(std::min<std::int64_t>(width, rows.count - row));
    for (std::int64_t first = 0; first < k.count; first += kDepth, to += kDepth * width) {
      const int depth = static_cast<int>(std::min<std::int64_t>(kDepth, k.count - first));
      alignas(64) float block[width][kDepth] = {};
      for (int r = 0; r < filled; ++r) {
        const T* const from_row = address<const T>(from, rows.begin + row + r);
        if constexpr (kPack<T> == 1)
          copy<kDepth>(block[r], from_row + k.begin + first, depth);
        else
          copy_words(block[r], from_row, {k.begin + first, depth}, from.cols);
      }
      // Squares of registers; those beyond `depth` are overwritten by what comes next.
      for (int p = 0; p < depth; p += kEach)
        for (int r = 0; r < width; r += kEach) {
          Floats::Register square[kEach];
          for (int i = 0; i < kEach; ++i)
            square[i] = *reinterpret_cast<const Floats::Register*>(&block[r + i][p]);
          transpose(square);
          for (int i = 0; i < kEach; ++i)
            *reinterpret_cast<Floats::Register*>(to + (p + i) * width + r) = square[i];
        }
      if (depth < kDepth) to -= (kDepth - depth) * width;
    }
  }
}

/// pack_rows() of pairs in blocks.
template <int width>
void pack_rows_in_blocks(float* to, const View& from, Range k, Range rows) {
  constexpr std::int64_t kDepth = 64;
  for (std::int64_t row = 0; row < rows.count; row += width, to += k.count * width)
    for (std::int64_t first = 0; first < k.count; first += kDepth) {
      const Range part{k.begin + first, std::min(kDepth, k.count - first)};
      for (int r = 0; r < width; ++r) {
        float* const place = to + first * width + 2 * r;
        if (row + r < rows.count)
          copy_twos(place, 2 * width, address<const bf16>(from, rows.begin + row + r), part,
                    from.cols);
        else
          for (std::int64_t p = 0; p < part.count; p += 2) std::fill_n(place + p * width, 2, 0.0f);
      }
    }
}

/// The left operand of a block's tiles.
struct PackedRows {
  const float* data;
  std::int64_t strip;  ///< from the first of a tile's rows to the next tile's
  int row, col;

  Left tile(int i) const { return {data + i * strip, row, col}; }
};

template <typename T>
PackedRows pack_a(float* to, const View& a, bool transposed, Range rows, Range k) {
  constexpr int kRows = kRowsOfTile<T>;
  constexpr std::int64_t kStrip = std::int64_t{kRows} * kStepDepth;
  if (transposed) {
    pack_columns<kRows, T>(to, a, k, rows);
    if (kInBlocks<T>) return {to, kRows * k.count, 4, 2 * kRows};
    return {to, kRows * k.count, 1, kRows};
  }
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t soon = rows.begin + std::min(r + 4, rows.count - 1);
    Team{}.prefetch(address<const T>(a, soon) + kPack<T> * k.begin,
                    static_cast<int>(kPack<T> * k.count));
    const T* const from = address<const T>(a, rows.begin + r);
    if constexpr (kInBlocks<T>)
      copy_twos(to + r / 2 * 2 * kStepDepth + r % 2 * 2, 4, from, k, a.cols);
    else if constexpr (kPack<T> == 1)
      for (std::int64_t p = 0; p < k.count; ++p) to[r * kStepDepth + p] = get(from[k.begin + p]);
    else
      copy_words(to + r * kStepDepth, from, k, a.cols);
  }
  if (kInBlocks<T>) return {to, kStrip, 2 * kStepDepth, 4};
  return {to, kStrip, kStepDepth, 1};
}

/// Sums (rows, columns) in f32 that grow step by step.
struct Sums {
  float* data;
  std::int64_t stride;
  int rows, cols;
  bool padded;  ///< columns up to the next multiple of kStripCols may be written
};

/// The functions that multiply tiles of 1 to kRowsOfTile<T> rows.
template <typename T>
constexpr auto tiles_of() {
  using Product = std::conditional_t<kPack<T> == 1, FloatProduct, PairProduct>;
  if constexpr (kInBlocks<T>)
    return detail::matrix_tiles<BlockProduct>();
  else
    return detail::tiles<Product, detail::kTileRegisters>();
}

/// A strip of sums (+)= the block of a · a strip of b (k, kStripCols). Prefetches the next strip of
/// b, piece by piece, and the sums of each next tile: the hardware does not foresee either.
template <typename T>
void add_strip(const Sums& sums, int col, const PackedRows& a, const float* b, const float* next_b,
               int k, bool accumulate) {
  constexpr auto kTiles = tiles_of<T>();
  constexpr int kRows = kRowsOfTile<T>, kPiece = kStepDepth * kStripCols / kBlockTiles;
  const int cols = std::min(kStripCols, sums.cols - col);
  for (int row = 0; row < sums.rows; row += kRows) {
    const int rows = std::min(kRows, sums.rows - row), tile = row / kRows;
    float* const out = sums.data + row * sums.stride + col;
    Team{}.prefetch(next_b + tile * kPiece, kPiece);
    for (int r = kRows; r < 2 * kRows; ++r) __builtin_prefetch(out + r * sums.stride, 1);
    if (cols == kStripCols || sums.padded) {
      kTiles[rows - 1](out, sums.stride, a.tile(tile), b, kStripCols, k, accumulate);
      continue;
    }
    alignas(64) float edge[kRows][kStripCols] = {};
    if (accumulate)
      for (int r = 0; r < rows; ++r) std::copy_n(out + r * sums.stride, cols, edge[r]);
    kTiles[rows - 1](edge[0], kStripCols, a.tile(tile), b, kStripCols, k, accumulate);
    for (int r = 0; r < rows; ++r) std::copy_n(edge[r], cols, out + r * sums.stride);
  }
}

/// Sets sums to the bias, plus the old rows of out if the product accumulates.
template <typename T, typename Out>
void begin_sums(const Sums& sums, const Matmul& panel, std::int64_t row) {
  const Team team;
  for (int r = 0; r < sums.rows; ++r) {
    float* const sum = sums.data + r * sums.stride;
    const Out* const old = address<const Out>(panel.out, row + r);
    if (panel.bias.data && panel.accumulate)
      team.map(
          sum, sums.cols, [](auto x, auto y) { return x + y; }, address<const T>(panel.bias), old);
    else if (panel.bias.data)
      team.map(
          sum, sums.cols, [](auto x) { return x; }, address<const T>(panel.bias));
    else
      team.map(
          sum, sums.cols, [](auto x) { return x; }, old);
  }
}

/// One thread's memory: a step's part of a block of a, a part of b, and sums of the panel.
struct Memory {
  float *a, *b, *sums;
};

/// Adds the products of the range `part` of K's words, of which `memory.b` holds b's packed rows.
template <typename T, typename Out>
void multiply(const Matmul& panel, Range part, const Memory& memory) {
  const std::int64_t M = panel.out.rows, K = words_of(panel), end = part.begin + part.count;
  const int N = static_cast<int>(panel.out.cols), width = round_up(N, kStripCols);
  const bool direct = std::is_same_v<Out, float> && !panel.bias.data;
  const bool begun = panel.bias.data || panel.accumulate;
  for (std::int64_t row = 0; row < M; row += kBlockRows<T>) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kBlockRows<T>, M - row));
    Sums sums{memory.sums + row * width, width, rows, N, true};
    if (direct)
      sums = {address<float>(panel.out, row), panel.out.stride, rows, N, false};
    else if (begun && part.begin == 0)
      begin_sums<T, Out>(sums, panel, row);
    for (std::int64_t k = part.begin; k < end; k += kStepDepth) {
      const int depth = static_cast<int>(std::min<std::int64_t>(kStepDepth, end - k));
      const PackedRows a =
          pack_a<T>(memory.a, panel.a, panel.a_transposed, {row, rows}, {k, depth});
      const auto strip = [&](int col) {
        return memory.b + col * part.count + (k - part.begin) * kStripCols;
      };
      for (int col = 0; col < N; col += kStripCols)
        add_strip<T>(sums, col, a, strip(col), strip(col + kStripCols < N ? col + kStripCols : 0),
                     depth, begun || k > 0);
    }
    if (direct || end < K) continue;
    for (int r = 0; r < rows; ++r)
      Team{}.map(
          address<Out>(panel.out, row + r), N, [](auto x) { return x; },
          sums.data + r * sums.stride);
  }
}

/// to = the packed rows `part` of b.
template <typename T>
void pack_b(float* to, const Matmul& panel, Range part) {
  const Range cols{0, panel.out.cols};
  if constexpr (kInBlocks<T>)
    if (panel.b_transposed) return pack_rows_in_blocks<kStripCols>(to, panel.b, part, cols);
  if (panel.b_transposed)
    pack_rows<kStripCols, T>(to, panel.b, part, cols);
  else
    pack_columns<kStripCols, T>(to, panel.b, part, cols);
}

}  // namespace

ProductPlan tile_panels(const MatmulShape& shape, int threads) {
  // Copying an element takes as long as so many multiply-adds.
  constexpr std::int64_t kCopy = 40, kLeastCols = 96;
  ProductPlan best{PanelCut::into(shape.M, 1), PanelCut::into(shape.N, 1)};
  best.tiled = true;
  if (shape.flops() < kSmallFlops) return best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const std::int64_t most = std::int64_t{4} * threads;
  for (std::int64_t c = 1; c == 1 || c <= std::min(most, shape.N / kLeastCols); ++c)
    for (std::int64_t r = 1; r == 1 || (r <= most / c && r <= shape.M / kBlockRows<float>); ++r) {
      const PanelCut rows = PanelCut::into(shape.M, r), cols = PanelCut::into(shape.N, c);
      const std::int64_t rounds = (rows.parts * cols.parts + threads - 1) / threads;
      const std::int64_t m = rows.size, n = cols.size, cost = rounds * (m * n + kCopy * (m + n));
      if (cost >= least) continue;
      least = cost;
      best.rows = rows;
      best.cols = cols;
    }
  return best;
}

void tiled_matmul(const Matmul& panel, TileMemory& memory) {
  constexpr std::int64_t kMostPacked = std::int64_t{1} << 22;  // words of b, 16 MiB
  const std::int64_t K = words_of(panel);
  const int width = round_up(static_cast<int>(panel.out.cols), kStripCols);
  const std::int64_t steps = std::max<std::int64_t>(1, kMostPacked / width / kStepDepth);
  const std::int64_t most = std::min(K, steps * kStepDepth);
  const Memory own{memory.a_.take<float>(kMostBlockRows * kStepDepth),
                   memory.b_.take<float>(width * most + Floats::kEach * kStripCols),
                   memory.sums_.take<float>(panel.out.rows * width)};
  with_type(panel.a.dtype, [&]<typename T>(T) {
    for (std::int64_t k = 0; k < K; k += most) {
      const Range part{k, std::min(most, K - k)};
      const void* const whole = part.count == K ? panel.b.data : nullptr;
      if (!whole || memory.packed_b_ != whole) pack_b<T>(own.b, panel, part);
      memory.packed_b_ = whole;
      if (panel.out.dtype == panel.a.dtype)
        multiply<T, T>(panel, part, own);
      else
        multiply<T, float>(panel, part, own);
    }
  });
}

}  // namespace axonn::cpu
