#pragma once

#include <memory>

#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// How the ranks of Grid::context(), which share sequences, exchange keys and values (and their
/// gradients) of the positions that they hold. In all tensors a row has some heads' keys, then
/// their values: C columns. Each call is collective, in the same order on all of these ranks.
class KeyExchange {
 public:
  virtual ~KeyExchange() = default;

  /// Starts to fetch those of other ranks. mine (R, C).
  virtual Tensor fetch(const Tensor& mine) = 0;
  /// Keys or values of all positions that attention gets (SequenceShare::keys), in their order:
  /// (B·keys, C).
  virtual Tensor keys(const Tensor& mine, const Tensor& fetched) = 0;

  /// A sum under way.
  struct Sum {
    Tensor received, own;
  };
  /// Starts to sum gradients (B·keys, C) f32 over the ranks that have seen the keys.
  virtual Sum begin_sum(Tensor d_keys) = 0;
  /// The sums of this rank's positions: (R, C) f32.
  virtual Tensor finish_sum(const Sum& sum) = 0;
};

/// The exchange for the sequences of a chunk on this rank: from all ranks, or, if the share has a
/// halo, from the rank before it. ctx must outlive it.
///
///   received elements of a fetch, and of a sum     B·T·(c - 1)/c·C, or B·halo·C
std::unique_ptr<KeyExchange> make_key_exchange(const Context& ctx, const SequenceShare& share,
                                               std::int64_t sequences, const View& slots);

}  // namespace axonn
