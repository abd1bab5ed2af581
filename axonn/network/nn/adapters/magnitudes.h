#pragma once

#include <memory>
#include <span>

#include "axonn/network/nn/adapters/adapter.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// What the magnitudes of a layer's adapters make of its product, before the sum over its input
/// axis:
///
///   out (R, C) = product (R, C) · factors (1, C) + bias
///
/// A factor is m / norm in the columns of an adapter, 1 in others. No gradient passes through
/// norms.
class Magnitudes {
 public:
  /// Starts the sum of the norms over the weight's input axis. Null if no adapter has a magnitude.
  /// `adapters` outlive the result.
  static std::shared_ptr<Magnitudes> of(const Context& ctx, std::span<const Adapter> adapters,
                                        const Parameter& weight);

  /// `product` is this rank's part of the sum, to which adapters were added; bias may be empty.
  /// Returns `out`, and keeps the product for backward if the pass has a tape.
  Tensor scale(const Context& ctx, Tensor product, const View& bias);
  /// Returns the gradient of the product, and adds those of the magnitudes.
  Tensor backward(const Context& ctx, const Tensor& d_out) const;

 private:
  void find_factors(const Context& ctx);
  View divided_by_norms(const Context& ctx, const Adapter& adapter, const View& row) const;

  std::span<const Adapter> adapters_;
  Tensor squares_;  // (C, 2) f32: 0, and the squared norm of a row
  Tensor inverse_;  // (C, 2) f32: 0, and 1 / norm
  Tensor factors_;  // (1, C) f32
  Tensor product_;
};

}  // namespace axonn
