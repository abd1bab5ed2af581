#pragma once

#include <span>
#include <string>

#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// This rank's tokens: row b · T + t is position t of its sequence b.
struct Tokens {
  Tensor ids;      ///< (1, R) i32
  Tensor targets;  ///< (1, R) i32: the next token, negative where it is not to be learned; or empty
  Rows rows;
};

/// Of sequences that are not one document from its beginning each: what Rows has, in host memory.
struct RowPlaces {
  std::span<const std::int32_t> positions = {};  ///< (R) or none
  std::span<const std::int32_t> starts = {};     ///< (R) or none
  std::int64_t reach = 0;
};

/// Tokens from host memory: ids (R), and targets (R) or none. Errors: the counts do not fit; a
/// position is not below the reach; a start is not 0 to the row itself.
Tokens make_tokens(const Context& ctx, std::span<const std::int32_t> ids,
                   std::span<const std::int32_t> targets, Rows rows, const RowPlaces& places = {});

/// Token embeddings, and learned positions where there are any: the vocabulary over x, the width
/// over y. One sum of (R, width/Gy) over x, as every rank adds the rows of its own tokens: a
/// reduce-scatter that leaves rows cut over x (backward: an all-gather), or an all-reduce.
class Embedding {
 public:
  struct Options {
    std::int64_t vocab = 0, width = 0;
    std::int64_t positions = 0;  ///< the longest sequence, or 0 for none
    double init_std = 0.02;
  };
  struct Names {
    std::string tokens, positions;  ///< of the tables (vocab, width) and (positions, width)
  };

  Embedding(ParameterGroup& group, Names names, Options options);

  /// Errors: positions beyond Options::positions.
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

/// Which rows of such a table this rank holds.
VocabularyPiece vocabulary_piece(const Grid& grid, std::int64_t vocab);

}  // namespace axonn
