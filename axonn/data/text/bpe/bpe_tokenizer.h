#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "axonn/data/text/bpe/bpe_vocab.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// Applies ranked merges to a word: repeatedly joins the neighbouring pair whose merge comes first
/// in the list (the leftmost of several), until no merge applies.
class BpeMerger {
 public:
  /// Buffers of one thread, reused for every word.
  struct Scratch {
    std::vector<std::uint32_t> ranks;
    std::vector<std::int32_t> next, previous;
    std::vector<std::uint64_t> queue;
  };

  /// No pair may occur twice.
  explicit BpeMerger(std::span<const BpeMerge> merges);

  /// Merges the tokens in place; returns how many are left, at the front of the span. Costs
  /// O(n^2) with a tiny constant for short words and O(n log n) for long ones.
  std::size_t merge(std::span<std::int32_t> tokens, Scratch& scratch) const;

  /// The two algorithms that merge() chooses from. Their results are equal.
  std::size_t merge_short(std::span<std::int32_t> tokens, Scratch& scratch) const;
  std::size_t merge_long(std::span<std::int32_t> tokens, Scratch& scratch) const;

 private:
  struct Entry {
    std::uint64_t pair;
    std::uint32_t rank;
  };

  std::uint32_t rank_of(std::int32_t left, std::int32_t right) const;

  std::vector<Entry> table_;  // open addressing; a power of two, at most half full
  int shift_;                 // 64 - log2 of the table's size
  std::vector<std::int32_t> result_of_rank_;
};

/// Makes a tokenizer for byte-pair encoding, with the results of Hugging Face's tokenizers library.
///
/// A text is cut at added tokens, normalized, cut again at the added tokens that are searched for
/// in normalized text, spaced, and cut into words; each word is merged. Bytes that
/// are not UTF-8 end the word before them. A run of such bytes is merged as a word of its own, so
/// that decoding gives them back.
///
/// If the vocabulary treats a text as one word (Llama 2) and no merge makes a token with a space
/// mark (U+2581) behind another character, no token crosses the front of a run of marks. The text
/// is then cut there, and at newlines if no merge contains them: the tokens are the same, and words
/// can be cached.
std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeVocab vocab);

}  // namespace axonn
