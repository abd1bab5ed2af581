#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "axonn/compute/tensor/dtype.h"

namespace axonn {

/// Codes of 8 bits for values between -1 and 1, or from 0 to 1, whose steps grow with the values: a
/// value is that of its code times the largest size in its block of kBlock values.
///
///   signed     -10^(i - 6) · (0.1 + 0.9 (2 j + 1) / 2^(i + 1)) for i = 0 ... 6 and j < 2^i, the
///              same positive, 0 and 1
///   unsigned   10^(i - 6) · (0.1 + 0.9 (2 j + 1) / 2^(i + 2)) for j < 2^(i + 1), 0 and 1
///
/// in ascending order. These are the values of bitsandbytes 0.50, whose bits differ by at most two
/// units in the last place. Source: Dettmers et al., "8-bit Optimizers via Block-wise
/// Quantization", 2022, arXiv:2110.02861.
class DynamicMap {
 public:
  static constexpr std::int64_t kBlock = 256;  ///< values with one absmax
  static constexpr std::int64_t kTable = 512;

  static const DynamicMap& of_signed();
  static const DynamicMap& of_unsigned();

  /// What kernels read: the values of the 256 codes, then the 255 middles between neighbours, then
  /// infinity.
  std::span<const float, kTable> table() const { return table_; }
  float value(std::uint8_t code) const { return table_[code]; }

  /// Makes the codes of a block of at most kBlock values, the nearest of values / absmax; a tie
  /// takes the lower one. absmax is at least the largest size of a value.
  void encode(std::span<const float> values, float absmax, std::span<std::uint8_t> codes) const;

 private:
  explicit DynamicMap(bool is_signed);

  bool is_signed_;
  std::array<float, kTable> table_;
};

/// The code of x within a block, given the middles of a map. Without a sign, only 0 has the code of
/// 0: a second moment that became 0 before the first moment does would divide by almost nothing.
AXONN_DEVICE inline unsigned dynamic_code(const float* middles, float x, float absmax,
                                          bool is_signed) {
  const float share = absmax > 0 ? x / absmax : 0.0f;
  unsigned code = 0;
  // Without a branch, whose direction no processor could predict.
  for (unsigned bit = 8; bit-- > 0;)
    code += static_cast<unsigned>(middles[code + (1u << bit) - 1] < share) << bit;
  return code + static_cast<unsigned>(!is_signed & (code == 0) & (x > 0));
}

}  // namespace axonn
