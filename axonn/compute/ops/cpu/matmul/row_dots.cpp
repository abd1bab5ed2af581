#include "axonn/compute/ops/cpu/matmul/row_dots.h"

#include <algorithm>

#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::cpu {

namespace {

/// Up to about this many rows these kernels are faster than oneDNN on GPT-2's products, in either
/// type; at 64 rows it depends on the product.
constexpr std::int64_t kFewRows = 48;

/// Up to this many rows, reading the matrix takes most of the time, so it is read row after row.
constexpr std::int64_t kStreamed = 2;

/// Columns of the result that a thread computes at a time.
constexpr std::int64_t kColumns = 64;

/// Rows that a thread computes at a time: of K elements, they stay in the L2 cache.
std::int64_t rows_at_once(const Matmul& args) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 19, kFewest = 48, kMost = 240;
  const std::int64_t row = std::max<std::int64_t>(1, args.a.cols * bytes_of(args.a.dtype));
  return std::clamp(kBytes / row / kFewest * kFewest, kFewest, kMost);
}

template <typename T, typename Out>
void columns(const Matmul& args, SumOrder order, std::int64_t begin, std::int64_t count) {
  const T* const bias = args.bias.data ? address<T>(args.bias) + begin : nullptr;
  const auto write = [&](std::int64_t row, std::int64_t col, float sum) {
    Out& out = address<Out>(args.out, row)[begin + col];
    if (bias) sum += get(bias[col]);
    put(out, args.accumulate ? sum + get(out) : sum);
  };
  const RowPairs<T> rows{address<T>(args.a), args.a.stride, address<T>(args.b, begin),
                         args.b.stride, args.a.cols};
  if (args.out.rows <= kStreamed && order == SumOrder::fastest)
    stream_dots(rows, args.out.rows, count, write);
  else
    row_dots(rows, args.out.rows, count, write);
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
  const std::int64_t strips = (args.out.cols + kColumns - 1) / kColumns, rows = rows_at_once(args),
                     first = strip / strips * rows, begin = strip % strips * kColumns;
  Matmul part = args;
  const std::int64_t count = std::min(rows, args.out.rows - first);
  part.out = args.out.row_range(first, count);
  part.a = args.a.row_range(first, count);
  with_type(args.a.dtype, [&]<typename T>(T) {
    const auto run = args.out.dtype == args.a.dtype ? columns<T, T> : columns<T, float>;
    run(part, order, begin, std::min(kColumns, args.out.cols - begin));
  });
}

void rows_matmul(const Matmul& args, SumOrder order, int threads) {
  const std::int64_t strips = rows_strips(args);
  const int used = args.b.count() < kParallelElements && has_few_rows(shape_of(args)) ? 1 : threads;
#pragma omp parallel for num_threads(used) schedule(static)
  for (std::int64_t strip = 0; strip < strips; ++strip) rows_strip(args, order, strip);
}

}  // namespace axonn::cpu
