#include "axonn/data/repeated.h"

namespace axonn {

std::int64_t shuffled(const Random& orders, std::int64_t n, std::int64_t count) {
  const auto bits = orders.bits(static_cast<std::uint64_t>(n / count));
  const std::uint64_t key = std::uint64_t{bits[0]} << 32 | bits[1];
  return static_cast<std::int64_t>(
      permute(static_cast<std::uint64_t>(n % count), static_cast<std::uint64_t>(count), key));
}

}  // namespace axonn
