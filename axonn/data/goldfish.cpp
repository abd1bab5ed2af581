#include "axonn/data/goldfish.h"

#include <limits>

#include "axonn/base/check.h"
#include "axonn/base/random.h"

namespace axonn {

namespace {

/// The base of a polynomial hash of h tokens, modulo 2^64. Odd, so that no power of it is 0.
constexpr std::uint64_t kBase = 0x9fb21c651e98df25ULL;

std::uint64_t value_of(std::int32_t token) {
  return mix_bits(static_cast<std::uint64_t>(token) + 0x9e3779b97f4a7c15ULL);
}

}  // namespace

SequenceMask goldfish_mask(const GoldfishConfig& config, std::uint64_t seed,
                           std::int32_t end_of_text) {
  AXONN_CHECK(config.k >= 2 && config.h >= 1, "goldfish: k is ", config.k, " and h ", config.h,
              "; they must be at least 2 and 1");
  std::uint64_t leaving = 1;  // kBase^h: the factor of the token that leaves the window
  for (std::int64_t i = 0; i < config.h; ++i) leaving *= kBase;
  const auto k = static_cast<std::uint64_t>(config.k);
  return [=, lots = Random(seed, "goldfish")](std::int64_t n, Sequence& sequence) {
    const auto& [ids, targets, positions, starts] = sequence;
    const auto length = std::ssize(ids);
    std::uint64_t hash = 0;   // of the last h tokens of the document
    std::int64_t before = 0;  // tokens of the document so far
    for (std::int64_t row = 0; row < length; ++row) {
      const bool begins =
          row == 0 || (!starts.empty() && starts[row] == row) || ids[row - 1] == end_of_text;
      if (begins) hash = before = 0;
      hash = hash * kBase + value_of(ids[row]);
      if (before >= config.h) hash -= leaving * value_of(ids[row - config.h]);
      ++before;
      if (before < config.h || ids[row] == end_of_text) continue;
      bool hidden = false;
      switch (config.mask) {
        case GoldfishMask::hash:
          hidden = mix_bits(hash) < std::numeric_limits<std::uint64_t>::max() / k;
          break;
        case GoldfishMask::position:
          hidden = before % config.k == 0;
          break;
        case GoldfishMask::seeded:
          hidden = lots.below(static_cast<std::uint64_t>(n * length + row), k) == 0;
          break;
      }
      if (hidden) sequence.targets[row] = -1;
    }
  };
}

}  // namespace axonn
