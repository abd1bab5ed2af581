#pragma once

#include <string>
#include <vector>

#include "axonn/network/nn/adapters/adapter.h"
#include "axonn/network/nn/tokens.h"
#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// Token embeddings, and optionally learned positions: the vocabulary cut over x, the width over y.
/// Each rank looks up the tokens of its part of the vocabulary, and one sum of (R, width/Gy) over x
/// combines them: a reduce-scatter that leaves rows cut over x (backward: an all-gather), or an
/// all-reduce. An adapter adds to the rows of tokens before that sum.
class Embedding {
 public:
  struct Options {
    std::int64_t vocab = 0, width = 0;
    std::int64_t positions = 0;         ///< the longest sequence; 0: no learned positions
    std::int64_t unused_positions = 0;  ///< rows before that of position 0, which no token has
    double init_std = 0.02;
    Adapters* adapters = nullptr;  ///< of its block; null: none
  };
  struct Names {
    std::string tokens, positions;  ///< tables (vocab, width), (unused + positions, width)
  };

  Embedding(ParameterGroup& group, Names names, Options options);

  /// Returns (R, width), columns over y. Throws if a sequence is longer than Options::positions.
  Var operator()(const Context& ctx, const Tokens& tokens) const;

  /// The token table, for tied logits.
  const Parameter& table() const { return *table_; }

 private:
  struct Rest;
  void look_up(const Context& ctx, ops::Embedding rows) const;
  void backward(const Context& ctx, const Rest& rest, const Tensor& d_out) const;
  bool learns() const {
    return !table_->frozen() || (positions_ && !positions_->frozen()) || !adapters_.empty();
  }

  Options options_;
  const Parameter* table_;
  const Parameter* positions_ = nullptr;
  std::vector<Adapter> adapters_;
};

/// The layout of a table (vocab, width): rows over x, padded; columns over y.
Layout vocabulary_layout(std::int64_t vocab, std::int64_t width);

/// The rows of such a table that this rank holds.
VocabularyPiece vocabulary_piece(const Grid& grid, std::int64_t vocab);

}  // namespace axonn
