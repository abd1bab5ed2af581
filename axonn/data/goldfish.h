#pragma once

#include <cstdint>

#include "axonn/base/random.h"
#include "axonn/data/config.h"
#include "axonn/data/sequences.h"

namespace axonn {

/// Masks the targets that the goldfish loss leaves out. With the mask `hash`, a target is left out
/// if a hash of the h tokens before it in its document is below 2^64 / k; docs/memorization.md
/// defines the hash. With any mask, the first h tokens of each document are kept, and so are those
/// of a sequence that begins inside a document, since the tokens before it are not known. Source:
/// Hans et al., "Be like a Goldfish, Don't Memorize!", 2024 (arXiv 2406.10209).
class Goldfish {
 public:
  /// end_of_text: the token that ends a document; -1: none does. config.k must be at least 2, h at
  /// least 1.
  Goldfish(const GoldfishConfig& config, std::uint64_t seed, std::int32_t end_of_text);

  /// Sets the targets of sequence n that are left out to -1.
  void mask(std::int64_t n, Sequence& sequence) const;

 private:
  GoldfishConfig config_;
  Random lots_;
  std::int32_t end_of_text_;
  std::uint64_t leaving_;  ///< kBase^h: the factor of the token that leaves the window
};

}  // namespace axonn
