#pragma once

#include <memory>
#include <string>

#include "axonn/data/tokenizer.h"

namespace axonn {

/// A model of the SentencePiece library, BPE or unigram: Llama 2's and Mistral's tokenizer.model.
///
/// Tokens are the library's own. Where no piece has the sign of a space behind another character,
/// the library is asked for each word once, and the words that come often are remembered: text is
/// cut before a single space between visible ASCII characters, and at newlines that are bytes,
/// where its result does not depend on what stands before. Control pieces ("<s>") in a text are
/// added tokens. Bytes that are no UTF-8 are byte pieces, where the model has them, and else the
/// unknown piece.
///
/// tokenizer_config.json beside it, if there is one, may say which tokens begin and end a text;
/// without, they are the model's, and the first is put before a text. Errors: UsageError if the
/// library cannot read the file.
std::shared_ptr<const Tokenizer> make_sentencepiece_tokenizer(const std::string& path);

}  // namespace axonn
