#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/use/infer/generator.h"

namespace axonn {

// Scores as words of 32 bits, which ranks exchange.

/// The words of a score with so many likeliest tokens; below 0: with none.
std::size_t score_words(std::int64_t likeliest);
void append(std::vector<std::int32_t>& words, const TokenScore& score);
/// Takes a score from the words.
TokenScore take_score(std::span<const std::int32_t>& words, std::int64_t likeliest);

}  // namespace axonn
