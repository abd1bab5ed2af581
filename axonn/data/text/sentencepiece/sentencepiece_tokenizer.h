#pragma once

#include <memory>
#include <string>

#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// Makes a tokenizer from a model file of the SentencePiece library, BPE or unigram: Llama 2's and
/// Mistral's tokenizer.model.
///
/// Tokens are the library's own. If no piece has a space mark behind another character, words are
/// encoded one by one and frequent words are cached. Text is then cut before a single space between
/// visible ASCII characters, and at newlines that are byte pieces: there the library's result does
/// not depend on the text before. Control pieces ("<s>") in a text are added tokens. Bytes that are
/// not UTF-8 become byte pieces if the model has them, else the unknown piece.
///
/// tokenizer_config.json beside it may name the begin-of-text and end-of-text tokens, or turn the
/// first off; without it, they are the model's. Throws UsageError if the library cannot read the
/// file, if read_sentencepieces() refuses it, or in a build without the library.
std::shared_ptr<const Tokenizer> make_sentencepiece_tokenizer(const std::string& path);

/// "built in", or "none" and what that costs.
std::string sentencepiece_library();

}  // namespace axonn
