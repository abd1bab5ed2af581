#pragma once

#include <memory>
#include <string>

#include "axonn/data/tokenizer.h"

namespace axonn {

/// GPT-2's byte-level BPE from folder/vocab.json and folder/merges.txt (bpe_vocab.h).
///
/// Text is cut into words (word_pattern.h) and each word merged (bpe_merger.h). The characters
/// "<|endoftext|>" in a text are the one token of that name, as Hugging Face's tokenizers have it,
/// if the vocabulary has it. Bytes that are no UTF-8 end the word before them; a run of them is
/// merged as a word of its own, so that decoding gives them back.
std::shared_ptr<const Tokenizer> make_bpe_tokenizer(const std::string& folder);

}  // namespace axonn
