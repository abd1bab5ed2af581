// Groups of parameters that are kept as codes. A piece of one consists of records, each of a part
// of one block of a global matrix; the ranks that have parts of a block all read and quantize it.
#include <algorithm>
#include <numeric>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/quantized_run.h"

namespace axonn {

void ParameterGroup::quantize(Quantization kind) {
  AXONN_CHECK(parameters_.empty(), name_, ": quantized after add()");
  freeze();
  form_.kind = kind;
  layout_.align_to(QuantizedForm::aligned(kind));
}

/// The largest unit with which no record of the parameter, whose block begins at `offset` in F, has
/// values of two blocks.
std::int64_t ParameterGroup::unit_of(const Parameter& parameter, std::int64_t offset) const {
  const Layout& layout = parameter.spec().layout;
  std::int64_t unit = std::gcd(QuantizedForm::most_unit(form_.kind), offset);
  if (form_.kind == Quantization::int8) unit = std::gcd(unit, layout.cols);
  for (const Slice& slice : layout.slices(grid_.shape(), grid_.coords())) {
    unit = std::gcd(unit, slice.offset);
    if (slice.cols == layout.cols)
      unit = std::gcd(unit, slice.row * layout.cols + slice.begin);
    else
      unit = std::gcd(std::gcd(unit, layout.cols), std::gcd(slice.col, slice.cols));
  }
  return unit;
}

QuantizedForm ParameterGroup::form_on(const FlatSizes& sizes) const {
  QuantizedForm form{form_.kind, QuantizedForm::most_unit(form_.kind)};
  if (!quantized()) return form;
  const std::string_view kind = name_of(form.kind);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, layout, mean, std, decays, hidden] = parameters_[i]->spec();
    if (is_of_ggml(form.kind) && layout.cols % QuantizedForm::most_unit(form.kind) != 0)
      refuse("[model] quantize = ", kind, ": the ", layout.cols, " columns of ", name,
             " are no multiple of ", QuantizedForm::most_unit(form.kind), "; take ",
             has_large_blocks(form.kind) ? "q4_0, q8_0, " : "", "nf4 or int8");
    const std::int64_t unit = unit_of(*parameters_[i], sizes.offsets[i]);
    if (unit < QuantizedForm::least_unit(form.kind))
      refuse("[model] quantize = ", kind, ": ", grid_.describe(), " would have ",
             has_large_blocks(form.kind) ? "parts of blocks of 256" : "an odd number of",
             " columns of ", name, "; take other extents of x and y, or ",
             has_large_blocks(form.kind) ? "another kind, such as q4_0" : "leave quantize out");
    form.unit = std::min(form.unit, unit);
  }
  return form;
}

std::int64_t ParameterGroup::shard_bytes(DType dtype) const {
  const FlatSizes all = sizes();
  return quantized() ? form_on(all).bytes(all.shard) : all.shard * bytes_of(dtype);
}

/// (1, F) of the acquired group. Of codes they are made now, and the codes freed unless held.
View ParameterGroup::values() const {
  if (gathered_.empty() && !records_.empty()) {
    gathered_ = reader_->empty(1, sizes_.flat, reader_->dtype, MemoryUse::gathered);
    reader_->backend.run(ops::Dequantize{gathered_.view(), records_.view(), form_});
    if (records_held_ == 0) records_ = Tensor();
  }
  return gathered_.view();
}

std::optional<Parameter::Codes> Parameter::codes() const {
  const QuantizedForm form = group_.form_;
  if (group_.records_.empty() || !group_.gathered_.empty() || local_cols_ % form.unit != 0)
    return {};
  const View all = group_.records_.view();
  return Codes{all.col_range(form.bytes(offset_), form.bytes(size())), form};
}

std::optional<QuantizedMatmul> Parameter::product_of_codes(const Context& ctx, const View& out,
                                                           const View& inp,
                                                           const View& bias) const {
  const auto here = codes();
  if (!here) return {};
  const QuantizedMatmul product{out, inp, here->records, here->form, bias};
  return ctx.backend.reads_codes(product) ? std::optional(product) : std::nullopt;
}

void ParameterGroup::hold(const Context& ctx) {
  if (!reads_codes(ctx)) return acquire(ctx);
  start_gather(ctx);
  records_.wait();
  ++records_held_;
}

void ParameterGroup::let_go(Gathered then) {
  if (records_held_ == 0) return release(then);
  if (--records_held_ == 0 && users_ == 0) forget_gathered();
}

/// Whether the backend reads the codes in products of one row, so that no values need be kept.
bool ParameterGroup::reads_codes(const Context& ctx) const {
  if (!quantized()) return false;
  const View row{nullptr, ctx.dtype, 1, form_.unit, form_.unit};
  return ctx.backend.reads_codes({.out = row, .a = row, .records = {}, .form = form_});
}

void ParameterGroup::quantize_values(const Context& ctx, const ReadSlice& read,
                                     const ReadRecords& records) {
  check_allocated("quantize_values");
  gathered_.wait();
  records_.wait();
  for (const NamedSlice& piece : piece_slices_) quantize_slice(ctx, piece, read, records);
}

void ParameterGroup::quantize_slice(const Context& ctx, const NamedSlice& piece,
                                    const ReadSlice& read, const ReadRecords& read_records) {
  const ParameterSpec& spec = *piece.parameter;
  const std::int64_t cols = spec.layout.cols, unit = form_.unit, bytes = form_.record_bytes();
  const QuantizedMatrix matrix{form_.kind, spec.name, spec.layout.rows, cols};
  QuantizedRun run;
  std::vector<std::byte> records;
  MatrixBlocks from{
      .values = [&](const Slice& slice, std::span<float> out) { read(spec, slice, out); }};
  if (read_records)
    from.records = [&](std::int64_t first, std::span<std::byte> out) {
      return read_records(spec, first, out);
    };
  const bool whole = is_of_ggml(form_.kind) && unit == QuantizedForm::most_unit(form_.kind) &&
                     piece.slice.cols == cols;
  for_quantizable_parts(matrix, piece.slice, [&](const Slice& part) {
    const std::int64_t units = (part.count() + unit - 1) / unit;
    records.resize(units * bytes);
    const auto copy = [&] {
      const View to = piece_of_compute().col_range(form_.bytes(part.offset), std::ssize(records));
      ctx.device().copy_from_host(to.data, records.data(), std::ssize(records));
    };
    if (whole && from.records && from.records((part.row * cols + part.begin) / unit, records))
      return copy();
    quantize_blocks(matrix, part, from, run);
#pragma omp parallel for
    for (std::int64_t i = 0; i < units; ++i) {
      const std::int64_t e = part.begin + i * unit,
                         at = (part.row + e / part.cols) * cols + part.col + e % part.cols;
      run.write_record_of(form_, at, std::min(unit, part.end - e), records.data() + i * bytes);
    }
    copy();
  });
}

}  // namespace axonn
