#include "axonn/compute/ops/cpu/matmul/integer_tiles.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/cpu/matmul/code_panel.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::cpu {

namespace {

constexpr int kTaskRows = 240;  ///< about the most rows that a thread multiplies with a panel
constexpr int kEach = Panel::kEach, kColumns = kSumColumns, kDepth = Panel::kDepth;
/// A tile has so many registers of columns and at most so many rows. With their sums in integers
/// they fill 16 registers, with those in floats 32.
constexpr int kTileRegisters = Panel::kTileRegisters;
constexpr bool kKeepsSums = Registers::kCount == 32;
constexpr int kMostTileRows = kKeepsSums ? 6 : 4, kLeastTileRows = kMostTileRows - 2;

using Words = std::int32_t __attribute__((vector_size(kRegisterBytes), may_alias));

/// A word in all places of a register.
[[gnu::always_inline]] inline Integers same_words(std::int32_t word) {
  return reinterpret_cast<Integers>(Words{} + word);
}

/// Words of 32 bits, each a start plus sums of products of words of so many codes.
template <int word>
class WordSums {
 public:
  [[gnu::always_inline]] void begin(std::int32_t start) {
    sums_ = kPairs ? Integers{} : same_words(start);
    pairs_ = Integers{};
  }
  [[gnu::always_inline]] void add(Integers codes, Integers others) {
    if constexpr (word == 2)
      sums_ = detail::plus_wide_products(sums_, codes, others);
    else if constexpr (kPairs)
      pairs_ = detail::plus_pair_products(pairs_, codes, others);
    else
      sums_ = detail::plus_products(sums_, codes, others);
  }
  /// Makes room for more pairs of products.
  [[gnu::always_inline]] void widen() {
    if constexpr (!kPairs) return;
    sums_ = detail::plus_pairs(sums_, pairs_);
    pairs_ = Integers{};
  }
  [[gnu::always_inline]] Integers words(std::int32_t start) const {
    if constexpr (!kPairs) return sums_;
    const Integers all = detail::plus_pairs(sums_, pairs_);
    return reinterpret_cast<Integers>(reinterpret_cast<Words>(all) + start);
  }

 private:
  static constexpr bool kPairs = word == 4 && kAddsPairs;
  Integers sums_, pairs_;
};

/// Rows of a in 8 bits, of which each `height` lie beside one another.
struct RoundedTile {
  std::int32_t* codes;   ///< (K / word, height), words of codes
  float* factors;        ///< (K / 32, height)
  float* sums;           ///< (K / 32, height) of values
  std::int32_t* starts;  ///< (K / part, height) what sums of products of a part begin with

  static std::int64_t count(std::int64_t K, int height, const TileForm& form) {
    return height * (K / form.word + 2 * (K / kFactorValues) + K / form.part);
  }
  static RoundedTile at(std::int32_t* memory, std::int64_t K, int height, const TileForm& form) {
    RoundedTile tile{};
    tile.codes = memory;
    tile.factors = reinterpret_cast<float*>(tile.codes + height * (K / form.word));
    tile.sums = tile.factors + height * (K / kFactorValues);
    tile.starts = reinterpret_cast<std::int32_t*>(tile.sums + height * (K / kFactorValues));
    return tile;
  }
  /// The same from value k on.
  RoundedTile from(std::int64_t k, int height, const TileForm& form) const {
    const std::int64_t factor = k / kFactorValues * height;
    return {codes + k / form.word * height, factors + factor, sums + factor,
            starts + k / form.part * height};
  }
};

/// Keeps 32 values of row r of a tile of so many rows. Codes of b are counted from `offset` below
/// 0.
template <TileForm form>
void keep_block(const RoundedBlock& block, int offset, const RoundedTile& to, int r, int height) {
  constexpr int kFours = form.part / 4;
  for (int i = 0; i < kFactorValues / 4; ++i) {
    const std::uint8_t* const four = block.codes + 4 * i;
    if constexpr (form.word == 4) {
      std::memcpy(to.codes + i * height + r, four, 4);
    } else {  // as wide_codes() has those of b
      const auto both = [&](int j) {
        const auto low = static_cast<std::uint16_t>(static_cast<std::int8_t>(four[j]));
        return static_cast<std::int8_t>(four[j + 2]) * (1 << 16) + low;
      };
      to.codes[2 * i * height + r] = both(0);
      to.codes[(2 * i + 1) * height + r] = both(1);
    }
  }
  for (int i = 0; i < kFactorValues / form.part; ++i) {
    std::int32_t sum = 0;
    for (int four = i * kFours; four < (i + 1) * kFours; ++four) sum += block.fours[four];
    to.starts[i * height + r] = -offset * sum;
  }
  to.factors[r] = block.factor;
  to.sums[r] = block.sum();
}

/// Adds to sums (height, kColumns) the products of a tile's rows with kTileRegisters registers of a
/// panel's rows.
template <TileForm form, int height>
void add_tile(const Panel& b, const RoundedTile& a, std::int64_t depth, float* sums) {
  constexpr int kAll = kTileRegisters, kWords = form.part / form.word;
  const Panel columns[kAll] = {b, b.from(1, form)};
  const auto each = [](auto f) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < height; ++r)
#pragma GCC unroll 2
      for (int i = 0; i < kAll; ++i) f(r, i);
  };
  const auto at = [&](int r, int i) __attribute__((always_inline))->auto& {
    return *reinterpret_cast<Floats::Unaligned*>(sums + r * kColumns + i * kEach);
  };
  Registers::Register kept[height][kAll];
  if constexpr (kKeepsSums)
    each([&](int r, int i) __attribute__((always_inline)) { kept[r][i] = at(r, i); });
  const std::int32_t* codes = a.codes;
  for (std::int64_t part = 0; part < depth / form.part; ++part) {
    const std::int64_t factor = part * form.part / kFactorValues * height;
    const auto start = [&](int r) __attribute__((always_inline)) {
      return form.least ? 0 : a.starts[part * height + r];
    };
    WordSums<form.word> words[height][kAll];
    each([&](int r, int i) __attribute__((always_inline)) { words[r][i].begin(start(r)); });
    for (int first = 0; first < kWords; first += form.run) {
#pragma GCC unroll 8
      for (int word = first; word < first + form.run; ++word, codes += height) {
        Integers of_b[kAll];
        for (int i = 0; i < kAll; ++i)
          of_b[i] = detail::integers_at(columns[i].codes + (part * kWords + word) * kRegisterBytes);
#pragma GCC unroll 8
        for (int r = 0; r < height; ++r) {
          const Integers of_a = same_words(codes[r]);
          for (int i = 0; i < kAll; ++i) words[r][i].add(of_b[i], of_a);
        }
      }
      if (first + form.run < kWords)
        each([&](int r, int i) __attribute__((always_inline)) { words[r][i].widen(); });
    }
    const auto number = [&](const float* numbers) __attribute__((always_inline)) {
      return *reinterpret_cast<const Floats::Unaligned*>(numbers + part * kEach);
    };
    each([&](int r, int i) __attribute__((always_inline)) {
      auto sum = kKeepsSums ? kept[r][i] : at(r, i);
      sum += detail::as_floats(words[r][i].words(start(r))) *
             (number(columns[i].scales) * a.factors[factor + r]);
      if (form.least) sum -= number(columns[i].least) * a.sums[factor + r];
      (kKeepsSums ? kept[r][i] : at(r, i)) = sum;
    });
  }
  if constexpr (kKeepsSums)
    each([&](int r, int i) __attribute__((always_inline)) { at(r, i) = kept[r][i]; });
}

/// The height of the tiles of so many rows of a: with as few rows of zeros as can be.
int height_of(std::int64_t rows) {
  const auto computed = [&](int height) { return (rows + height - 1) / height * height; };
  int best = kMostTileRows;
  for (int height = kMostTileRows - 1; height >= kLeastTileRows; --height)
    if (computed(height) < computed(best)) best = height;
  return best;
}

/// What all threads of a product know.
struct TiledProduct {
  const QuantizedMatmul& args;
  int height;                  ///< rows of a tile
  std::int64_t tiles, K;       ///< of a; K a multiple of 256, zeros behind args.a.cols
  std::int32_t* rounded;       ///< (tiles) RoundedTile
  std::int64_t tiles_at_once;  ///< of a task

  std::int64_t strips() const { return (args.out.cols + kColumns - 1) / kColumns; }
  std::int64_t tasks() const { return strips() * ((tiles + tiles_at_once - 1) / tiles_at_once); }
  RoundedTile tile(std::int64_t i, const TileForm& form) const {
    return RoundedTile::at(rounded + i * RoundedTile::count(K, height, form), K, height, form);
  }
};

/// Rounds all rows of a, on all threads of the team that calls it.
template <Quantization kind>
void round_all(const TiledProduct& all) {
  constexpr TileForm kForm = form_of(kind);
  const View& from = all.args.a;
  const std::int64_t blocks = all.K / kFactorValues, count = all.tiles * all.height * blocks;
  with_type(from.dtype, [&]<typename T>(T) {
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = i / blocks, k = i % blocks * kFactorValues;
      const RoundedTile tile = all.tile(row / all.height, kForm).from(k, all.height, kForm);
      const bool exists = row < from.rows && k < from.cols;
      const RoundedBlock block(exists ? address<const T>(from, row) + k : nullptr, exists);
      keep_block<kForm>(block, CodeStrips<kind>::kOffset, tile, static_cast<int>(row % all.height),
                        all.height);
    }
  });
}

/// Computes the tiles of a task in sums (rows, kColumns), which are zeros.
template <Quantization kind, int height>
void compute(const TiledProduct& all, const SumBlock& of_out, const Panel& panel, float* sums) {
  constexpr TileForm kForm = form_of(kind);
  const QuantizedMatmul& args = all.args;
  const std::int64_t K = args.a.cols, bytes = args.form.bytes(K);
  const std::uint8_t* const records =
      address<const std::uint8_t>(args.records) + of_out.col * bytes;
  for (std::int64_t k = 0; k < K; k += kDepth) {
    const std::int64_t depth = round_up(static_cast<int>(std::min<std::int64_t>(kDepth, K - k)),
                                        CodeStrips<kind>::kValues);
    fill<kind>({records, bytes, of_out.cols, K, k, depth}, panel);
    for (int i = 0; i * kEach < of_out.cols; i += kTileRegisters)  // these stay in the L1 cache
      for (std::int64_t row = 0; row < of_out.rows; row += height)
        add_tile<kForm, height>(panel.from(i, kForm),
                                all.tile((of_out.row + row) / height, kForm).from(k, height, kForm),
                                depth, sums + row * kColumns + i * kEach);
  }
}

/// Computes all tasks, on all threads of the team that calls it.
template <Quantization kind, int height>
void compute_all(const TiledProduct& all) {
  static thread_local HostScratch scratch;
  const std::int64_t rows = all.tiles_at_once * height, strips = all.strips(),
                     floats = Panel::floats(form_of(kind)), tasks = all.tasks();
  float* const memory = scratch.take<float>(floats + rows * kColumns);
  const Panel panel = Panel::at(memory, form_of(kind));
  float* const sums = memory + floats;
#pragma omp for schedule(static)
  for (std::int64_t task = 0; task < tasks; ++task) {
    const std::int64_t row = task / strips * rows, col = task % strips * kColumns;
    const SumBlock block{row, std::min(rows, all.tiles * height - row), col,
                         std::min<std::int64_t>(kColumns, all.args.out.cols - col)};
    std::fill_n(sums, block.rows * kColumns, 0.0f);
    compute<kind, height>(all, block, panel, sums);
    write_sums(all.args, block, sums);
  }
}

}  // namespace

void write_sums(const QuantizedMatmul& args, const SumBlock& block, const float* sums) {
  with_types(args.out.dtype, args.a.dtype, [&]<typename Out, typename T>(Out, T) {
    const T* const bias = args.bias.data ? address<const T>(args.bias) + block.col : nullptr;
    for (std::int64_t r = 0; r < block.rows && block.row + r < args.out.rows; ++r) {
      Out* const out = address<Out>(args.out, block.row + r) + block.col;
      for (std::int64_t c = 0; c < block.cols; ++c) {
        const float sum = sums[r * kSumColumns + c];
        put(out[c], bias ? sum + get(bias[c]) : sum);
      }
    }
  });
}

bool has_integer_tiles(Quantization kind) {
  bool has = false;
  with_quantization(kind, [&](auto is) { has = has_tiles(is()); });
  return has;
}

void integer_tile_matmul(const QuantizedMatmul& args, int threads) {
  static thread_local HostScratch scratch;
  const int height = height_of(args.out.rows);
  TiledProduct all{.args = args,
                   .height = height,
                   .tiles = (args.out.rows + height - 1) / height,
                   .K = (args.a.cols + kPadded - 1) / kPadded * kPadded,
                   .rounded = nullptr,
                   .tiles_at_once = 0};
  const int used = args.out.cols * args.a.cols < kParallelElements ? 1 : threads;
  all.tiles_at_once =
      std::clamp<std::int64_t>(all.tiles * all.strips() / used, 1, kTaskRows / height);
  with_quantization(args.form.kind, [&](auto kind) {
    if constexpr (has_tiles(kind())) {
      all.rounded = scratch.take<std::int32_t>(all.tiles *
                                               RoundedTile::count(all.K, height, form_of(kind())));
      const auto of_height = [&]<int... lower>(std::integer_sequence<int, lower...>) {
        ((height == kLeastTileRows + lower ? compute_all<kind(), kLeastTileRows + lower>(all)
                                           : void()),
         ...);
      };
#pragma omp parallel num_threads(used)
      {
        round_all<kind()>(all);
        of_height(std::make_integer_sequence<int, kMostTileRows - kLeastTileRows + 1>{});
      }
    }
  });
}

}  // namespace axonn::cpu
