#pragma once

#include <cstdint>
#include <span>

namespace axonn {

/// How the next token is chosen from logits.
struct Sampling {
  double temperature = 1;  ///< 0: the most likely token, the first of equals
  std::int64_t top_k = 0;  ///< only the k most likely; 0: all
  double top_p = 1;        ///< only the most likely that together reach this probability
};

/// A token of logits (V). `uniform` in [0, 1) decides: the same everywhere for the same bits.
/// Errors: Error if a logit is NaN, or a setting out of range.
std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double uniform);

}  // namespace axonn
