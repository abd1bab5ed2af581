#pragma once

#include <optional>
#include <string>

#include "axonn/base/json_node.h"
#include "axonn/text/bpe/bpe_vocab.h"

namespace axonn {

// The parts of tokenizer.json that describe the processing of text (table: tokenizer_json.h).

/// Settings in these parts that the vocabulary does not keep.
struct TextParts {
  bool byte_level = false;             ///< words are bytes, not characters
  bool shows_marks_as_spaces = false;  ///< decoding turns U+2581 into a space
  bool shows_bytes = false;            ///< decoding turns "<0x0A>" into that byte
  std::optional<std::int64_t> begin;   ///< the token that post_processor puts before a text
};

/// Reads normalizer, pre_tokenizer, decoder and post_processor of the root. Sets the vocabulary's
/// normalizer, spacing, words, pattern and puts_space. Throws UsageError.
TextParts read_text_parts(const JsonNode& root, BpeVocab& vocab);

}  // namespace axonn
