#pragma once

#include <cstdint>
#include <string>

#include "axonn/network/nn/attention/attention.h"
#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/options.h"

namespace axonn {

/// A gated delta net (Qwen3-Next), up to the output projection: in place of attention, each head
/// has a state that the rows of a sequence change one after another (ops::DeltaRule):
///
///   q, k, v = silu(convolution(W · inp)), z, b, a = W · inp; q and k are divided by their lengths,
///   and q by sqrt(K);  decay = -e^A_log · log(1 + e^(a + dt_bias)), beta = sigmoid(b)
///   out = RMSNorm(delta rule(q, k, v, decay, beta)) · silu(z)
///
///   global                                   dims                   cut over
///   inp                                      (R, C)                 y
///   q_proj, k_proj; v_proj, in_proj_z        (·K, C); (N·V, C)      x and y, as heads
///   in_proj_b, in_proj_a                     (N, C)                 x and y
///   conv1d.weight                            (channels, taps)       x
///   A_log, dt_bias; norm.weight              (N); (V)               x; the same on all ranks
///   out                                      (R, N·V)               x, or x and y
///
/// Heads are cut as those of attention(), whose rules of y apply. No communication but that of the
/// product, unless c ranks share sequences: then each goes through whole sequences with a c-th of
/// the heads (HeadExchange). A rank sends and gets (c - 1)/c of the columns q, k, v, b and a of its
/// rows, and as much of the rule's result back; backward once more, and their gradients. With fewer
/// heads here than ranks, some of these wait. With a KeyValueCache, rows go on from the states of
/// their slots.
///
/// Source: Yang et al., "Gated delta networks: improving Mamba2 with delta rule", 2024.
class DeltaNet {
 public:
  struct Options {
    std::int64_t width = 0;  ///< C
    DeltaSizes sizes = {};
    double init_std = 0.02;
    float eps = 1e-6f;  ///< of the norm
    Adapters* adapters = nullptr;
  };

  /// Declares the parameters as name.q_proj.weight and so on.
  DeltaNet(ParameterGroup& group, const std::string& name, const Options& options);

  /// (R, N·V). Throws Error for a cache of sequences that ranks share.
  Var operator()(const Context& ctx, const Var& inp) const;

  /// Positions whose inputs a layer of these sizes keeps in a KeyValueCache.
  static std::int64_t kept_inputs(const DeltaSizes& sizes);
  /// Bytes that a layer of these sizes takes on this rank in a slot of a KeyValueCache.
  static std::int64_t slot_bytes(const DeltaSizes& sizes, const Grid& grid, DType dtype);

 private:
  struct Columns;
  struct Made;
  struct Slopes;
  struct Parts;
  Chunk forward(const Context& ctx, const Chunk& products) const;
  Tensor taps(const Context& ctx, const Columns& at) const;
  Made make(const Context& ctx, const Columns& at, const Chunk& products, const ops::SeenRows& seen,
            const KeyValueCache::Recurrent* kept = nullptr) const;
  Tensor recall(const Context& ctx, const Columns& at, const Made& made,
                const Tensor& states) const;
  Tensor recall_whole(const Context& ctx, const Columns& at, const Chunk& products,
                      const ops::SeenRows& seen) const;
  Tensor recall_shared(const Context& ctx, const Columns& at, const Chunk& products) const;
  Tensor gated(const Context& ctx, const Columns& at, const Chunk& products,
               const Tensor& recalled) const;
  Tensor backward(const Context& ctx, const Columns& at, const Chunk& products,
                  const Tensor& recalled, const Tensor& d_out) const;
  Tensor gated_backward(const Context& ctx, const Columns& at, const Chunk& products,
                        const Tensor& recalled, const Slopes& slopes) const;
  void recall_backward(const Context& ctx, const Columns& at, const Chunk& products,
                       const ops::SeenRows& seen, const Slopes& slopes) const;
  void shared_backward(const Context& ctx, const Columns& at, const Chunk& products,
                       const Slopes& slopes) const;
  void gates_backward(const Context& ctx, const Columns& at, const Chunk& products,
                      const Made& made, const Slopes& slopes) const;
  void convolution_backward(const Context& ctx, const Columns& at, const Chunk& products,
                            const Made& made, const Slopes& slopes) const;

  Heads heads_;
  DeltaSizes sizes_;
  float eps_;
  Linear products_;
  const Parameter *taps_, *a_log_, *dt_bias_, *norm_;
};

}  // namespace axonn
