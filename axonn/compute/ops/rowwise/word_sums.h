#pragma once

#include <cstdint>

#include "axonn/compute/ops/mend_bit.h"
#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

/// One team per run of bytes: sum of word j · word_factor(j). Two flips cannot cancel: 2^k times
/// the odd factor of word i is a different number for each bit k of each word i. Bytes beyond the
/// last whole word are words.
///
/// Bound by memory: each byte is read once.
struct WordSumsKernel {
  std::int64_t* out;           // (C)
  const std::byte* bytes;      // from bounds[0] on
  const std::int64_t* bounds;  // (C + 1)

  AXONN_DEVICE void operator()(const auto& team, std::int64_t run) const {
    const std::int64_t count = bounds[run + 1] - bounds[run];
    const std::byte* const first = bytes + (bounds[run] - bounds[0]);
    const auto* const words = reinterpret_cast<const std::uint32_t*>(first);
    const int whole = static_cast<int>(count / 4), rest = static_cast<int>(count % 4);
    std::uint64_t total = team.sum_of(whole, [=](int j) {
      return std::uint64_t{words[j]} * word_factor(static_cast<std::uint32_t>(j));
    });
    if (rest > 0)
      total += team.sum_of(rest, [=](int j) {
        const auto byte = static_cast<std::uint64_t>(first[std::int64_t{4} * whole + j]);
        return byte * word_factor(static_cast<std::uint32_t>(whole + j));
      });
    team.once([&] { out[run] = static_cast<std::int64_t>(total); });
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void WordSums::run(auto launch, const Checker& check) const {
  check.typed("out", out, DType::i64, 1, out.cols);
  check.typed("bounds", bounds, DType::i64, 1, out.cols + 1);
  check.shape("inp", inp, 1, inp.cols);
  if (out.cols == 0) return;
  const std::int64_t words = (inp.cols * bytes_of(inp.dtype) + 3) / 4;
  launch.rows({.rows = out.cols, .cols = (words + out.cols - 1) / out.cols},
              rowwise::WordSumsKernel{address<std::int64_t>(out), address<const std::byte>(inp),
                                      address<const std::int64_t>(bounds)});
}

}  // namespace axonn::ops
