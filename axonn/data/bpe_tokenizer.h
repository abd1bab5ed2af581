#pragma once

#include <memory>

#include "axonn/data/bpe_vocab.h"
#include "axonn/data/tokenizer.h"

namespace axonn {

/// Byte-pair encoding as Hugging Face's tokenizers library does it, from what the files say.
///
/// A text is cut at added tokens, normalized, cut again at those that are searched for in
/// normalized text, spaced, cut into words, and each word merged (bpe_merger.h). Bytes that are no
/// UTF-8 end the word before them; a run of them is merged as a word of its own, so that decoding
/// gives them back.
///
/// Where a text is one word (Llama 2) and no merge makes a token with the sign of a space behind
/// another character, none crosses the front of a run of such signs, so the text is cut there, and
/// at newlines if no merge has them: the tokens are the same, and words can be remembered.
std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeVocab vocab);

}  // namespace axonn
