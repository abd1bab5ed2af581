#include "axonn/ranks/parallel/quantized_run.h"

#include <algorithm>
#include <cstring>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::int64_t kAtOnce = 1 << 20;  // values of whole rows in memory

}  // namespace

void QuantizedRun::write_record_of(const QuantizedForm& form, std::int64_t first,
                                   std::int64_t count, std::byte* out) const {
  const std::int64_t at = first - begin;
  if (has_large_blocks(kind))
    std::memcpy(out, records.data() + form.bytes(at), form.record_bytes());
  else
    write_record(form, std::span(values.codes).subspan(at, count), values.of_block(at / block),
                 out);
}

float QuantizedRun::value(std::int64_t i) const {
  const std::int64_t at = i - begin;
  if (!has_large_blocks(kind)) return values.value(kind, at, block);
  float out = 0;
  read_values({kind, block}, records, at, {&out, 1});
  return out;
}

void quantize_blocks(const QuantizedMatrix& matrix, const Slice& slice, const MatrixBlocks& from,
                     QuantizedRun& out) {
  const std::int64_t cols = matrix.cols, first = slice.row + slice.begin / slice.cols,
                     last = slice.row + (slice.end - 1) / slice.cols;
  out.kind = matrix.kind;
  out.block = matrix.block();
  out.begin = first * cols / out.block * out.block;
  const std::int64_t blocks = ((last + 1) * cols - out.begin + out.block - 1) / out.block,
                     end = std::min(out.begin + blocks * out.block, matrix.rows * cols),
                     row = out.begin / cols;
  const bool large = has_large_blocks(matrix.kind);
  const QuantizedForm form{matrix.kind, out.block};
  if (large || (from.records && is_of_ggml(matrix.kind))) {
    out.records.resize(form.bytes(end - out.begin));
    if (from.records && from.records(out.begin / out.block, out.records)) {
      if (!large) read_records(form, out.records, out.values);
      return;
    }
  }
  out.read.resize(end - out.begin);
  from.values({.row = row,
               .rows = (end + cols - 1) / cols - row,
               .cols = cols,
               .begin = out.begin - row * cols,
               .end = end - row * cols},
              out.read);
  try {
    if (large)
      quantize_records(form, out.read, out.records);
    else
      quantize(matrix.kind, out.block, out.read, out.values);
  } catch (const UsageError& error) {
    refuse("[model] quantize = ", name_of(matrix.kind), ": ", matrix.name, ": ", error.what());
  }
}

void for_quantizable_parts(const QuantizedMatrix& matrix, const Slice& slice,
                           const std::function<void(const Slice& part)>& f) {
  const std::int64_t unit = QuantizedForm::aligned(matrix.kind),
                     at_once = std::max(unit, kAtOnce / matrix.cols * slice.cols / unit * unit);
  for (std::int64_t at = slice.begin; at < slice.end; at += at_once) {
    Slice part = slice;
    part.begin = at;
    part.end = std::min(slice.end, at + at_once);
    part.offset += at - slice.begin;
    f(part);
  }
}

}  // namespace axonn
