#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace axonn {

/// The pieces of a unigram model and their scores, by token.
struct UnigramPieces {
  std::vector<std::pair<std::string, double>> pieces;
  std::int32_t unknown = 0;
  /// The token of each byte, -1 if it has none; empty: unknown characters become `unknown`.
  std::vector<std::int32_t> byte_tokens = {};
};

/// Cuts a word into the pieces with the largest sum of scores, with the results of Hugging Face's
/// tokenizers library. Source: Kudo, "Subword regularization", 2018.
class Unigram {
 public:
  /// A longer piece than any published one; it bounds the time for each byte of a text.
  static constexpr std::size_t kMostBytes = 1024;

  /// Pieces are at most kMostBytes long. Of equal pieces, the last counts.
  explicit Unigram(const UnigramPieces& model);

  /// Buffers of one thread, reused for every word.
  struct Best {
    double score = 0;
    std::size_t begin = 0;  ///< of the last piece
    std::int32_t token = -1;
  };
  using Scratch = std::vector<Best>;

  /// Appends the tokens of a word.
  void append(std::string_view word, std::vector<std::int32_t>& tokens, Scratch& scratch) const;

 private:
  /// A node of a trie; its children are neighbours, by their bytes.
  struct Node {
    std::uint32_t children = 0, count = 0;
    std::int32_t token = -1;
    unsigned char byte = 0;
  };

  const Node* child(const Node& node, char byte) const;
  std::int32_t find(std::string_view piece) const;
  void take_best(std::string_view word, std::size_t at, Scratch& best) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& tokens) const;

  std::vector<Node> nodes_;  // the root is the first
  std::vector<double> scores_;
  std::vector<std::int32_t> byte_tokens_;
  std::int32_t unknown_;
  double unknown_score_ = 0;
};

}  // namespace axonn
