#pragma once

#include <array>
#include <string>
#include <string_view>

#include "axonn/data/text/bpe/bpe_vocab.h"
#include "axonn/data/text/model_text.h"
#include "axonn/data/text/tokenizer_config.h"
#include "axonn/foundation/base/gguf_file.h"

namespace axonn {

/// How a byte-level tokenizer of GGUF cuts text into words.
struct GgufWords {
  const char* name;     ///< tokenizer.ggml.pre
  std::string pattern;  ///< BpeVocab::pattern
};
/// Those with one pattern: of GPT-2, Llama 3, Qwen, Mistral's Tekken and GPT-4o.
const std::array<GgufWords, 5>& gguf_words();

/// Whether the file has a tokenizer's keys.
bool has_tokenizer(const GgufFile& file);

/// The tokenizer of a GGUF file as Hugging Face's files have it.
struct GgufTokenizer {
  std::string json;        ///< of tokenizer.json
  TokenizerConfig config;  ///< of tokenizer_config.json
};
/// Reads it: "gpt2" with one of gguf_words(), or "llama", whose merges follow from the scores of
/// its pieces. Throws UsageError, which names --tokenizer, for another one, and for keys that do
/// not fit one another.
GgufTokenizer read_gguf_tokenizer(const GgufFile& file);
BpeVocab read_gguf_vocab(const GgufFile& file);

/// The ends, the padding token and the chat templates of a GGUF file, and its path as tokenizer.
ModelText read_gguf_text(const GgufFile& file);

}  // namespace axonn
