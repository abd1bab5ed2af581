#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "axonn/base/random.h"
#include "axonn/data/sequences.h"

namespace axonn {

/// How targets are chosen that the goldfish loss leaves out.
enum class GoldfishMask {
  hash,      ///< by the h tokens before: the same wherever these stand
  position,  ///< every k-th token of a document: static
  seeded     ///< by lot, another one each time the sequence comes
};

inline constexpr std::array<std::string_view, 3> kGoldfishMasks = {"hash", "static", "seeded"};

/// training.goldfish: one target in k is left out of the loss, so that no passage is learned whole.
struct GoldfishConfig {
  std::int64_t k = 0;  ///< 0: none is left out; else at least 2
  std::int64_t h = 13;
  GoldfishMask mask = GoldfishMask::hash;

  bool operator==(const GoldfishConfig&) const = default;
};

/// The tokens that goldfish loss leaves out of sequences. With the mask `hash` a target is left out
/// if a hash of the h tokens before it, in its document, falls below 2^64 / k; docs/memorization.md
/// defines the hash. Of each document the first h targets are kept, whatever the mask, and so are
/// those of a sequence that begins inside a document, since what stands before it is not seen.
/// Source: Hans et al., "Be like a Goldfish, Don't Memorize!", 2024 (arXiv 2406.10209).
class Goldfish {
 public:
  /// end_of_text: the token that a document's last one is; -1: no token is. config.k is at least 2,
  /// h at least 1.
  Goldfish(const GoldfishConfig& config, std::uint64_t seed, std::int32_t end_of_text);

  /// Makes -1 of the targets of sequence n that are left out.
  void mask(std::int64_t n, Sequence& sequence) const;

 private:
  GoldfishConfig config_;
  Random lots_;
  std::int32_t end_of_text_;
  std::uint64_t leaving_;  ///< the factor of a token that leaves the h tokens
};

}  // namespace axonn
