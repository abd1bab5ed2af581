#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace axonn {

/// Joins two neighbouring tokens into one.
struct BpeMerge {
  std::int32_t left, right, result;
};

/// What a folder with GPT-2's vocab.json and merges.txt says.
struct BpeVocab {
  std::vector<std::string> tokens;            ///< bytes of each token
  std::vector<BpeMerge> merges;               ///< the first is preferred
  std::array<std::int32_t, 256> byte_tokens;  ///< the token of each byte alone
  std::optional<std::int32_t> end_of_text;    ///< "<|endoftext|>", if the vocabulary has it
  std::uint64_t fingerprint;                  ///< of both files
};

/// The character that stands for a byte in vocab.json and merges.txt, in UTF-8: printable Latin-1
/// stands for itself, the other bytes in order for U+0100, U+0101, ... (a space is U+0120).
/// Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
std::string bpe_character(unsigned char byte);

/// Reads folder/vocab.json, an object of tokens to ids that are 0 .. n - 1, and folder/merges.txt,
/// "left right" a line after an optional first line "#version". If folder/tokenizer_config.json
/// names a class whose text pattern is not GPT-2's, that is refused.
/// Errors: UsageError, with the file, the line and what is wrong.
BpeVocab read_bpe_vocab(const std::string& folder);

}  // namespace axonn
