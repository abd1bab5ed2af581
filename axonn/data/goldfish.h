#pragma once

#include <cstdint>

#include "axonn/data/config.h"
#include "axonn/data/sequences.h"

namespace axonn {

/// A mask that sets the targets that the goldfish loss leaves out to -1. With the mask `hash`, a
/// target is left out if a hash of the h tokens before it in its document is below 2^64 / k;
/// docs/memorization.md defines the hash. With any mask, the first h tokens of each document are
/// kept, and so are those of a sequence that begins inside a document, since the tokens before it
/// are not known. Source: Hans et al., "Be like a Goldfish, Don't Memorize!", 2024 (arXiv
/// 2406.10209).
///
/// end_of_text: the token that ends a document; -1: none does. config.k must be at least 2, h at
/// least 1.
SequenceMask goldfish_mask(const GoldfishConfig& config, std::uint64_t seed,
                           std::int32_t end_of_text);

}  // namespace axonn
