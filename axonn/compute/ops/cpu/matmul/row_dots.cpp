#include "axonn/compute/ops/cpu/matmul/row_dots.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/cpu/matmul/row_tiles.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/quantization.h"

namespace axonn::cpu {

namespace {

/// Up to this many rows, reading the matrix takes most of the time, so it is read row after row.
constexpr std::int64_t kStreamed = 2;
bool streams(std::int64_t rows, SumOrder order) {
  return rows <= kStreamed && order == SumOrder::fastest;
}

/// Columns of the result that a thread computes at a time.
constexpr std::int64_t kColumns = 64;

/// Of a matrix of codes, rows whose values a thread has in its cache at a time: those of a tile.
template <typename T>
constexpr std::int64_t kCodedColumns = detail::kDotCols<T>;

/// Rows that a thread computes at a time: of K elements, they stay in the L2 cache.
std::int64_t rows_at_once(const Matmul& args) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 19, kFewest = 48, kMost = 240;
  static_assert(RowTiles::kMostRows <= kFewest);  // so these are rows of one strip
  const std::int64_t row = std::max<std::int64_t>(1, args.a.cols * bytes_of(args.a.dtype));
  return std::clamp(kBytes / row / kFewest * kFewest, kFewest, kMost);
}

/// Writes the sums of some columns of out, from `begin` on.
template <typename T, typename Out>
class Writer {
 public:
  Writer(const View& out, const View& bias, bool accumulate, std::int64_t begin)
      : out_(address<Out>(out) + begin),
        stride_(out.stride),
        bias_(bias.data ? address<T>(bias) + begin : nullptr),
        accumulate_(accumulate) {}

  void operator()(std::int64_t row, std::int64_t col, float sum) const {
    Out& to = out_[row * stride_ + col];
    if (bias_) sum += get(bias_[col]);
    put(to, accumulate_ ? sum + get(to) : sum);
  }

  /// A register of sums of adjacent columns.
  [[gnu::always_inline]] void registers(std::int64_t row, std::int64_t col,
                                        Floats::Register sums) const {
    constexpr int kEach = Floats::kEach;
    Out* const to = out_ + row * stride_ + col;
    if (bias_) sums += load_register(bias_ + col);
    if constexpr (std::is_same_v<Out, float>) {
      auto* const floats = reinterpret_cast<Floats::Unaligned*>(to);
      *floats = accumulate_ ? sums + *floats : sums;
    } else {
      if (accumulate_) sums += load_register(to);
      const auto narrow = detail::narrow_in_order<Out>(sums);
      std::memcpy(to, &narrow, kEach * sizeof(Out));
    }
  }

  bool by_registers() const { return !bias_ && !accumulate_; }
  /// The sums of up to four rows and four columns, in one register.
  [[gnu::always_inline]] void four_columns(std::int64_t row, std::int64_t rows, std::int64_t col,
                                           const float (&sums)[4][4]) const {
    Out* to = out_ + row * stride_ + col;
    const auto write = [&](const auto& all) __attribute__((always_inline)) {
      for (std::int64_t r = 0; r < rows; ++r, to += stride_)
        std::memcpy(to, reinterpret_cast<const Out*>(&all) + 4 * r, 4 * sizeof(Out));
    };
    if constexpr (std::is_same_v<Out, float>)
      write(sums);
    else
      write(detail::narrow_in_order<Out>(reinterpret_cast<const Floats::Unaligned&>(sums)));
  }

 private:
  Out* out_;
  std::int64_t stride_;
  const T* bias_;
  bool accumulate_;
};

/// Whether RowTiles multiply such a product.
bool by_tiles(const View& a, SumOrder order, std::int64_t b_row) {
  return kHasAmx && a.dtype == DType::bf16 && order == SumOrder::fastest && a.rows > kStreamed &&
         a.rows <= RowTiles::kMostRows && a.cols % 2 == 0 && b_row % 2 == 0 && uses_amx();
}

/// The columns of strip `strip`, by tiles.
template <typename Out>
void tile_columns(const Matmul& args, const RowTiles& a, std::int64_t strip) {
  alignas(64) float sums[kColumns * RowTiles::kMostRows];
  const std::int64_t begin = strip * kColumns;
  const int columns = static_cast<int>(std::min(kColumns, args.out.cols - begin));
  a.add_products(address<const bf16>(args.b, begin), args.b.stride, columns, 0, args.a.cols, sums);
  a.write(Writer<bf16, Out>(args.out, args.bias, args.accumulate, begin), args.out.rows, columns,
          sums);
}
void tile_strip(const Matmul& args, const RowTiles& a, std::int64_t strip) {
  (args.out.dtype == args.a.dtype ? tile_columns<bf16> : tile_columns<float>)(args, a, strip);
}

template <typename T, typename Out>
void dot_columns(const Matmul& args, SumOrder order, std::int64_t begin, std::int64_t count) {
  const Writer<T, Out> write(args.out, args.bias, args.accumulate, begin);
  const RowPairs<T> rows{address<T>(args.a), args.a.stride, address<T>(args.b, begin),
                         args.b.stride, args.a.cols};
  const auto row_of = [&](std::int64_t col) { return PlainRow<T>{rows.b + col * rows.b_row}; };
  if (streams(args.out.rows, order))
    stream_dots(rows, args.out.rows, count, row_of, write);
  else
    row_dots(rows, args.out.rows, count, write);
}

/// Packs the rows of a, and calls f(them, strip) for all strips, on so many threads.
void for_strips_of_tiles(const View& a, std::int64_t strips, int threads, const auto& f) {
  static thread_local HostScratch scratch;
  const RowTiles tiles = RowTiles::of(a, scratch.take<float>(RowTiles::count(a)));
#pragma omp parallel num_threads(threads)
  {
    const amx::TilesInUse in_use;
#pragma omp for schedule(static)
    for (std::int64_t step = 0; step < tiles.steps(); ++step) tiles.pack(a, step);
#pragma omp for schedule(static)
    for (std::int64_t strip = 0; strip < strips; ++strip) f(tiles, strip);
  }
}

HostScratch& scratch_of_thread() {
  static thread_local HostScratch scratch;
  return scratch;
}

/// Rows of b, and values of each, that are made at a time: they stay in the L1 cache, and rows do
/// not all fall into a few of its sets.
constexpr int kMadeRows = 32, kMadeValues = 512, kMadeStride = kMadeValues + 32;

/// columns_of_codes() by tiles.
template <Quantization kind, typename Out>
void tile_columns_of_codes(const QuantizedMatmul& args, const RowTiles& a, std::int64_t begin,
                           std::int64_t end) {
  const std::int64_t K = args.a.cols, unit = args.form.unit;
  const bool in_parts = kMadeValues % unit == 0;
  const std::int64_t most = in_parts ? kMadeValues : K, stride = in_parts ? kMadeStride : K;
  bf16* const values = scratch_of_thread().take<bf16>(kMadeRows * stride);
  alignas(64) float sums[kMadeRows * RowTiles::kMostRows];
  for (; begin < end; begin += kMadeRows) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kMadeRows, end - begin));
    for (std::int64_t k = 0; k < K; k += most) {
      const std::int64_t depth = std::min(most, K - k);
      for (int r = 0; r < rows; ++r)
        dequantize<kind>(
            unit, address<const std::uint8_t>(args.records) + args.form.bytes((begin + r) * K + k),
            depth / unit, values + r * stride);
      a.add_products(values, stride, rows, k, depth, sums);
    }
    a.write(Writer<bf16, Out>(args.out, args.bias, false, begin), args.out.rows, rows, sums);
  }
}

/// Columns of out from `begin` on. The values of a few rows of b at a time are made in memory that
/// stays in cache; those of whole blocks for one or two rows of a in registers.
template <Quantization kind, typename T, typename Out>
void columns_of_codes(const QuantizedMatmul& args, SumOrder order, std::int64_t begin,
                      std::int64_t end) {
  const QuantizedForm form = args.form;
  const std::int64_t K = args.a.cols, rows = args.out.rows;
  const std::uint8_t* const first = address<const std::uint8_t>(args.records);
  const auto records_of = [&](std::int64_t row) { return first + form.bytes(row * K); };
  using Row = CodedRow<kind, T>;
  if constexpr (!std::is_same_v<T, f16>)
    if (streams(rows, order) && form.unit == Row::kUnit) {
      const RowPairs<T> of{address<T>(args.a), args.a.stride, nullptr, 0, K};
      return stream_dots(
          of, rows, end - begin, [&](std::int64_t col) { return Row{records_of(begin + col)}; },
          Writer<T, Out>(args.out, args.bias, false, begin));
    }
  T* const values = scratch_of_thread().take<T>(kCodedColumns<T> * K);
  for (std::int64_t count; begin < end; begin += count) {
    count = std::min(kCodedColumns<T>, end - begin);
    dequantize<kind>(form.unit, records_of(begin), count * K / form.unit, values);
    const Matmul part{.out = args.out.col_range(begin, count),
                      .a = args.a,
                      .b = {values, args.a.dtype, count, K, K},
                      .bias = args.bias.data ? args.bias.col_range(begin, count) : View{}};
    dot_columns<T, Out>(part, order, 0, count);
  }
}

}  // namespace

bool has_few_rows(const MatmulShape& shape) {
  return shape.M <= kFewRows && !shape.a_transposed && shape.b_transposed;
}

std::int64_t rows_strips(const Matmul& args) {
  const std::int64_t rows = rows_at_once(args);
  return (args.out.rows + rows - 1) / rows * ((args.out.cols + kColumns - 1) / kColumns);
}

void rows_strip(const Matmul& args, SumOrder order, std::int64_t strip) {
  if constexpr (kHasAmx)
    if (by_tiles(args.a, order, args.b.stride))
      return for_strips_of_tiles(args.a, 1, 1, [&](const RowTiles& tiles, std::int64_t) {
        tile_strip(args, tiles, strip);
      });
  const std::int64_t strips = (args.out.cols + kColumns - 1) / kColumns, rows = rows_at_once(args),
                     first = strip / strips * rows, begin = strip % strips * kColumns;
  Matmul part = args;
  const std::int64_t count = std::min(rows, args.out.rows - first);
  part.out = args.out.row_range(first, count);
  part.a = args.a.row_range(first, count);
  with_type(args.a.dtype, [&]<typename T>(T) {
    const auto run = args.out.dtype == args.a.dtype ? dot_columns<T, T> : dot_columns<T, float>;
    run(part, order, begin, std::min(kColumns, args.out.cols - begin));
  });
}

void rows_matmul(const Matmul& args, SumOrder order, int threads) {
  const std::int64_t strips = rows_strips(args);
  const int used = args.b.count() < kParallelElements && has_few_rows(shape_of(args)) ? 1 : threads;
  if constexpr (kHasAmx)
    if (by_tiles(args.a, order, args.b.stride))
      return for_strips_of_tiles(
          args.a, strips, used,
          [&](const RowTiles& tiles, std::int64_t strip) { tile_strip(args, tiles, strip); });
#pragma omp parallel for num_threads(used) schedule(static)
  for (std::int64_t strip = 0; strip < strips; ++strip) rows_strip(args, order, strip);
}

void rows_matmul(const QuantizedMatmul& args, SumOrder order, int threads) {
  const std::int64_t strips = (args.out.cols + kColumns - 1) / kColumns;
  const int used = args.out.cols * args.a.cols < kParallelElements ? 1 : threads;
  const auto end = [&](std::int64_t strip) {
    return std::min((strip + 1) * kColumns, args.out.cols);
  };
  if constexpr (kHasAmx)
    if (by_tiles(args.a, order, 0))
      return for_strips_of_tiles(args.a, strips, used,
                                 [&](const RowTiles& tiles, std::int64_t strip) {
                                   with_quantization(args.form.kind, [&](auto kind) {
                                     const auto run = args.out.dtype == args.a.dtype
                                                          ? tile_columns_of_codes<kind(), bf16>
                                                          : tile_columns_of_codes<kind(), float>;
                                     run(args, tiles, strip * kColumns, end(strip));
                                   });
                                 });
#pragma omp parallel for num_threads(used) schedule(static)
  for (std::int64_t strip = 0; strip < strips; ++strip)
    with_quantization(args.form.kind, [&](auto kind) {
      with_type(args.a.dtype, [&]<typename T>(T) {
        const auto run = args.out.dtype == args.a.dtype ? columns_of_codes<kind(), T, T>
                                                        : columns_of_codes<kind(), T, float>;
        run(args, order, strip * kColumns, end(strip));
      });
    });
}

}  // namespace axonn::cpu
