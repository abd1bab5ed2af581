#pragma once

#include <cstdint>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/quantization.h"

namespace axonn::rowwise {

/// Writes values 2 · pair and 2 · pair + 1 of records of `unit` values each.
template <Quantization kind, typename T>
AXONN_DEVICE void put_pair(T* out, const std::uint8_t* records, int unit, int pair) {
  const QuantizedForm form{kind, unit};
  const int at = 2 * pair, in = at % unit;  // both values have codes in one unit
  const std::uint8_t *const record = records + at / unit * static_cast<int>(form.record_bytes()),
                            *const codes = record + form.factor_bytes();
  if constexpr (has_large_blocks(kind))
    return put_two(out + at, record_value<kind>(form, record, in),
                   record_value<kind>(form, record, in + 1));
  const BlockFactors factors = record_factors<kind>(record);
  put_two(out + at, dequantized(kind, form.code(codes, in), factors),
          dequantized(kind, form.code(codes, in + 1), factors));
}

/// Writes `count` values of records of `unit` values each.
template <Quantization kind, typename T>
AXONN_DEVICE void put_values(const auto& team, T* out, const std::uint8_t* records, int unit,
                             int count) {
  if constexpr (requires { team.template dequantize<kind>(unit, records, count, out); })
    team.template dequantize<kind>(unit, records, count / unit, out);
  else
    team.each(count / 2, [=](int pair) { put_pair<kind>(out, records, unit, pair); });
}

/// Writes a row of values, one team per row. Bound by memory: form.bytes(n) + n · sizeof(T) bytes.
template <Quantization kind, typename T>
struct DequantizeKernel {
  T* out;                       // (R · kRow)
  const std::uint8_t* records;  // (R · kRow / unit) records
  int unit;

  static constexpr int kRow = static_cast<int>(QuantizedForm::aligned(kind));

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const std::uint8_t* const first =
        records + row * (kRow / unit * QuantizedForm{kind, unit}.record_bytes());
    put_values<kind>(team, out + row * kRow, first, unit, kRow);
  }
};

/// out[row] = the values of row ids[row] - first of the table, or zeros if it has no such row. One
/// team per row. Bound by memory: R · C · sizeof(T) bytes written, and less read.
template <Quantization kind, typename T>
struct DequantizeRowsKernel {
  Matrix<T> out;            // (R, C)
  const std::int32_t* ids;  // (R)
  const std::uint8_t* records;
  int unit;
  std::int64_t first, V, row_bytes;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const std::int64_t id = ids[row] - first;
    T* const y = out.row(row);
    if (id < 0 || id >= V) return team.map(y, C, [] { return 0.0f; });
    put_values<kind>(team, y, records + id * row_bytes, unit, C);
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void Dequantize::run(auto launch, const Checker& check) const {
  const std::int64_t row = QuantizedForm::aligned(form.kind);
  check.values("out", out, 1, out.cols);
  AXONN_CHECK(out.cols % row == 0, "dequantize: ", out.cols, " values, want a multiple of ", row);
  check.typed("records", records, DType::u8, 1, form.bytes(out.cols));
  with_quantization(form.kind, [&](auto kind) {
    with_type(out.dtype, [&]<typename T>(T) {
      launch.rows({out.cols / row, row}, rowwise::DequantizeKernel<kind(), T>{
                                             address<T>(out), address<const std::uint8_t>(records),
                                             static_cast<int>(form.unit)});
    });
  });
}

void DequantizeRows::run(auto launch, const Checker& check) const {
  check.values("out", out);
  check.ids("ids", ids, out.rows);
  AXONN_CHECK(out.cols % form.unit == 0, "dequantize_rows: rows of ", out.cols,
              " values, want a multiple of ", form.unit);
  const std::int64_t bytes = form.bytes(out.cols), rows = bytes > 0 ? records.cols / bytes : 0;
  check.typed("records", records, DType::u8, 1, rows * bytes);
  with_quantization(form.kind, [&](auto kind) {
    with_type(out.dtype, [&]<typename T>(T) {
      launch.rows({out.rows, out.cols}, rowwise::DequantizeRowsKernel<kind(), T>{
                                            .out = out,
                                            .ids = address<const std::int32_t>(ids),
                                            .records = address<const std::uint8_t>(records),
                                            .unit = static_cast<int>(form.unit),
                                            .first = first,
                                            .V = rows,
                                            .row_bytes = bytes,
                                            .C = width(out),
                                        });
    });
  });
}

}  // namespace axonn::ops
