#pragma once

#include <cstdint>
#include <span>

#include "axonn/use/infer/beam_search.h"

namespace axonn {

struct GeneratedSequence;

/// In place of a token: logits that are not finite, where that ends a text.
inline constexpr std::int32_t kNotFinite = -2;
/// In place of a token: the sequence's form and other settings allow none.
inline constexpr std::int32_t kNoToken = -3;

/// Draws the next token of a sequence from logits (V), which it changes: first the repetition
/// penalty, then the penalties of generated tokens, biases, and what may not follow, which gets
/// minus infinity; then as sample(). Equal logits give equal tokens on all ranks. May return
/// kNotFinite or kNoToken.
///
/// `left`: how many tokens there is room for, this one included. A form's text is ended in time if
/// each byte can be written: tokens after which it would be too late are not drawn.
std::int32_t choose_token(std::span<float> logits, const GeneratedSequence& sequence,
                          std::int64_t left);

/// The candidates of a beam search after `tokens`, one of its sequence's texts, among the first
/// `known` tokens: log-probabilities by the logits (V), changed as choose_token() changes logits.
/// All are kNotFinite or kNoToken if the text must end so.
BeamSearch::Candidates beam_candidates(std::span<float> logits, const GeneratedSequence& sequence,
                                       std::span<const std::int32_t> tokens, std::int64_t known);

}  // namespace axonn
