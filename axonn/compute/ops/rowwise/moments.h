#pragma once

#include <bit>
#include <cstdint>

#include "axonn/compute/ops/rowwise/elementwise.h"
#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/dynamic_map.h"

namespace axonn::rowwise {

/// Blocks of codes of 8 bits: of n values, and their table.
struct DynamicCodes {
  std::uint8_t* codes;  // (n)
  float* absmax;        // (blocks)
  const float* table;   // (DynamicMap::kTable)
  std::int64_t n;

  static constexpr std::int64_t kBlock = DynamicMap::kBlock;

  AXONN_DEVICE int count(std::int64_t block) const {
    const std::int64_t rest = n - block * kBlock;
    return static_cast<int>(rest < kBlock ? rest : kBlock);
  }
};

/// The codes of a block. One team per block. Bound by the look-ups, eight for each value.
struct EncodeDynamicKernel {
  DynamicCodes to;
  const float* inp;  // (n)
  bool is_signed;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t block) const {
    const int count = to.count(block);
    const float* const x = inp + block * DynamicCodes::kBlock;
    const float most = team.largest_size(count, x);
    std::uint8_t* const codes = to.codes + block * DynamicCodes::kBlock;
    const float* const middles = to.table + DynamicMap::kTable / 2;
    team.each(count, [=, with_sign = is_signed](int i) {
      codes[i] = static_cast<std::uint8_t>(dynamic_code(middles, x[i], most, with_sign));
    });
    team.once([absmax = to.absmax + block, most] { *absmax = most; });
  }
};

/// The values of a block. One team per block. Bound by memory: 5 bytes a value.
struct DecodeDynamicKernel {
  float* out;  // (n)
  DynamicCodes from;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t block) const {
    float* const y = out + block * DynamicCodes::kBlock;
    const std::uint8_t* const codes = from.codes + block * DynamicCodes::kBlock;
    const float most = from.absmax[block];
    team.each(from.count(block),
              [=, values = from.table](int i) { y[i] = values[codes[i]] * most; });
  }
};

/// out = inp, rounded to one of the two nearest bf16 at random, so that the mean over many keys is
/// inp. The choice depends on the key and on the element's index alone. One team per tile.
///
/// Bound by memory: 6 bytes a value. Source: Gupta et al., "Deep Learning with Limited Numerical
/// Precision", 2015, arXiv:1502.02551.
struct RoundAtRandomKernel {
  Matrix<bf16> out;         // (R, C)
  Matrix<const float> inp;  // (R, C)
  std::uint64_t key, first_row;
  std::uint32_t first_col;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const std::uint64_t row = mixed(key ^ mixed(first_row + tile.row));
    const std::uint32_t col = first_col + static_cast<std::uint32_t>(tile.begin);
    team.map_indexed(
        out.at(tile), tile.count,
        [row, col](int i, float x) {
          const std::uint32_t bits = std::bit_cast<std::uint32_t>(x),
                              up = bits + (uniform_24(row, col + i) >> 8);
          return (bits << 1) >= 0xff000000u ? x : std::bit_cast<float>(up & 0xffff0000u);
        },
        inp.at(tile));
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Checks blocks of codes of (1, n) values.
inline rowwise::DynamicCodes dynamic_codes(const Checker& check, const View& values,
                                           const DynamicBlocks& blocks) {
  const std::int64_t n = values.cols, count = (n + DynamicMap::kBlock - 1) / DynamicMap::kBlock;
  check.f32("values", values, 1, n);
  check.typed("codes", blocks.codes, DType::u8, 1, n);
  check.f32("absmax", blocks.absmax, 1, count);
  check.f32("table", blocks.table, 1, DynamicMap::kTable);
  return {address<std::uint8_t>(blocks.codes), address<float>(blocks.absmax),
          address<const float>(blocks.table), n};
}

void EncodeDynamic::run(auto launch, const Checker& check) const {
  const rowwise::DynamicCodes to = dynamic_codes(check, inp, blocks);
  launch.rows({blocks.absmax.cols, DynamicMap::kBlock},
              rowwise::EncodeDynamicKernel{to, address<const float>(inp), is_signed});
}

void DecodeDynamic::run(auto launch, const Checker& check) const {
  const rowwise::DynamicCodes from = dynamic_codes(check, out, blocks);
  launch.rows({blocks.absmax.cols, DynamicMap::kBlock},
              rowwise::DecodeDynamicKernel{address<float>(out), from});
}

void RoundAtRandom::run(auto launch, const Checker& check) const {
  check.typed("out", out, DType::bf16, out.rows, out.cols);
  check.f32("inp", inp, out.rows, out.cols);
  launch.tiles(out.rows, out.cols,
               rowwise::RoundAtRandomKernel{out, inp, key, static_cast<std::uint64_t>(first_row),
                                            static_cast<std::uint32_t>(first_col)});
}

}  // namespace axonn::ops
