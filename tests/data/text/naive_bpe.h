#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/data/text/tokenizer_files.h"

namespace axonn::test {

// The algorithm of Hugging Face's tokenizers library in plain loops, for texts of the characters
// that naive_bpe.cpp supports.

/// The code points of well-formed UTF-8, each in its own string.
std::vector<std::string> characters_of(std::string_view text);

/// The words by the pattern of Llama 3 (most_digits 3) or Qwen (1).
std::vector<std::string> naive_words(const std::string& text, std::size_t most_digits);

/// Repeatedly joins the pair whose merge comes first in the list, the leftmost of several.
std::vector<std::string> naive_merge(std::vector<std::string> symbols, const SmallVocab& vocab);

/// The tokens of a word of a byte-level vocabulary.
std::vector<int> naive_byte_level(const std::string& word, const SmallVocab& vocab);

/// Llama 2's tokens of a text without added tokens.
std::vector<int> naive_llama2(const std::string& text, const SmallVocab& vocab);

}  // namespace axonn::test
