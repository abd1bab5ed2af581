#include "axonn/compute/ops/cpu/matmul/integer_rows.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/cpu/matmul/code_strips.h"
#include "axonn/compute/ops/cpu/matmul/integer_tiles.h"
#include "axonn/compute/ops/cpu/matmul/row_dots.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/quantization.h"

namespace axonn::cpu {

namespace {

/// Of more rows there are tiles, or products of values are as fast.
constexpr std::int64_t kMostRows = 4;

}  // namespace

bool has_integer_matmul(const QuantizedMatmul& args) {
  return kHasIntegers && has_integer_products(args.form.kind) &&
         (args.out.rows <= kMostRows || has_integer_tiles(args.form.kind)) &&
         args.form.unit == QuantizedForm::most_unit(args.form.kind) &&
         args.a.cols % args.form.unit == 0;
}

namespace {

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
  float* const sums = to.sums + first / kPadded * 16;
  std::fill_n(sums, 16, 0.0f);
  for (int i = 0; i < kPadded / kFactorValues; ++i) {
    const std::int64_t at = first + i * kFactorValues;
    const RoundedBlock block(values + at, i * kFactorValues < count);
    std::memcpy(to.codes + at, block.codes, sizeof block.codes);
    for (int four = 0; four < kFactorValues / 4; ++four)
      to.starts[at / 4 + four] = -offset * block.fours[four];
    to.factors[at / kFactorValues] = block.factor;
    sums[8 + i] = block.sum();
  }
}

/// Sums of products of rows of a with a row of codes. Sums of a single register are in two parts,
/// strip after strip.
template <int Rows>
struct RowSums {
  static constexpr int kParts = Lanes::kRegisters == 1 ? 2 : 1;
  using Four = float __attribute__((vector_size(16), may_alias, aligned(4)));

  Lanes parts[Rows][kParts] = {};
  Four below[Rows] = {};  ///< what to subtract, if kFolds

  /// Whether products are those of codes from 0 up, and what these are off by is subtracted from
  /// the sums: four scales at a time, where products cannot begin with it.
  template <Quantization kind>
  static constexpr bool kFolds =
      kAddsPairs&& CodeStrips<kind>::kOffset != 0 && !has_large_blocks(kind);

  /// out = scales of parts, each times the factor of its values.
  template <int part, int count>
  [[gnu::always_inline]] static void multiply(const float (&scales)[count], const float* factors,
                                              float (&out)[count]) {
    for (int i = 0; i < count; i += 4) {
      const float* const f = factors + i * part / kFactorValues;
      *reinterpret_cast<Four*>(out + i) =
          *reinterpret_cast<const Four*>(scales + i) *
          (part < kFactorValues ? Four{f[0], f[0], f[1], f[1]} : *reinterpret_cast<const Four*>(f));
    }
  }

  /// Adds the products of codes from value k of the row on.
  template <Quantization kind>
  [[gnu::always_inline]] void add(const CodeStrips<kind>& b, const RoundedRow* a, std::int64_t k) {
    using Vector = Floats::Unaligned;
    using Strips = CodeStrips<kind>;
    constexpr int kPart = Strips::kPart, kScales = Strips::kValues / kPart;
    // With parts of 16 values the factors of several rows are spread by themselves.
    constexpr bool kApart = kPart < kFactorValues && Rows > 1;
    alignas(64) float scales[kScales], both[kApart ? 1 : Rows][kScales];
    b.scales(kApart ? both[0] : scales);
    if constexpr (!kApart)
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r)
        multiply<kPart>(scales, a[r].factors + k / kFactorValues, both[r]);
    // A number in memory is spread by its load; g++ would spread it from a register.
    asm("" : "+m"(both));
#pragma GCC unroll 4
    for (int strip = 0; strip < Strips::kValues / kStrip; ++strip) {
      const std::int64_t at = k + strip * kStrip;
      Lanes::for_each([&](int i) __attribute__((always_inline)) {
        const Integers codes = b.codes(strip, i);
        const float* const of_strip = both[0] + strip * (kStrip / kPart);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          const Integers start = Strips::kOffset == 0 || kFolds<kind>
                                     ? Integers{}
                                     : detail::integers_at(a[r].starts + at / 4 + i * Lanes::kEach),
                         others = detail::integers_at(a[r].codes + at + i * kRegisterBytes),
                         words = kind == Quantization::q8_0
                                     ? detail::plus_signed_products(start, codes, others)
                                     : detail::plus_products(start, codes, others);
          auto scale = detail::spread<kPart>(of_strip + (kApart ? 0 : r * kScales), i);
          if constexpr (kApart)
            scale *= detail::spread<kFactorValues>(a[r].factors + at / kFactorValues, i);
          parts[r][strip % kParts].r[i] += detail::as_floats(words) * scale;
        }
      });
    }
    if constexpr (kFolds<kind>) {
      static_assert(kScales == 4);
      const Four least = *reinterpret_cast<const Four*>(scales) * float{Strips::kOffset};
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r)
        below[r] += least * *reinterpret_cast<const Four*>(a[r].sums + k / kPadded * 16 + 8 +
                                                           k % kPadded / kFactorValues);
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
    Lanes all = parts[r][0];
    if constexpr (kParts == 2) Lanes::for_each([&](int i) { all.r[i] += parts[r][1].r[i]; });
    return sum_of_lanes(all) - (below[r][0] + below[r][1] + below[r][2] + below[r][3]);
  }
};

/// sums[r · kSumColumns + col] = the product of a[r], r below Rows, and row `col` of records.
template <Quantization kind, int Rows>
void integer_dots(const std::uint8_t* records, std::int64_t columns, const RoundedRow* a,
                  std::int64_t K, float* sums) {
  using Strips = CodeStrips<kind>;
  constexpr int kBytesAhead = 4096;
  const std::int64_t whole = K / Strips::kValues * Strips::kValues;
  for (std::int64_t col = 0; col < columns; ++col) {
    RowSums<Rows> all;
    for (std::int64_t k = 0; k < whole; k += Strips::kValues, records += Strips::kBytes) {
#pragma GCC unroll 4
      for (int byte = 0; byte < Strips::kBytes; byte += 64)
        __builtin_prefetch(records + kBytesAhead + byte);
      all.add(Strips{records}, a, k);
    }
    if constexpr (!has_large_blocks(kind))
      if (whole < K) {  // zeros follow the rest, as in a
        std::uint8_t rest[Strips::kBytes] = {};
        const std::int64_t bytes = Strips::kForm.bytes(K - whole);
        std::memcpy(rest, records, bytes);
        all.add(Strips{rest}, a, whole);
        records += bytes;
      }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) sums[r * kSumColumns + col] = all.of(r);
  }
}

/// Columns of the result from `begin` on: sums is (rows, kSumColumns).
template <Quantization kind>
void integer_columns(const QuantizedMatmul& args, const RoundedRow* a, std::int64_t begin,
                     std::int64_t count, float* sums) {
  constexpr std::array kDots{integer_dots<kind, 1>, integer_dots<kind, 2>, integer_dots<kind, 3>,
                             integer_dots<kind, 4>};
  static_assert(kDots.size() == kMostRows);
  const std::int64_t K = args.a.cols;
  kDots[args.out.rows - 1](address<const std::uint8_t>(args.records) + begin * args.form.bytes(K),
                           count, a, K, sums);
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
  if (args.out.rows > kMostRows) return integer_tile_matmul(args, threads);
  static thread_local HostScratch scratch;
  const std::int64_t K = (args.a.cols + kPadded - 1) / kPadded * kPadded, rows = args.out.rows,
                     bytes = bytes_of_row(K), cols = args.out.cols,
                     strips = (cols + kSumColumns - 1) / kSumColumns;
  char* const memory = scratch.take<char>(rows * bytes);
  std::array<RoundedRow, kMostRows> a{};
  for (std::int64_t r = 0; r < rows; ++r) a[r] = row_at(memory + r * bytes, K);
  const int used = cols * args.a.cols < kParallelElements ? 1 : threads;
  with_quantization(args.form.kind, [&](auto kind) {
    if constexpr (kHasIntegers && has_integer_products(kind())) {
#pragma omp parallel num_threads(used)
      {
        round_rows(args.a, CodeStrips<kind()>::kOffset, a);
#pragma omp for schedule(static)
        for (std::int64_t strip = 0; strip < strips; ++strip) {
          const std::int64_t begin = strip * kSumColumns,
                             count = std::min<std::int64_t>(kSumColumns, cols - begin);
          float sums[kMostRows * kSumColumns];
          integer_columns<kind()>(args, a.data(), begin, count, sums);
          write_sums(args, {0, rows, begin, count}, sums);
        }
      }
    }
  });
}

}  // namespace axonn::cpu
