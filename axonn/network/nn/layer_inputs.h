#pragma once

#include <vector>

#include "axonn/network/nn/embedding.h"
#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/norm.h"

namespace axonn {

/// Inputs of each layer by token, as in Gemma 4. With P columns for each of L layers, that of
/// layer l is, of a token t whose embedding is x,
///
///   (norm(C^-1/2 · W_l x) + P^1/2 · E_l[t]) / 2^1/2
///
///   global                                dims       this rank holds          cut over
///   out, of each layer                    (R, P)     (R/Gd/Gz, P/Gx)          x; rows as of Linear
///   embed_tokens_per_layer (E)            (V, L·P)   (V/Gx, L·P/Gy)           x and y
///   per_layer_model_projection (W)        (L·P, C)   (L·P/Gx, C/Gy)           x and y
///   per_layer_projection_norm             (P)        (P/Gx)                   x
///
/// Communication: that of an Embedding, a Linear and L norms; and if x · y is more than 1, an
/// all-gather of R·L·P elements over y in forward, and over x in backward.
class LayerInputs {
 public:
  struct Options {
    std::int64_t vocab = 0, width = 0;   ///< V, C
    std::int64_t layers = 0, input = 0;  ///< L, P
    double init_std = 0.02;
    float eps = 1e-6f;
  };

  /// Declares the parameters in a group of its own. Throws UsageError if x does not divide P.
  LayerInputs(const Grid& grid, const Options& options);

  /// Of all layers; x: the embeddings, as the first layer gets them.
  std::vector<Var> operator()(const Context& ctx, const Tokens& tokens, const Var& x);

  ParameterGroup& group() { return group_; }
  /// Parameters that are multiplied with each token.
  std::int64_t active_parameters() const;

 private:
  Options options_;
  ParameterGroup group_;
  Embedding embedding_;
  Linear projection_;
  Norm norm_;
};

}  // namespace axonn
