#pragma once

#include <string>

#include "axonn/text/bpe/bpe_vocab.h"

namespace axonn {

/// Reads tokenizer.json of Hugging Face's tokenizers library, with tokenizer_config.json beside it
/// for the tokens that begin and end a text.
///
///   part            supported
///   model           BPE: merges as "a b" or ["a", "b"], byte_fallback, unk_token, fuse_unk,
///                   ignore_merges
///   normalizer      none, NFC, Prepend, Replace of a string, a Sequence of these
///   pre_tokenizer   none, ByteLevel, Split by a regular expression (Isolated) and then ByteLevel,
///                   Metaspace
///   decoder         ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback, Fuse, Strip
///   post_processor  none, ByteLevel, TemplateProcessing with one token before the text, a Sequence
///   added_tokens    without single_word, lstrip and rstrip
///
/// That covers the published files of GPT-2, Llama 2 and 3, Mistral, Qwen2, 2.5 and 3. Ignores
/// truncation and padding, which concern batches. Throws UsageError for anything else, with the
/// file and the place in it ("tokenizer.json: pre_tokenizer.pretokenizers[0].behavior").
BpeVocab read_tokenizer_json(const std::string& path);

}  // namespace axonn
