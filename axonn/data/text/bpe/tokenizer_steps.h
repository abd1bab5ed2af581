#pragma once

#include <cstdint>
#include <optional>

#include "axonn/data/text/bpe/bpe_vocab.h"
#include "axonn/foundation/base/json_node.h"

namespace axonn {

/// Settings of tokenizer.json that the vocabulary does not keep.
struct TextParts {
  bool byte_level = false;                         ///< words are bytes, not characters
  bool shows_marks_as_spaces = false;              ///< decoding turns U+2581 into a space
  bool shows_bytes = false;                        ///< decoding turns "<0x0A>" into that byte
  std::int64_t strips_front = 0, strips_back = 0;  ///< spaces that decoding removes from each token
  std::vector<std::int64_t> begin;  ///< the tokens that post_processor puts before a text
  std::optional<std::int64_t> end;  ///< and the one behind it
};

/// Reads the normalizer, the pre_tokenizer, the decoder and the post_processor of tokenizer.json.
/// Throws as read_tokenizer_json().
TextParts read_text_parts(const JsonNode& root, BpeVocab& vocab);

}  // namespace axonn
