#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "axonn/compute/tensor/dtype.h"

namespace axonn {

/// The odd factor of word j in the sums of ops::WordSums, different for each j below 2^31. It is no
/// linear function of j, so the sum of two factors is hardly ever a third one times a power of two.
AXONN_DEVICE inline std::uint32_t word_factor(std::uint32_t j) {
  const std::uint32_t mixed = j * 0x3C6EF362U;
  return (mixed ^ (mixed >> 15)) | 1;
}

/// Sets a flipped bit of a run of bytes right, if the run has the sum `now` (ops::WordSums) and had
/// `before`, and one bit makes the difference. Returns whether one does. Of two or more flipped
/// bits, which this cannot set right, one in 10^5 pairs looks like another single one, and of the
/// same bit of two words one in 10^4.
bool mend_bit(std::span<std::byte> run, std::int64_t now, std::int64_t before);

}  // namespace axonn
