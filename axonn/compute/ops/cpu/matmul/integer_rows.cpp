#include "axonn/compute/ops/cpu/matmul/integer_rows.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "axonn/compute/ops/cpu/dequantize.h"
#include "axonn/compute/ops/cpu/integers.h"
#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/cpu/matmul/row_dots.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/quantization.h"

namespace axonn::cpu {

namespace {

/// With more rows products of values are as fast, or faster. With AVX2 16 rows take 0.9 times as
/// long, 4 half as long.
constexpr std::int64_t kMostRows = kArm64 || Lanes::kRegisters == 1 ? 4 : 16, kTileRows = 4;

/// Whether values are a scale times (code - a number), less at most a least value.
constexpr bool is_even(Quantization kind) { return has_integer_products(kind); }

}  // namespace

bool has_integer_matmul(const QuantizedMatmul& args) {
  return kHasIntegers && is_even(args.form.kind) && args.out.rows <= kMostRows &&
         args.form.unit == QuantizedForm::most_unit(args.form.kind);
}

namespace {

constexpr int kStrip = 64;         ///< codes of a strip
constexpr int kFactorValues = 32;  ///< values of a with one factor
constexpr int kPadded = 256;       ///< a row of a is followed by zeros up to a multiple

/// A row of a, of K values and zeros behind them, in 8 bits.
struct RoundedRow {
  std::int8_t* codes;    ///< (K)
  std::int32_t* starts;  ///< (K / 4) what sums of four products begin with
  float* factors;        ///< (K / 32)
  float* sums;           ///< (K / 256 · 16) of each 256: 8 zeros, then the sums of each 32 values
};

/// The bytes of a row of K values, a multiple of 256.
constexpr std::int64_t bytes_of_row(std::int64_t K) {
  return 2 * K + K / kFactorValues * 4 + K / kPadded * 64 + 64;
}

RoundedRow row_at(char* memory, std::int64_t K) {
  RoundedRow row{};
  row.codes = reinterpret_cast<std::int8_t*>(memory);
  row.starts = reinterpret_cast<std::int32_t*>(memory + K);
  row.sums = reinterpret_cast<float*>(memory + 2 * K);
  row.factors = row.sums + K / kPadded * 16;
  return row;
}

/// Rounds up to 256 values of a row of a, from value `first` on, and writes zeros behind the last
/// ones. Codes of b are counted from `offset` below 0.
template <typename T>
void round_values(const T* values, std::int64_t first, std::int64_t count, int offset,
                  const RoundedRow& to) {
  constexpr int kEach = kFactorValues;
  float* const sums = to.sums + first / kPadded * 16;
  std::fill_n(sums, 16, 0.0f);
  for (int block = 0; block < kPadded / kEach; ++block) {
    const std::int64_t at = first + block * kEach;
    float factor = 0;
    std::uint8_t codes[kEach] = {};
    if (block * kEach < count) factor = q8_0_codes(values + at, kEach, codes);
    std::memcpy(to.codes + at, codes, kEach);
    std::int32_t sum = 0;
    for (int i = 0; i < kEach; i += 4) {
      std::int32_t four = 0;
      for (int j = i; j < i + 4; ++j) four += static_cast<std::int8_t>(codes[j]);
      to.starts[(at + i) / 4] = -offset * four;
      sum += four;
    }
    to.factors[at / kEach] = factor;
    sums[8 + block] = factor * static_cast<float>(sum);
  }
}

/// `count` bits of each byte of a register, from the bit on that `shifts` has for each 8 bytes.
[[gnu::always_inline]] inline Integers bits_of(Integers bytes, int count, Integers shifts) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  return bytes >> shifts & static_cast<std::uint64_t>((1 << count) - 1) * kOnes;
}

/// Register i of a strip of numbers for each 8 bytes, by the first of them.
[[gnu::always_inline]] inline Integers for_bytes(int i, auto number_of) {
  Integers all;
  for (int j = 0; j < kRegisterBytes / 8; ++j) all[j] = number_of(i * kRegisterBytes + 8 * j);
  return all;
}

/// Register i of the bits of 32 bytes, of which the second half of a strip has those `step` higher.
[[gnu::always_inline]] inline Integers shared_bits(const std::uint8_t* bytes, int count, int first,
                                                   int step, int i) {
  return bits_of(detail::same_32(bytes, i), count,
                 for_bytes(i, [=](int byte) { return byte < 32 ? first : first + step; }));
}

/// Strips of codes, counted from kOffset below 0, and what they are multiplied by.
template <Quantization kind>
struct CodeStrips {
  static constexpr QuantizedForm kForm{kind, QuantizedForm::most_unit(kind)};
  static constexpr int kValues = 128, kRecord = static_cast<int>(kForm.record_bytes()),
                       kBytes = kValues / 32 * kRecord;
  static constexpr int kOffset = kind == Quantization::q8_0   ? kSignedOffset
                                 : kind == Quantization::q5_0 ? 16
                                                              : 8;
  const std::uint8_t* records;

  /// Register i of a strip.
  [[gnu::always_inline]] Integers codes(int strip, int i) const {
    const std::uint8_t* const first = records + 2 * strip * kRecord + kForm.factor_bytes();
    if constexpr (kind == Quantization::q8_0) return detail::blocks_of_32(first, kRecord, i);
    const Integers low = bits_of(detail::blocks_of_16(first + kForm.fifth_bytes(), kRecord, i), 4,
                                 for_bytes(i, [](int byte) { return byte % 32 < 16 ? 0 : 4; }));
    if constexpr (kind == Quantization::q5_0)
      return detail::plus_if_set(low, first, kRecord, i, 16);
    return low;
  }
  [[gnu::always_inline]] Registers::Register scales(int strip, int i) const {
    return detail::half_factors(records + 2 * strip * kRecord, kRecord, i);
  }
};

template <Quantization kind>
requires(has_large_blocks(kind)) struct CodeStrips<kind> {
  static constexpr LargeBlock kAt = LargeBlock::of(kind);
  static constexpr int kValues = LargeBlock::kValues;
  static constexpr int kBytes = static_cast<int>(QuantizedForm{kind, kValues}.record_bytes());
  static constexpr int kOffset = kind == Quantization::q6_k   ? 32
                                 : kind == Quantization::q3_k ? 4
                                                              : 0;
  const std::uint8_t* bytes;
  LargeRecord<kind> record;

  [[gnu::always_inline]] explicit CodeStrips(const std::uint8_t* at) : bytes(at), record(at) {}

  [[gnu::always_inline]] Integers codes(int strip, int i) const {
    const int half = strip / 2, in = strip % 2;
    const std::uint8_t *const low = bytes + kAt.low, *const high = bytes + kAt.high;
    if constexpr (kind == Quantization::q3_k)
      return shared_bits(low + half * 32, 2, in * 4, 2, i) | shared_bits(high, 1, 2 * strip, 1, i)
                                                                 << 2;
    if constexpr (kind == Quantization::q6_k)
      return bits_of(detail::integers_at(low + half * 64 + i * kRegisterBytes), 4,
                     for_bytes(i, [=](int) { return in * 4; })) |
             shared_bits(high + half * 32, 2, in * 4, 2, i) << 4;
    const Integers four = shared_bits(low + strip * 32, 4, 0, 4, i);
    if constexpr (kind == Quantization::q5_k)
      return four | shared_bits(high, 1, 2 * strip, 1, i) << 4;
    return four;
  }
  [[gnu::always_inline]] Registers::Register scales(int strip, int i) const {
    return detail::spread<kAt.part>(record.scales() + strip * (kStrip / kAt.part), i);
  }
};

/// Sums of products of rows of a with a row of codes, each in two parts: strip after strip.
template <int Rows>
struct RowSums {
  Lanes parts[Rows][2] = {};

  /// Adds the products of codes from value k of the row on.
  template <Quantization kind>
  [[gnu::always_inline]] void add(const CodeStrips<kind>& b, const RoundedRow* a, std::int64_t k) {
    using Vector = Floats::Unaligned;
#pragma GCC unroll 4
    for (int strip = 0; strip < CodeStrips<kind>::kValues / kStrip; ++strip) {
      const std::int64_t at = k + strip * kStrip;
      Lanes::for_each([&](int i) __attribute__((always_inline)) {
        const Integers codes = b.codes(strip, i);
        const Registers::Register scales = b.scales(strip, i);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          const Integers start = detail::integers_at(a[r].starts + at / 4 + i * Lanes::kEach),
                         others = detail::integers_at(a[r].codes + at + i * kRegisterBytes),
                         words = kind == Quantization::q8_0
                                     ? detail::plus_signed_products(start, codes, others)
                                     : detail::plus_products(start, codes, others);
          const auto factors = detail::spread<kFactorValues>(a[r].factors + at / kFactorValues, i);
          parts[r][strip % 2].r[i] += detail::as_floats(words) * (scales * factors);
        }
      });
    }
    if constexpr (has_least_values(kind))
      Lanes::for_each([&](int i) __attribute__((always_inline)) {
        const auto least = *reinterpret_cast<const Vector*>(b.record.least() + i * Lanes::kEach);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r)
          parts[r][0].r[i] -= least * *reinterpret_cast<const Vector*>(
                                          a[r].sums + k / kPadded * 16 + i * Lanes::kEach);
      });
  }
  float of(int r) const {
    Lanes all;
    Lanes::for_each([&](int i) { all.r[i] = parts[r][0].r[i] + parts[r][1].r[i]; });
    return sum_of_lanes(all);
  }
};

/// sums[r] = the product of a[r] and a row of codes, r below Rows.
template <Quantization kind, int Rows>
void integer_dots(const std::uint8_t* records, const RoundedRow* a, std::int64_t K, float* sums) {
  using Strips = CodeStrips<kind>;
  constexpr int kBytesAhead = 4096;
  RowSums<Rows> all;
  std::int64_t k = 0;
  for (; k + Strips::kValues <= K; k += Strips::kValues, records += Strips::kBytes) {
#pragma GCC unroll 4
    for (int byte = 0; byte < Strips::kBytes; byte += 64)
      __builtin_prefetch(records + kBytesAhead + byte);
    all.add(Strips{records}, a, k);
  }
  if constexpr (!has_large_blocks(kind))
    if (k < K) {  // zeros follow the rest, as in a
      std::uint8_t rest[Strips::kBytes] = {};
      std::memcpy(rest, records, Strips::kForm.bytes(K - k));
      all.add(Strips{rest}, a, k);
    }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) sums[r] = all.of(r);
}

constexpr int kColumns = 64;  ///< of the result, that a thread computes at a time
using ColumnSums = float[kColumns][kMostRows];

/// Columns of the result from `begin` on.
template <Quantization kind>
void integer_columns(const QuantizedMatmul& args, const RoundedRow* a, std::int64_t begin,
                     std::int64_t count, ColumnSums& sums) {
  constexpr std::array kDots{integer_dots<kind, 1>, integer_dots<kind, 2>, integer_dots<kind, 3>,
                             integer_dots<kind, 4>};
  static_assert(kDots.size() == kTileRows);
  const std::int64_t K = args.a.cols, bytes = args.form.bytes(K), rows = args.out.rows;
  const std::uint8_t* records = address<const std::uint8_t>(args.records) + begin * bytes;
  for (std::int64_t col = 0; col < count; ++col, records += bytes)
    for (std::int64_t row = 0; row < rows; row += kTileRows)
      kDots[std::min(kTileRows, rows - row) - 1](records, a + row, K, sums[col] + row);
}

/// Writes sums, plus the bias, to columns of out from `begin` on.
[[maybe_unused]] void write_columns(const QuantizedMatmul& args, std::int64_t begin,
                                    std::int64_t count, const ColumnSums& sums) {
  with_types(args.out.dtype, args.a.dtype, [&]<typename Out, typename T>(Out, T) {
    const T* const bias = args.bias.data ? address<T>(args.bias) + begin : nullptr;
    for (std::int64_t r = 0; r < args.out.rows; ++r)
      for (std::int64_t c = 0; c < count; ++c)
        put(address<Out>(args.out, r)[begin + c], bias ? sums[c][r] + get(bias[c]) : sums[c][r]);
  });
}

/// Rounds all rows of a, on all threads of the team that calls it.
[[maybe_unused]] void round_rows(const View& from, int offset, std::span<const RoundedRow> rows) {
  const std::int64_t parts = (from.cols + kPadded - 1) / kPadded, count = from.rows * parts;
  with_type(from.dtype, [&]<typename T>(T) {
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = i / parts, first = i % parts * kPadded;
      round_values(address<const T>(from, row), first,
                   std::min<std::int64_t>(kPadded, from.cols - first), offset, rows[row]);
    }
  });
}

}  // namespace

void integer_matmul(const QuantizedMatmul& args, int threads) {
  static thread_local HostScratch scratch;
  const std::int64_t K = (args.a.cols + kPadded - 1) / kPadded * kPadded, rows = args.out.rows,
                     bytes = bytes_of_row(K), cols = args.out.cols,
                     strips = (cols + kColumns - 1) / kColumns;
  char* const memory = scratch.take<char>(rows * bytes);
  std::array<RoundedRow, kMostRows> a{};
  for (std::int64_t r = 0; r < rows; ++r) a[r] = row_at(memory + r * bytes, K);
  const int used = cols * args.a.cols < kParallelElements ? 1 : threads;
  with_quantization(args.form.kind, [&](auto kind) {
    if constexpr (kHasIntegers && is_even(kind())) {
#pragma omp parallel num_threads(used)
      {
        round_rows(args.a, CodeStrips<kind()>::kOffset, a);
#pragma omp for schedule(static)
        for (std::int64_t strip = 0; strip < strips; ++strip) {
          const std::int64_t begin = strip * kColumns,
                             count = std::min<std::int64_t>(kColumns, cols - begin);
          ColumnSums sums;
          integer_columns<kind()>(args, a.data(), begin, count, sums);
          write_columns(args, begin, count, sums);
        }
      }
    }
  });
}

}  // namespace axonn::cpu
