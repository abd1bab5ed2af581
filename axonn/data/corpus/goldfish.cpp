#include "axonn/data/corpus/goldfish.h"

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

namespace {

/// The base of a polynomial hash of h tokens, modulo 2^64. Odd, so that no power of it is 0.
constexpr std::uint64_t kBase = 0x9fb21c651e98df25ULL;

std::uint64_t value_of(std::int32_t token) {
  return mix_bits(static_cast<std::uint64_t>(token) + 0x9e3779b97f4a7c15ULL);
}

/// Numbers in [0, 1) by key, multiples of 2^-24.
std::vector<float> apertus_table() {
  constexpr std::uint32_t kSeed = 2971215073u;  // a prime of Fibonacci's, as they chose it
  std::mt19937 engine(kSeed);
  std::vector<float> table(kApertusKeys);
  for (float& value : table) value = static_cast<float>(engine() & 0xffffff) * 0x1p-24f;
  return table;
}

/// The targets of a sequence; where one does not count, the next row's token stands for it.
std::vector<std::int32_t> all_targets(const Sequence& sequence) {
  std::vector<std::int32_t> all = sequence.targets;
  for (std::size_t row = 0; row + 1 < all.size(); ++row)
    if (all[row] < 0) all[row] = sequence.ids[row + 1];
  return all;
}

/// Masks target i of a sequence, from h - 1 on, by the product of targets i - h + 1 to i.
SequenceMask apertus_mask(const GoldfishConfig& config) {
  static const std::vector<float> kTable = apertus_table();
  return
      [h = config.h, limit = 1 / static_cast<float>(config.k)](std::int64_t, Sequence& sequence) {
        const std::vector<std::int32_t> all = all_targets(sequence);
        for (std::int64_t i = h - 1; i < std::ssize(all); ++i)
          if (sequence.targets[i] >= 0 &&
              kTable[apertus_key(std::span(all).subspan(i + 1 - h, h))] < limit)
            sequence.targets[i] = -1;
      };
}

}  // namespace

std::int64_t apertus_key(std::span<const std::int32_t> tokens) {
  std::uint64_t product = 1;  // modulo 2^64
  for (const std::int32_t token : tokens)
    product *= static_cast<std::uint64_t>(std::int64_t{token});
  const std::int64_t rest = static_cast<std::int64_t>(product) % kApertusKeys;
  return rest < 0 ? rest + kApertusKeys : rest;
}

SequenceMask goldfish_mask(const GoldfishConfig& config, std::uint64_t seed,
                           std::int32_t end_of_text) {
  AXONN_CHECK(config.k >= 2 && config.h >= 1, "goldfish: k is ", config.k, " and h ", config.h,
              "; they must be at least 2 and 1");
  if (config.mask == GoldfishMask::apertus) return apertus_mask(config);
  std::uint64_t leaving = 1;  // kBase^h: the factor of the token that leaves the window
  for (std::int64_t i = 0; i < config.h; ++i) leaving *= kBase;
  const auto k = static_cast<std::uint64_t>(config.k);
  return [=, lots = Random(seed, "goldfish")](std::int64_t n, Sequence& sequence) {
    const auto& [ids, targets, positions, starts, branches] = sequence;
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
        case GoldfishMask::apertus:
          break;  // above
      }
      if (hidden && targets[row] >= 0) sequence.targets[row] = -1;
    }
  };
}

}  // namespace axonn
