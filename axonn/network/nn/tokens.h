#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// This rank's tokens: row b · T + t is position t of its sequence b.
struct Tokens {
  Tensor ids;      ///< (1, R) i32
  Tensor targets;  ///< (1, R) i32: the next token, negative where it has no loss; or empty
  Rows rows;
  /// Of each sequence, its number among its data (Sequences::own_number); or none. In host memory.
  std::vector<std::int64_t> numbers = {};
  /// The tokens 1, 2, ... positions further on in each row's document, and their targets; for a
  /// model that predicts further tokens (MtpLayer). There are none beyond the end of a document,
  /// and the targets there are negative.
  struct Further {
    Tensor ids, targets;  ///< (1, R) i32
  };
  std::vector<Further> further = {};
};

/// Row positions, document starts and which rows are no padding, in host memory, for packed
/// sequences; see Rows.
struct RowPositions {
  std::span<const std::int32_t> positions = {};  ///< (R) or none
  std::span<const std::int32_t> starts = {};     ///< (R) or none
  std::span<const std::int32_t> counted = {};    ///< (R) or none
  /// (R), the length of each row's sequence, or none: all have Rows::whole(). Counts in models
  /// whose rotary frequencies are others in sequences longer than `short_sequences`.
  std::span<const std::int32_t> lengths = {};
  std::int64_t short_sequences = 0;
  std::span<const std::int32_t> branches = {};  ///< (3 · sequences) or none, see Rows
  std::int64_t reach = 0;
  int further = 0;     ///< the number of Tokens::further
  bool whole = false;  ///< each rank has sequences of its own, even if GridShape::context is not 1
};

/// Copies tokens to the device: ids (R), and targets (R) or none, of whole sequences. If ranks
/// share sequences (GridShape::context), only this rank's part of each, by
/// RunSettings::sequence_cut. Throws if the counts differ, a position is not below the reach, a
/// start is negative or beyond its row, branches do not lie in their sequence, sequences cannot be
/// cut, or ranks share sequences with branches or further tokens. Does not compare ids and targets
/// with a vocabulary: an Embedding gives 0 for an id that it does not have, and the loss of a
/// target that is not in the vocabulary means nothing.
Tokens make_tokens(const Context& ctx, std::span<const std::int32_t> ids,
                   std::span<const std::int32_t> targets, Rows rows,
                   const RowPositions& positions = {});

}  // namespace axonn
