#pragma once

#include <span>
#include <string>

#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// This rank's tokens: row b · T + t is position t of its sequence b.
struct Tokens {
  Tensor ids;      ///< (1, R) i32
  Tensor targets;  ///< (1, R) i32: the next token, negative where it has no loss; or empty
  Rows rows;
};

/// Row positions, document starts and which rows are no padding, in host memory, for packed
/// sequences; see Rows.
struct RowPlaces {
  std::span<const std::int32_t> positions = {};  ///< (R) or none
  std::span<const std::int32_t> starts = {};     ///< (R) or none
  std::span<const std::int32_t> counted = {};    ///< (R) or none
  std::int64_t reach = 0;
};

/// Copies tokens to the device: ids (R), and targets (R) or none, of whole sequences. If ranks
/// share sequences (GridShape::context), only this rank's part of each, by
/// RunSettings::sequence_cut. Throws if the counts differ, a position is not below the reach, a
/// start is negative or beyond its row, or sequences cannot be cut. Does not compare ids and
/// targets with a vocabulary: an Embedding gives 0 for an id that it does not have, and the loss of
/// a target that is not in the vocabulary means nothing.
Tokens make_tokens(const Context& ctx, std::span<const std::int32_t> ids,
                   std::span<const std::int32_t> targets, Rows rows, const RowPlaces& places = {});

/// Token embeddings, and optionally learned positions: the vocabulary cut over x, the width over y.
/// Each rank looks up the tokens of its part of the vocabulary, and one sum of (R, width/Gy) over x
/// combines them: a reduce-scatter that leaves rows cut over x (backward: an all-gather), or an
/// all-reduce.
class Embedding {
 public:
  struct Options {
    std::int64_t vocab = 0, width = 0;
    std::int64_t positions = 0;  ///< the longest sequence; 0: no learned positions
    double init_std = 0.02;
  };
  struct Names {
    std::string tokens, positions;  ///< tables (vocab, width) and (positions, width)
  };

  Embedding(ParameterGroup& group, Names names, Options options);

  /// Returns (R, width), columns over y. Throws if a sequence is longer than Options::positions.
  Var operator()(const Context& ctx, const Tokens& tokens) const;

  /// The token table, for tied logits.
  const Parameter& table() const { return *table_; }

 private:
  Options options_;
  const Parameter* table_;
  const Parameter* positions_ = nullptr;
};

/// The layout of a table (vocab, width): rows over x, padded; columns over y.
Layout vocabulary_layout(std::int64_t vocab, std::int64_t width);

/// The rows of such a table that this rank holds.
VocabularyPiece vocabulary_piece(const Grid& grid, std::int64_t vocab);

}  // namespace axonn
