#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace axonn {

/// Counter-based random numbers. A value is a pure function of (seed, name, index), so any rank can
/// compute any element of a tensor alone, in any order.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox4x32-10).
class Random {
 public:
  /// The stream for a seed and a name, such as a parameter's name.
  Random(std::uint64_t seed, std::string_view name);

  /// 128 random bits for this index.
  std::array<std::uint32_t, 4> bits(std::uint64_t index) const;

  /// Uniform in [0, 1), 53 bits.
  double uniform(std::uint64_t index) const;

  /// Uniform integer in [0, bound); bound > 0. The bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;

  /// Normal with mean 0 and standard deviation 1 (Box and Muller, computed in double).
  double normal(std::uint64_t index) const;

 private:
  std::uint64_t key_;
  std::uint64_t stream_;
};

/// The finalizer of SplitMix64: a bijection that mixes all bits. Source: Steele et al., "Fast
/// splittable pseudorandom number generators", OOPSLA 2014.
std::uint64_t mix_bits(std::uint64_t x);

/// A 64-bit hash of the text that is the same on every machine (FNV-1a, then mixed).
std::uint64_t hash_text(std::string_view text);

/// Element `index` of a permutation of [0, count) that the key determines. Needs no memory: a
/// Feistel network on the next power of four is applied until the value is below count (cycle
/// walking).
std::uint64_t permute(std::uint64_t index, std::uint64_t count, std::uint64_t key);

}  // namespace axonn
