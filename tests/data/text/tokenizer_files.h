#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/data_files.h"

namespace axonn::test {

/// A small vocabulary in the order of its ids, and its merges.
struct SmallVocab {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;

  int id_of(const std::string& token) const;
};

/// Token b is byte b; then the results of a few merges; then words that no merge makes.
SmallVocab byte_level_vocab();

/// "<unk>", "<s>", "</s>", the 256 bytes "<0x00>" ..., characters, and the results of merges.
SmallVocab llama2_vocab();

// The tokenizer.json of each model family in its published structure, with a small vocabulary. Ids
// of added tokens follow those of the vocabulary.
std::string gpt2_json();      ///< <|endoftext|>
std::string llama3_json();    ///< <|begin_of_text|>, <|end_of_text|>, and the tokens of a turn
std::string qwen_json();      ///< <|endoftext|>, <|im_start|>, <|im_end|>, <tool_call>
std::string llama2_json();    ///< the added tokens are in llama2_vocab()
std::string mistral3_json();  ///< the same, with Metaspace instead of the normalizer

std::string replaced(std::string text, const std::string& what, const std::string& by);

}  // namespace axonn::test
