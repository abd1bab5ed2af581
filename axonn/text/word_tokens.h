#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "axonn/text/bpe/bpe_vocab.h"

namespace axonn {

/// Gives the initial tokens of a word, before merges: one for each byte or for each character.
class WordTokens {
 public:
  /// Keeps a reference to the vocabulary.
  explicit WordTokens(const BpeVocab& vocab);

  enum class State { mergeable, whole };

  /// Appends the initial tokens. `whole`: the word is a token itself, which was appended instead.
  State append(std::string_view word, std::vector<std::int32_t>& tokens) const;

 private:
  void append_characters(std::string_view word, std::vector<std::int32_t>& tokens) const;

  const BpeVocab& vocab_;
  std::array<std::int32_t, 128> ascii_{};  ///< token of each one-byte character; -1: none
  std::unordered_map<std::string_view, std::int32_t> words_;
};

}  // namespace axonn
