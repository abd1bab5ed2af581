#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "axonn/compute/ops/cpu/matmul/code_strips.h"
#include "axonn/compute/ops/cpu/matmul/integer_tiles.h"

// Codes of many rows of a matrix, unpacked to bytes for products of integers.

namespace axonn::cpu {

/// What a kind of codes makes of products of many rows.
struct TileForm {
  int part;    ///< values with one scale
  bool least;  ///< whether parts have least values; else codes are counted from a number
  int word;    ///< codes in a word: four, or two in 16 bits
  int run;     ///< so many words of products are summed before they are widened
};

constexpr unsigned most_code(Quantization kind) {
  if (kind == Quantization::q8_0) return 255;
  if (kind == Quantization::q6_k) return 63;
  if (kind == Quantization::q5_0 || kind == Quantization::q5_k) return 31;
  return kind == Quantization::q3_k ? 7 : 15;
}

/// Pairs of products of bytes that 16 bits hold the sum of; any number if there are no pairs.
constexpr int most_additions(Quantization kind) {
  const unsigned most = 32767 / (2 * 127 * most_code(kind));
  return kAddsPairs ? static_cast<int>(std::bit_floor(most)) : 1 << 16;
}

constexpr TileForm form_of(Quantization kind) {
  const int part = has_large_blocks(kind) ? LargeBlock::of(kind).part : 32,
            word = most_additions(kind) > 0 ? 4 : 2, words = part / word;
  return {part, has_least_values(kind), word,
          word == 4 ? std::min(words, most_additions(kind)) : words};
}

constexpr bool has_tiles(Quantization kind) {
  return kHasIntegers && !kArm64 && has_integer_products(kind);
}

/// Codes of rows of b and what they are multiplied by. A register has those of as many rows as it
/// has words.
struct Panel {
  static constexpr int kColumns = kSumColumns;  ///< rows of b
  static constexpr int kDepth = 1024;           ///< at most so many values of each
  static constexpr int kEach = Lanes::kEach, kRegisters = kColumns / kEach;
  /// Registers that are multiplied together, and so filled together.
  static constexpr int kTileRegisters = 2;
  std::uint8_t* codes;  ///< (registers, kDepth / word) registers of words
  float* scales;        ///< (registers, kDepth / part) registers
  float* least;         ///< the same

  static std::int64_t floats(const TileForm& form) {
    return kColumns * (kDepth / form.word + 2 * (kDepth / form.part));
  }
  static Panel at(float* memory, const TileForm& form) {
    float* const scales = memory + kColumns * (kDepth / form.word);
    return {reinterpret_cast<std::uint8_t*>(memory), scales,
            scales + kColumns * (kDepth / form.part)};
  }
  /// The same from register i on.
  Panel from(int i, const TileForm& form) const {
    const std::int64_t floats = std::int64_t{i} * kEach * (kDepth / form.part);
    return {codes + std::int64_t{i} * kRegisterBytes * (kDepth / form.word), scales + floats,
            least + floats};
  }
};

/// Transposes rows of numbers, each so many behind the one before, and calls put(i, register i).
[[gnu::always_inline]] inline void transpose_numbers(const float* numbers, int apart, auto put) {
  Registers::Register rows[Panel::kEach];
#pragma GCC unroll 16
  for (int r = 0; r < Panel::kEach; ++r)
    rows[r] = *reinterpret_cast<const Floats::Unaligned*>(numbers + r * apart);
  transpose(rows);
#pragma GCC unroll 16
  for (int i = 0; i < Panel::kEach; ++i) put(i, rows[i]);
}

/// Unpacks the same records of as many rows of b as a register has words.
template <Quantization kind>
class Unpacking {
 public:
  using Strips = CodeStrips<kind>;
  static constexpr TileForm kForm = form_of(kind);
  static constexpr int kParts = Strips::kValues / kForm.part;

  /// Takes the records of row r.
  [[gnu::always_inline]] void take(int r, const std::uint8_t* records, const Panel& to) {
    const Strips strips{records};
#pragma GCC unroll 4
    for (int strip = 0; strip < Strips::kValues / kStrip; ++strip)
      Lanes::for_each([&](int i) __attribute__((always_inline)) {
        Integers codes = strips.codes(strip, i);
        if constexpr (kind == Quantization::q8_0 && kSignedOffset != 0) codes ^= 0x8080808080808080;
        *reinterpret_cast<Integers*>(codes_[strip * Lanes::kRegisters + i][r]) = codes;
      });
    if constexpr (has_large_blocks(kind)) {
      std::memcpy(numbers_[r], strips.record.scales(), sizeof numbers_[r]);
      if constexpr (has_least_values(kind))
        std::memcpy(numbers_[r] + kParts, strips.record.least() + kParts, kParts * sizeof(float));
    } else {
      float scales[kParts];
      strips.scales(scales);
      for (int part = 0; part < kParts; ++part) to.scales[part * Panel::kEach + r] = scales[part];
    }
  }
  /// Writes what all rows have given.
  [[gnu::always_inline]] void write(const Panel& to) const {
    for (int i = 0; i < kCodes; ++i)
      transpose_numbers(codes_[i][0], Panel::kEach, [&](int group, const auto& fours) {
        write_codes(reinterpret_cast<Integers>(fours), i * Panel::kEach + group, to);
      });
    if constexpr (has_large_blocks(kind))
      for (int first = 0; first < kNumbers; first += Panel::kEach)
        transpose_numbers(numbers_[0] + first, kNumbers, [&](int i, const auto& numbers) {
          const int part = first + i;
          float* const at = part < kParts ? to.scales + part * Panel::kEach
                                          : to.least + (part - kParts) * Panel::kEach;
          *reinterpret_cast<Floats::Unaligned*>(at) = numbers;
        });
  }

 private:
  /// Register i of words of four codes.
  [[gnu::always_inline]] static void write_codes(Integers fours, int i, const Panel& to) {
    auto* const words = reinterpret_cast<Integers*>(to.codes);
    if constexpr (kForm.word == 4) {
      words[i] = fours;
    } else {
      words[2 * i] = detail::wide_codes(fours, 0);
      words[2 * i + 1] = detail::wide_codes(fours, 1);
    }
  }

  static constexpr int kCodes = Strips::kValues / kStrip * Lanes::kRegisters, kNumbers = 16;
  alignas(kRegisterBytes) float codes_[kCodes][Panel::kEach][Panel::kEach];
  float numbers_[Panel::kEach][kNumbers];
};

/// Part of a matrix of codes: so many rows' values from k on.
template <Quantization kind>
struct CodedBlock {
  const std::uint8_t* records;  ///< of the first row's value 0
  std::int64_t bytes;           ///< of a row
  std::int64_t rows, K;         ///< of the rows from there on, and their values
  std::int64_t k, depth;

  /// Of the row that is so many behind the first, or behind the last.
  const std::uint8_t* row(std::int64_t i) const { return records + i * bytes; }
  /// What lies before value k of a row.
  static std::int64_t bytes_to(std::int64_t k) {
    return k / CodeStrips<kind>::kValues * CodeStrips<kind>::kBytes;
  }
};

/// Unpacks the records of a register's rows, and prefetches as many from `next` on.
template <Quantization kind>
void fill_register(const CodedBlock<kind>& b, const std::uint8_t* next, Panel to) {
  using Strips = CodeStrips<kind>;
  Unpacking<kind> unpacking;
  for (std::int64_t k = b.k; k < b.k + b.depth; k += Strips::kValues) {
    const std::int64_t at = b.bytes_to(k);
    for (int r = 0; r < Panel::kEach; ++r) {
      const std::uint8_t* records = b.row(std::min<std::int64_t>(r, b.rows - 1)) + at;
      const std::uint8_t* const ahead = next + r * b.bytes + b.bytes_to(k - b.k);
#pragma GCC unroll 4
      for (int byte = 0; byte < Strips::kBytes; byte += 64) __builtin_prefetch(ahead + byte);
      std::uint8_t rest[Strips::kBytes];
      if (k + Strips::kValues > b.K) {  // zeros follow the rest, as in a
        std::memset(rest, 0, sizeof rest);
        std::memcpy(rest, records, b.bytes - at);
        records = rest;
      }
      unpacking.take(r, records, to);
    }
    unpacking.write(to);
    to.codes += Strips::kValues / form_of(kind).word * kRegisterBytes;
    to.scales += Unpacking<kind>::kParts * Panel::kEach;
    to.least += Unpacking<kind>::kParts * Panel::kEach;
  }
}

/// Unpacks the records of up to Panel::kColumns rows, the last row more than once, and prefetches
/// what comes next: the rest of the rows, or those behind them.
template <Quantization kind>
void fill(const CodedBlock<kind>& b, const Panel& to) {
  constexpr int kTogether = Panel::kTileRegisters * Panel::kEach;
  const std::int64_t rows = (b.rows + kTogether - 1) / kTogether * kTogether;
  const bool more = b.k + b.depth < b.K;
  for (std::int64_t row = 0; row < rows; row += Panel::kEach) {
    const std::int64_t first = std::min(row, b.rows - 1);
    const std::uint8_t* next = b.row(row + Panel::kEach) + b.bytes_to(b.k);
    if (row + Panel::kEach >= rows)
      next = more ? b.row(0) + b.bytes_to(b.k + Panel::kDepth) : b.row(b.rows);
    fill_register<kind>({b.row(first), b.bytes, b.rows - first, b.K, b.k, b.depth}, next,
                        to.from(static_cast<int>(row / Panel::kEach), form_of(kind)));
  }
}

}  // namespace axonn::cpu
