#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/data/files.h"

namespace axonn::test {

/// A small vocabulary in the order of its ids, and its merges.
struct SmallVocab {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;

  int id_of(const std::string& token) const;
};

/// Token b is byte b, then the results of a few merges, then those of words of no merge.
SmallVocab byte_level_vocab();

/// "<unk>", "<s>", "</s>", the 256 bytes' "<0x00>" ..., characters, and what merges make of them.
SmallVocab llama2_vocab();

// The files of the families in the structure in which they are published, with a small vocabulary.
// Added tokens have the ids behind the vocabulary's.
std::string gpt2_json();      ///< <|endoftext|>
std::string llama3_json();    ///< <|begin_of_text|>, <|end_of_text|>, and of a turn
std::string qwen_json();      ///< <|endoftext|>, <|im_start|>, <|im_end|>, <tool_call>
std::string llama2_json();    ///< as llama2_vocab() has them
std::string mistral3_json();  ///< the same with Metaspace in place of the normalizer

std::string replaced(std::string text, const std::string& what, const std::string& by);

}  // namespace axonn::test
