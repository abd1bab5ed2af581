#include "axonn/compute/ops/mend_bit.h"

#include <bit>

namespace axonn {

bool mend_bit(std::span<std::byte> run, std::int64_t now, std::int64_t before) {
  if (now == before) return false;
  // Bit k of word j, from 0 to 1, adds 2^k · word_factor(j), whose lowest bit is bit k.
  const auto change = static_cast<std::int64_t>(static_cast<std::uint64_t>(now) -
                                                static_cast<std::uint64_t>(before));
  const bool set = change > 0;
  const std::uint64_t size = set ? static_cast<std::uint64_t>(change)
                                 : std::uint64_t{0} - static_cast<std::uint64_t>(change);
  const int k = std::countr_zero(size);
  const std::size_t whole = run.size() / 4, words = whole + run.size() % 4;
  for (std::size_t j = 0; j < words; ++j) {
    if (word_factor(static_cast<std::uint32_t>(j)) != size >> k) continue;
    // The last bytes are words of their own.
    const int bits = j < whole ? 32 : 8;
    if (k >= bits) return false;
    std::byte& byte = run[j < whole ? 4 * j + k / 8 : 3 * whole + j];
    const std::byte mask{static_cast<std::uint8_t>(1 << k % 8)};
    if (((byte & mask) != std::byte{}) != set) return false;
    byte ^= mask;
    return true;
  }
  return false;
}

}  // namespace axonn
