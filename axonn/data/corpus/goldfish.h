#pragma once

#include <cstdint>
#include <span>

#include "axonn/data/corpus/config.h"
#include "axonn/data/corpus/sequences.h"

namespace axonn {

/// The keys of the mask `apertus` are 0 to kApertusKeys - 1.
inline constexpr std::int64_t kApertusKeys = 1'000'003;

/// The product of the tokens modulo 2^64, as a signed number, modulo kApertusKeys, not negative.
std::int64_t apertus_key(std::span<const std::int32_t> tokens);

/// A mask that sets the targets that the goldfish loss leaves out to -1. With the mask `hash`, a
/// target is left out if a hash of the h tokens before it in its document is below 2^64 / k;
/// docs/memorization.md defines the hash. With any mask but `apertus`, the first h tokens of each
/// document are kept, and so are those of a sequence that begins inside a document, since the
/// tokens before it are not known. Where the first token of them is no target, as at the beginning
/// of a sequence, these are h - 1 targets, as in the paper's program.
///
/// The mask `apertus` leaves out target i of a sequence, i >= h - 1, if the number of the key
/// apertus_key(targets i - h + 1 to i) is below 1/k. The window contains the target, and goes on
/// over the borders of documents; in place of a target that does not count it has the next row's
/// token. The numbers are those of std::mt19937 with the seed 2971215073, (u32 & 0xffffff) / 2^24.
/// With h = 50 about 9 % of all products are 0 modulo 2^64; their number is 0.23, so they are kept.
///
/// Sources: Hans et al., "Be like a Goldfish, Don't Memorize!", 2024 (arXiv
/// 2406.10209); Apertus's trainer, Megatron-LM of the Swiss AI Initiative.
///
/// end_of_text: the token that ends a document; -1: none does. config.k must be at least 2, h at
/// least 1.
SequenceMask goldfish_mask(const GoldfishConfig& config, std::uint64_t seed,
                           std::int32_t end_of_text);

}  // namespace axonn
