#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "axonn/data/bpe_vocab.h"

namespace axonn {

/// The tokens that a word is before any merge: one for each byte, or one for each character.
class WordTokens {
 public:
  /// Refers to the vocabulary, which must stay where it is.
  explicit WordTokens(const BpeVocab& vocab);

  enum class State { mergeable, whole };

  /// Appends them. `whole`: the word is a token, which was appended instead.
  State append(std::string_view word, std::vector<std::int32_t>& tokens) const;

 private:
  void append_characters(std::string_view word, std::vector<std::int32_t>& tokens) const;

  const BpeVocab& vocab_;
  std::array<std::int32_t, 128> ascii_{};  ///< of one-byte characters; -1: none
  std::unordered_map<std::string_view, std::int32_t> words_;
};

}  // namespace axonn
