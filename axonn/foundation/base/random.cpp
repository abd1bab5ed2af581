#include "axonn/foundation/base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace axonn {

std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ULL;
  return mix_bits(hash);
}

Random::Random(std::uint64_t seed, std::string_view name)
    : key_(mix_bits(seed + 0x9e3779b97f4a7c15ULL)), stream_(hash_text(name)) {}

std::array<std::uint32_t, 4> Random::bits(std::uint64_t index) const {
  constexpr std::uint32_t kM0 = 0xd2511f53, kM1 = 0xcd9e8d57, kW0 = 0x9e3779b9, kW1 = 0xbb67ae85;
  std::uint32_t c0 = static_cast<std::uint32_t>(index),
                c1 = static_cast<std::uint32_t>(index >> 32),
                c2 = static_cast<std::uint32_t>(stream_),
                c3 = static_cast<std::uint32_t>(stream_ >> 32),
                k0 = static_cast<std::uint32_t>(key_), k1 = static_cast<std::uint32_t>(key_ >> 32);
  for (int round = 0; round < 10; ++round, k0 += kW0, k1 += kW1) {
    const std::uint64_t p0 = std::uint64_t{kM0} * c0, p1 = std::uint64_t{kM1} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
  }
  return {c0, c1, c2, c3};
}

double Random::uniform(std::uint64_t index) const {
  const auto b = bits(index);
  return static_cast<double>(((std::uint64_t{b[0]} << 32) | b[1]) >> 11) * 0x1p-53;
}

std::uint64_t Random::below(std::uint64_t index, std::uint64_t bound) const {
  const auto b = bits(index);
  const std::uint64_t value = (std::uint64_t{b[0]} << 32) | b[1];
  return static_cast<std::uint64_t>((static_cast<__uint128_t>(value) * bound) >> 64);
}

double Random::normal(std::uint64_t index) const {
  const auto b = bits(index);
  const double u = (static_cast<double>(((std::uint64_t{b[0]} << 32) | b[1]) >> 11) + 1) * 0x1p-53,
               v = static_cast<double>(((std::uint64_t{b[2]} << 32) | b[3]) >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

std::uint64_t permute(std::uint64_t index, std::uint64_t count, std::uint64_t key) {
  const int half = (std::max<int>(1, std::bit_width(count - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half, right = index & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t next = left ^ (mix_bits(right ^ mix_bits(key + round)) & mask);
      left = right;
      right = next;
    }
    index = (left << half) | right;
  } while (index >= count);
  return index;
}

}  // namespace axonn
