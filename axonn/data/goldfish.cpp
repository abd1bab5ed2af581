#include "axonn/data/goldfish.h"

#include <limits>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// The base of a polynomial hash of h tokens, modulo 2^64. Odd, so that no power of it is 0.
constexpr std::uint64_t kBase = 0x9fb21c651e98df25ULL;

std::uint64_t value_of(std::int32_t token) {
  return mix_bits(static_cast<std::uint64_t>(token) + 0x9e3779b97f4a7c15ULL);
}

}  // namespace

Goldfish::Goldfish(const GoldfishConfig& config, std::uint64_t seed, std::int32_t end_of_text)
    : config_(config), lots_(seed, "goldfish"), end_of_text_(end_of_text), leaving_(1) {
  AXONN_CHECK(config.k >= 2 && config.h >= 1, "goldfish: k is ", config.k, " and h ", config.h,
              "; they must be at least 2 and 1");
  for (std::int64_t i = 0; i < config.h; ++i) leaving_ *= kBase;
}

void Goldfish::mask(std::int64_t n, Sequence& sequence) const {
  const auto& [ids, targets, positions, starts] = sequence;
  const auto length = std::ssize(ids);
  const std::uint64_t below =
      std::numeric_limits<std::uint64_t>::max() / static_cast<std::uint64_t>(config_.k);
  std::uint64_t hash = 0;   // of the last h tokens of the document
  std::int64_t before = 0;  // tokens of the document so far
  for (std::int64_t row = 0; row < length; ++row) {
    const bool begins =
        row == 0 || (!starts.empty() && starts[row] == row) || ids[row - 1] == end_of_text_;
    if (begins) hash = before = 0;
    hash = hash * kBase + value_of(ids[row]);
    if (before >= config_.h) hash -= leaving_ * value_of(ids[row - config_.h]);
    ++before;
    if (before < config_.h || ids[row] == end_of_text_) continue;
    bool hidden = false;
    switch (config_.mask) {
      case GoldfishMask::hash:
        hidden = mix_bits(hash) < below;
        break;
      case GoldfishMask::position:
        hidden = before % config_.k == 0;
        break;
      case GoldfishMask::seeded:
        hidden = lots_.below(static_cast<std::uint64_t>(n * length + row),
                             static_cast<std::uint64_t>(config_.k)) == 0;
        break;
    }
    if (hidden) sequence.targets[row] = -1;
  }
}

}  // namespace axonn
