#pragma once

#include <cstdint>
#include <span>

namespace axonn {

/// How the next token is chosen from logits: first the penalty, then temperature, top_k and top_p
/// in this order, as in Hugging Face's transformers.
struct Sampling {
  double temperature = 1;         ///< 0: the most likely token, the first of equals
  std::int64_t top_k = 0;         ///< only the k most likely; 0: all
  double top_p = 1;               ///< only the most likely that together reach this probability
  double repetition_penalty = 1;  ///< what penalise() does; 1: nothing
};

/// Divides the positive logits (V) of tokens that were seen by `penalty`, and multiplies their
/// negative ones by it, each once however often it was seen.
/// Source: Keskar et al., "CTRL", 2019, in the form that transformers has it.
void penalise(std::span<float> logits, std::span<const std::int32_t> seen, double penalty);

/// A token of logits (V), to which the penalty has been applied. `uniform` in [0, 1) decides: the
/// same everywhere for the same bits. Sorts no more than top_k and top_p ask for.
/// Errors: Error if a logit is NaN, or a setting out of range.
std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double uniform);

}  // namespace axonn
