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
  int run;     ///< so many words of products are summed before they are widened
};

constexpr unsigned most_code(Quantization kind) {
  if (kind == Quantization::q8_0) return 255;
  if (kind == Quantization::q6_k) return 63;
  if (kind == Quantization::q5_0 || kind == Quantization::q5_k) return 31;
  return kind == Quantization::q3_k ? 7 : 15;
}

/// Pairs of products of bytes that 16 bits hold the sum of; any number if there are none.
constexpr int most_additions(Quantization kind) {
  const unsigned most = 32767 / (2 * 127 * most_code(kind));
  return kAddsPairs ? static_cast<int>(std::bit_floor(most)) : 1 << 16;
}

constexpr TileForm form_of(Quantization kind) {
  const int part = has_large_blocks(kind) ? LargeBlock::of(kind).part : 32;
  return {part, has_least_values(kind), std::min(part / 4, most_additions(kind))};
}

constexpr bool has_tiles(Quantization kind) {
  return kHasIntegers && !kArm64 && has_integer_products(kind) && most_additions(kind) > 0;
}

/// Codes of rows of b and what they are multiplied by. A register has those of as many rows as it
/// has words.
struct Panel {
  static constexpr int kColumns = kSumColumns;  ///< rows of b
  static constexpr int kDepth = 1024;           ///< at most so many values of each
  static constexpr int kEach = Lanes::kEach, kRegisters = kColumns / kEach;
  /// Registers that are multiplied together, and so filled together.
  static constexpr int kTileRegisters = Registers::kCount == 32 ? 2 : 1;
  std::uint8_t* codes;  ///< (registers, kDepth / 4) registers of four codes
  float* scales;        ///< (registers, kDepth / part) registers
  float* least;         ///< the same

  static std::int64_t floats(int part) { return kColumns * (kDepth / 4 + 2 * (kDepth / part)); }
  static Panel at(float* memory, int part) {
    return {.codes = reinterpret_cast<std::uint8_t*>(memory),
            .scales = memory + kColumns * (kDepth / 4),
            .least = memory + kColumns * (kDepth / 4 + kDepth / part)};
  }
  /// The same from register i on.
  Panel from(int i, int part) const {
    const std::int64_t floats = std::int64_t{i} * kEach * (kDepth / part);
    return {codes + std::int64_t{i} * kRegisterBytes * (kDepth / 4), scales + floats,
            least + floats};
  }
};

/// Transposes rows of numbers, each so many behind the one before: to(i) is where register i goes.
[[gnu::always_inline]] inline void transpose_numbers(const float* numbers, int apart, auto to) {
  Registers::Register rows[Panel::kEach];
#pragma GCC unroll 16
  for (int r = 0; r < Panel::kEach; ++r)
    rows[r] = *reinterpret_cast<const Floats::Unaligned*>(numbers + r * apart);
  transpose(rows);
#pragma GCC unroll 16
  for (int i = 0; i < Panel::kEach; ++i) *reinterpret_cast<Floats::Unaligned*>(to(i)) = rows[i];
}

/// Unpacks the same records of as many rows of b as a register has words.
template <Quantization kind>
class Unpacking {
 public:
  using Strips = CodeStrips<kind>;
  static constexpr int kParts = Strips::kValues / form_of(kind).part;

  /// Takes the records of row r.
  [[gnu::always_inline]] void take(int r, const std::uint8_t* records, const Panel& to) {
    const Strips strips{records};
#pragma GCC unroll 4
    for (int strip = 0; strip < Strips::kValues / kStrip; ++strip)
      Lanes::for_each([&](int i) __attribute__((always_inline)) {
        Integers codes = strips.codes(strip, i);
        if constexpr (kind == Quantization::q8_0) codes ^= 0x8080808080808080;
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
    auto* const codes = reinterpret_cast<float*>(to.codes);
    for (int i = 0; i < kCodes; ++i)
      transpose_numbers(codes_[i][0], Panel::kEach, [&](int group) {
        return codes + (i * Panel::kEach + group) * Panel::kEach;
      });
    if constexpr (has_large_blocks(kind))
      for (int first = 0; first < kNumbers; first += Panel::kEach)
        transpose_numbers(numbers_[0] + first, kNumbers, [&](int i) {
          const int part = first + i;
          return (part < kParts ? to.scales + part * Panel::kEach
                                : to.least + (part - kParts) * Panel::kEach);
        });
  }

 private:
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
    to.codes += Strips::kValues / 4 * kRegisterBytes;
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
                        to.from(static_cast<int>(row / Panel::kEach), form_of(kind).part));
  }
}

}  // namespace axonn::cpu
