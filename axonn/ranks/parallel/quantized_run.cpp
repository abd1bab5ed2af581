#include "axonn/ranks/parallel/quantized_run.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::int64_t kAtOnce = 1 << 20;  // values of whole rows in memory

}  // namespace

void quantize_blocks(const QuantizedMatrix& matrix, const Slice& slice, const MatrixBlocks& from,
                     QuantizedRun& out) {
  const std::int64_t cols = matrix.cols, first = slice.row + slice.begin / slice.cols,
                     last = slice.row + (slice.end - 1) / slice.cols;
  out.block = matrix.block();
  out.begin = first * cols / out.block * out.block;
  const std::int64_t blocks = ((last + 1) * cols - out.begin + out.block - 1) / out.block,
                     end = std::min(out.begin + blocks * out.block, matrix.rows * cols),
                     row = out.begin / cols;
  if (from.records && is_of_ggml(matrix.kind)) {
    const QuantizedForm form{matrix.kind, out.block};
    out.records.resize(form.bytes(end - out.begin));
    if (from.records(out.begin / out.block, out.records))
      return read_records(form, out.records, out.values);
  }
  out.read.resize(end - out.begin);
  from.values({.row = row,
               .rows = (end + cols - 1) / cols - row,
               .cols = cols,
               .begin = out.begin - row * cols,
               .end = end - row * cols},
              out.read);
  try {
    quantize(matrix.kind, out.block, out.read, out.values);
  } catch (const UsageError& error) {
    refuse("[model] quantize = ", kQuantizations[static_cast<int>(matrix.kind)], ": ", matrix.name,
           ": ", error.what());
  }
}

void for_quantizable_parts(const QuantizedMatrix& matrix, const Slice& slice,
                           const std::function<void(const Slice& part)>& f) {
  constexpr std::int64_t kUnit = QuantizedForm::kMostUnit;
  const std::int64_t at_once = std::max(kUnit, kAtOnce / matrix.cols * slice.cols / kUnit * kUnit);
  for (std::int64_t at = slice.begin; at < slice.end; at += at_once) {
    Slice part = slice;
    part.begin = at;
    part.end = std::min(slice.end, at + at_once);
    part.offset += at - slice.begin;
    f(part);
  }
}

}  // namespace axonn
