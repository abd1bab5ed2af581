#pragma once

#include <memory>

#include "axonn/text/bpe/bpe_vocab.h"
#include "axonn/text/tokenizer.h"

namespace axonn {

/// Makes a tokenizer for byte-pair encoding, with the results of Hugging Face's tokenizers library.
///
/// A text is cut at added tokens, normalized, cut again at the added tokens that are searched for
/// in normalized text, spaced, and cut into words; each word is merged (bpe_merger.h). Bytes that
/// are not UTF-8 end the word before them. A run of such bytes is merged as a word of its own, so
/// that decoding gives them back.
///
/// If the vocabulary treats a text as one word (Llama 2) and no merge makes a token with a space
/// mark (U+2581) behind another character, no token crosses the front of a run of marks. The text
/// is then cut there, and at newlines if no merge contains them: the tokens are the same, and words
/// can be cached.
std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeVocab vocab);

}  // namespace axonn
