#pragma once

#include <cstdint>
#include <span>

#include "axonn/use/infer/beam_search.h"

namespace axonn {

struct BeamRow;
struct GeneratedSequence;
struct GenerationOptions;
struct PassPart;
struct TokenScore;

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

/// Whether a token completes the text of a beam: a stop string, or a text of the form.
bool completes(const GeneratedSequence& sequence, std::size_t beam, std::int32_t token);

/// The candidates of a beam search after the text of the part's beam, among the first `known`
/// tokens: log-probabilities by the logits (V), changed as choose_token() changes logits. Those
/// that are missing are kNoToken, with a probability of 0; all are kNotFinite if the text must end
/// so.
BeamRow beam_row(std::span<float> logits, const PassPart& part, std::int64_t known);

/// A row as ranks exchange it: the candidates, with options.likeliest their log-probabilities
/// before penalties, and the likeliest tokens. beam_row_of() is the inverse.
TokenScore score_of(const BeamRow& row, const GenerationOptions& options);
BeamRow beam_row_of(const TokenScore& score, std::int64_t candidates);

}  // namespace axonn
