#pragma once

#include <string>

#include "axonn/data/text/bpe/bpe_vocab.h"

namespace axonn {

/// The text of tokenizer.json of a byte-level BPE whose words GPT-2's pattern cuts, and which
/// changes no text before: one that read_bpe_vocab() or bytes_as_bpe() returned.
std::string to_tokenizer_json(const BpeVocab& vocab);

/// The text of tokenizer_config.json of such a tokenizer.
std::string to_tokenizer_config(const BpeVocab& vocab);

}  // namespace axonn
