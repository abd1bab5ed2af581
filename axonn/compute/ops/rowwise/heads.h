#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/quantization.h"

namespace axonn::rowwise {

/// Rotates the pairs (x[i], x[i + D/2]) of every head's first D columns by the angles of the row's
/// position, and copies its other columns:
///
///   out[i] = x[i] · cos - x[i + D/2] · sin        out[i + D/2] = x[i + D/2] · cos + x[i] · sin
///
/// and by the opposite angles if `sign` is -1, as a gradient needs. With `neighbours` the pairs are
/// (x[2i], x[2i + 1]). Bound by memory: 2 · R · h · width · sizeof(T) bytes; all heads of a row
/// share its angles. Source: Su et al., "RoFormer", 2021, which pairs neighbours; Hugging Face
/// pairs the halves of a head.
template <typename T, bool neighbours>
struct RotaryKernel {
  Matrix<T> out;              // (R, h · width), may be inp
  Matrix<const T> inp;        // (R, h · width)
  Matrix<const float> table;  // (T, D): each row cosines, then sines
  std::int64_t count;         // T
  int D, width;               // of a head; D or more
  float sign;
  const std::int32_t* positions;  // (R), or null: row % T

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row, HeadSpan heads) const {
    const int half = D / 2;
    const float* cosine = table.row(positions ? positions[row] : row_remainder(row, count));
    for (int h = heads.begin; h < heads.end; ++h) {
      const T* x = inp.row(row) + h * width;
      T* y = out.row(row) + h * width;
      if (width > D && x != y)
        team.map(
            y + D, width - D, [](float v) { return v; }, x + D);
      const auto turn = [s = sign](auto a, auto b, auto cos, auto sin) {
        return pair(a * cos - b * (s * sin), b * cos + a * (s * sin));
      };
      if constexpr (neighbours)
        team.map_neighbours(y, half, turn, x, cosine, cosine + half);
      else
        team.map_pair(y, y + half, half, turn, x, x + half, cosine, cosine + half);
    }
  }
};

/// Copies each head of a token, D columns, to its entry in the token's slot.
/// Bound by memory: 2 · R · k · D · sizeof(T) bytes.
template <typename T>
struct KeepHeadsKernel {
  Matrix<T> kept;                 // (slots · k · entries, D)
  Matrix<const T> inp;            // (R, k · D)
  const std::int32_t* slots;      // (R), negative: the row is skipped
  const std::int32_t* positions;  // (R)
  std::int64_t entries, of_row;
  int D;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row, HeadSpan heads) const {
    if (slots[row] < 0) return;
    for (int h = heads.begin; h < heads.end; ++h) {
      const std::int64_t first = (slots[row] * of_row + h) * entries;
      team.map(
          kept.row(first + row_remainder(positions[row], entries)), D, [](float x) { return x; },
          inp.row(row) + h * D);
    }
  }
};

/// The launch of kernels that make codes of heads: a thread makes a record.
inline HeadWork codes_work(std::int64_t rows, std::int64_t heads, std::int64_t D) {
  constexpr int kElements = 8;  // of a thread in other kernels
  return {rows, heads, D, HeadCodes::records(D) * kElements};
}

/// The same as codes. Bound by memory: R · k · D · (sizeof(T) + 17/16) bytes.
template <typename T>
struct KeepCodesKernel {
  Matrix<std::uint8_t> kept;      // (slots · k · entries, HeadCodes::bytes(D))
  Matrix<const T> inp;            // (R, k · D)
  const std::int32_t* slots;      // (R), negative: the row is skipped
  const std::int32_t* positions;  // (R)
  std::int64_t entries, of_row, D;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row, HeadSpan heads) const {
    if (slots[row] < 0) return;
    const std::int64_t at = row_remainder(positions[row], entries);
    for (int h = heads.begin; h < heads.end; ++h) {
      const std::int64_t entry = (slots[row] * of_row + h) * entries + at;
      team.each(static_cast<int>(HeadCodes::records(D)), [=, this](int record) {
        HeadCodes::put_record(inp.row(row) + h * D + record * HeadCodes::kRecord,
                              HeadCodes::count(D, record),
                              kept.row(entry) + record * HeadCodes::kRecordBytes);
      });
    }
  }
};

/// See ops::RoundHeads. Bound by memory: 2 · R · k · D · sizeof(T) bytes.
template <typename T>
struct RoundHeadsKernel {
  Matrix<T> out;        // (R, k · D), may be inp
  Matrix<const T> inp;  // (R, k · D)
  std::int64_t D;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row, HeadSpan heads) const {
    for (int h = heads.begin; h < heads.end; ++h)
      team.each(static_cast<int>(HeadCodes::records(D)), [=, this](int record) {
        const std::int64_t first = h * D + record * HeadCodes::kRecord;
        HeadCodes::round(inp.row(row) + first, HeadCodes::count(D, record), out.row(row) + first);
      });
  }
};

/// See ops::ChunkStarts. One team for kChunkRows rows.
constexpr std::int64_t kChunkRows = 256;
struct ChunkStartsKernel {
  std::int32_t* out;
  const std::int32_t *positions, *starts, *blocks;  // or null
  std::int64_t rows, chunk, length;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t block) const {
    const std::int64_t first = block * kChunkRows, left = rows - first;
    team.each(static_cast<int>(left < kChunkRows ? left : kChunkRows), [=, this](int i) {
      const std::int64_t row = first + i,
                         at = blocks ? blocks[row / kSequenceBlock] * kSequenceBlock +
                                           row % kSequenceBlock
                                     : row_remainder(row, length),
                         position = positions ? positions[row] : at,
                         begin = at - row_remainder(position, chunk),
                         start = starts ? starts[row] : 0;
      out[row] = static_cast<std::int32_t>(begin > start ? begin : start);
    });
  }
};

/// delta[row][head] = the sum of d_out · out over the head's columns, as the gradient of attention
/// needs it. Bound by memory: 2 · R · h · D · sizeof(T) bytes.
template <typename T>
struct HeadDots {
  Matrix<float> delta;         // (R, h)
  Matrix<const T> d_out, out;  // (R, h · D)
  int D;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row, HeadSpan heads) const {
    for (int h = heads.begin; h < heads.end; ++h) {
      const float sum = team.sum(
          D, [](auto a, auto b) { return a * b; }, d_out.row(row) + h * D, out.row(row) + h * D);
      team.once([&] { delta.row(row)[h] = sum; });
    }
  }
};

/// The columns of heads, see ops::CopyHeads. Bound by memory: 2 · R · heads · width · sizeof(T)
/// bytes.
template <typename T>
struct CopyHeadsKernel {
  Matrix<T> out;
  Matrix<const T> inp;
  std::int64_t out_step, inp_step;
  int width;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row, HeadSpan heads) const {
    for (int h = heads.begin; h < heads.end; ++h)
      team.map(
          out.row(row) + h * out_step, width, [](float x) { return x; },
          inp.row(row) + h * inp_step);
  }
};

/// The sum of the columns of heads, likewise.
template <typename T>
struct SumHeadsKernel {
  Matrix<T> out;
  Matrix<const T> inp;
  std::int64_t heads, inp_step;
  int width;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    team.each(width, [=, this](int i) {
      const T* column = inp.row(row) + i;
      float sum = get(*column);
      for (std::int64_t h = 1; h < heads; ++h) sum += get(column[h * inp_step]);
      put(out.row(row)[i], sum);
    });
  }
};

/// out = out · e^(stats - total), total = log(e^stats + e^sink). Bound by memory: 2 · R · h · D ·
/// sizeof(T) bytes.
template <typename T, typename W>
struct AddSinksKernel {
  Matrix<T> out;              // (R, h · D)
  Matrix<float> total;        // (R, h)
  Matrix<const float> stats;  // (R, h)
  const W* sinks;
  int D;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row, HeadSpan heads) const {
    for (int h = heads.begin; h < heads.end; ++h) {
      const float keys = stats.row(row)[h], sink = get(sinks[h]), most = greatest(keys, sink);
      const float sum = most + std::log(exponential(keys - most) + exponential(sink - most));
      T* head = out.row(row) + h * D;
      team.map(
          head, D, [share = exponential(keys - sum)](auto x) { return x * share; }, head);
      team.once([&] { total.row(row)[h] = sum; });
    }
  }
};

/// terms[row][head] = -e^(sink - total) · the sum of d_out · out over the head's columns. Bound by
/// memory: 2 · R · h · D · sizeof(T) bytes.
template <typename T, typename W>
struct SinkTermsKernel {
  Matrix<float> terms;         // (R, h)
  Matrix<const T> d_out, out;  // (R, h · D)
  Matrix<const float> total;   // (R, h)
  const W* sinks;
  int D;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row, HeadSpan heads) const {
    for (int h = heads.begin; h < heads.end; ++h) {
      const float sum = team.sum(
          D, [](auto a, auto b) { return a * b; }, d_out.row(row) + h * D, out.row(row) + h * D);
      const float share = exponential(get(sinks[h]) - total.row(row)[h]);
      team.once([&] { terms.row(row)[h] = -share * sum; });
    }
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void RotaryEmbedding::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("out", out, inp);
  check.f32("table", table, table.rows, table.cols);
  AXONN_CHECK(table.rows > 0 && (positions.data || inp.rows % table.rows == 0),
              "rotary_embedding: inp is ", inp, ", want whole sequences of ", table.rows,
              " positions (table is ", table, ")");
  if (positions.data) check.ids("positions", positions, inp.rows);
  const std::int64_t head = head_dim > 0 ? head_dim : table.cols;
  AXONN_CHECK(table.cols > 0 && table.cols % 2 == 0 && table.cols <= head && inp.cols % head == 0,
              "rotary_embedding: inp is ", inp, ", want whole heads of the width of table ", table,
              ", which must be even, or of head_dim = ", head_dim, ", at least as wide");
  const int D = width(table);
  with_type(inp.dtype, [&]<typename T>(T) {
    const auto launch_with = [&]<bool pairs_neighbours>(std::bool_constant<pairs_neighbours>) {
      launch.heads({inp.rows, width(inp) / head, head, D / 2},
                   rowwise::RotaryKernel<T, pairs_neighbours>{
                       out, inp, table, table.rows, D, static_cast<int>(head),
                       inverse ? -1.0f : 1.0f, address<const std::int32_t>(positions)});
    };
    neighbours ? launch_with(std::true_type{}) : launch_with(std::false_type{});
  });
}

void KeepHeads::run(auto launch, const Checker& check) const {
  const std::int64_t D = head_dim > 0 ? head_dim : kept.cols;
  const bool codes = head_dim > 0 && kept.dtype == DType::u8;
  check.values("inp", inp);
  check.type("kept", kept, {codes ? DType::u8 : inp.dtype});
  AXONN_CHECK(kept.cols == (codes ? HeadCodes::bytes(D) : D), "keep_heads: kept is ", kept,
              ", want the ", codes ? HeadCodes::bytes(D) : D, " columns of heads of ", D);
  AXONN_CHECK(entries > 0 && D > 0 && inp.cols % D == 0 &&
                  kept.rows % std::max<std::int64_t>(1, inp.cols / D * entries) == 0,
              "keep_heads: inp ", inp, ", kept ", kept,
              ", want whole heads in inp, and whole slots of ", entries,
              " entries for each of them in kept");
  check.ids("slots", slots, inp.rows);
  check.ids("positions", positions, inp.rows);
  const auto* const of = address<const std::int32_t>(slots);
  const auto* const at = address<const std::int32_t>(positions);
  const std::int64_t heads = inp.cols / D;
  with_type(inp.dtype, [&]<typename T>(T) {
    if (codes)
      launch.heads(rowwise::codes_work(inp.rows, heads, D),
                   rowwise::KeepCodesKernel<T>{kept, inp, of, at, entries, heads, D});
    else
      launch.heads({inp.rows, heads, D},
                   rowwise::KeepHeadsKernel<T>{kept, inp, of, at, entries, heads, width(kept)});
  });
}

void RoundHeads::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("out", out, inp);
  AXONN_CHECK(head_dim > 0 && inp.cols % head_dim == 0, "round_heads: inp is ", inp,
              ", want whole heads of ", head_dim, " columns");
  const std::int64_t heads = inp.cols / head_dim;
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.heads(rowwise::codes_work(inp.rows, heads, head_dim),
                 rowwise::RoundHeadsKernel<T>{out, inp, head_dim});
  });
}

void ChunkStarts::run(auto launch, const Checker& check) const {
  check.ids("out", out, out.cols);
  if (positions.data) check.ids("positions", positions, out.cols);
  if (starts.data) check.ids("starts", starts, out.cols);
  if (blocks.data) check.ids("blocks", blocks, out.cols / kSequenceBlock);
  AXONN_CHECK(chunk > 0 && length > 0, "chunk_starts: chunks of ", chunk,
              " positions, sequences of ", length, ", want more than 0");
  const auto of = [](const View& view) {
    return view.data ? address<const std::int32_t>(view) : nullptr;
  };
  const std::int64_t each = rowwise::kChunkRows;
  launch.rows({(out.cols + each - 1) / each, each, each},
              rowwise::ChunkStartsKernel{address<std::int32_t>(out), of(positions), of(starts),
                                         of(blocks), out.cols, chunk, length});
}

void CopyHeads::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.type("out", out, {inp.dtype});
  const auto reach = [this](std::int64_t step) { return (heads - 1) * step + width; };
  AXONN_CHECK(heads > 0 && width > 0 && out.rows == inp.rows && reach(out_step) <= out.cols &&
                  reach(inp_step) <= inp.cols && (out_step == 0 || out_step >= width) &&
                  (inp_step == 0 || inp_step >= width),
              "copy_heads: ", heads, " heads of ", width, " columns, ", inp_step, " and ", out_step,
              " apart, do not lie in inp ", inp, " and out ", out);
  const int each = static_cast<int>(width);
  with_type(inp.dtype, [&]<typename T>(T) {
    if (out_step == 0)
      launch.rows({inp.rows, heads * width, width},
                  rowwise::SumHeadsKernel<T>{out, inp, heads, inp_step, each});
    else
      launch.heads({inp.rows, heads, width},
                   rowwise::CopyHeadsKernel<T>{out, inp, out_step, inp_step, each});
  });
}

/// Checks operands of AddSinks and SinkTerms; returns the number of heads.
inline std::int64_t check_sinks(const Checker& check, const View& out, const View& total,
                                const View& sinks) {
  check.values("out", out);
  const std::int64_t heads = sinks.cols;
  AXONN_CHECK(sinks.rows == 1 && heads > 0 && out.cols % heads == 0, check.operation, ": sinks ",
              sinks, ", out ", out, ", want a number for each of out's heads");
  check.values("sinks", sinks);
  check.f32("total", total, out.rows, heads);
  return heads;
}

void AddSinks::run(auto launch, const Checker& check) const {
  const std::int64_t heads = check_sinks(check, out, total, sinks);
  check.f32("stats", stats, out.rows, heads);
  const int D = static_cast<int>(out.cols / heads);
  with_types(out.dtype, sinks.dtype, [&]<typename T, typename W>(T, W) {
    launch.heads({out.rows, heads, D},
                 rowwise::AddSinksKernel<T, W>{out, total, stats, address<const W>(sinks), D});
  });
}

void SinkTerms::run(auto launch, const Checker& check) const {
  const std::int64_t heads = check_sinks(check, out, total, sinks);
  check.like("d_out", d_out, out);
  check.f32("terms", terms, out.rows, heads);
  const int D = static_cast<int>(out.cols / heads);
  with_types(out.dtype, sinks.dtype, [&]<typename T, typename W>(T, W) {
    launch.heads({out.rows, heads, D}, rowwise::SinkTermsKernel<T, W>{terms, d_out, out, total,
                                                                      address<const W>(sinks), D});
  });
}

}  // namespace axonn::ops
