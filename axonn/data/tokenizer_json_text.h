#pragma once

#include <optional>
#include <string>

#include "axonn/data/bpe_vocab.h"
#include "axonn/data/json_node.h"

namespace axonn {

// The parts of tokenizer.json that say what is done to text (tokenizer_json.h has the table).

/// What they say besides what goes into the vocabulary.
struct TextParts {
  bool byte_level = false;             ///< words are bytes, not characters
  bool shows_marks_as_spaces = false;  ///< decoding turns U+2581 into a space
  bool shows_bytes = false;            ///< decoding turns "<0x0A>" into that byte
  std::optional<std::int64_t> begin;   ///< the token that post_processor puts before a text
};

/// Reads normalizer, pre_tokenizer, decoder and post_processor of the root; sets the vocabulary's
/// normalizer, spacing, words, pattern and puts_space. Errors: UsageError.
TextParts read_text_parts(const JsonNode& root, BpeVocab& vocab);

}  // namespace axonn
