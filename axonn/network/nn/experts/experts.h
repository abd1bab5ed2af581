#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/network/nn/experts/expert_path.h"
#include "axonn/network/nn/options.h"
#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// A mixture of experts: out = sum over the k experts i of a row, ascending, of
/// p_i · (W2_i f(W1_i · inp, W3_i · inp)), rounded once, with f of ops::Gate; or, with
/// Options::scales_input, of W2_i f(W1_i · (p_i · inp), W3_i · (p_i · inp)). A router chooses them,
/// in f32:
///
///   l = W_g · inp;  s = softmax(l), or sigmoid(l)
///   the k greatest s + b, ties to the lower index, of the groups of experts with the greatest
///   sums of their two best, or the greatest best one; b only selects
///   p_i = scale · s_i / (the sum of the chosen s if `normalised`, else 1)
///
/// All these products, and l, may have biases. No row is dropped. The rows of an expert are
/// computed in one order, by source rank, then row.
///
///   global                     dims       this rank holds              cut over
///   inp, out                   (R, C)     (R/Gd/Gz, C/Gy)              y; rows may be cut over x
///   gate.weight (W_g)          (E, C)     a Gz-th of (E, C/Gy), flat   y
///   gate.bias, gate.per_expert_scale (c)  (E)                          nothing
///   gate.e_score_correction_bias (b)  (E)
///   experts.i.gate_proj, up_proj (W1, W3)  (F, C)  (F/Gx, C/Gy)        x and y, where i is held
///   experts.i.down_proj (W2)   (C, F)     (C/Gy, F/Gx)                 y and x, where i is held
///   their biases               (F), (C)   as the rows of the weights
///
/// With GridShape::experts = e, each of e neighbours along z holds E/e experts, and the rows go
/// where their experts are; their weights are gathered over the z/e ranks that hold the same ones.
/// ExpertPath has the volumes; besides, of m rows for the experts here:
///
///   over y   forward: logits r·E f32, products m·2F/Gx; backward: m·F/Gx, and d_p r·k f32
///
/// Sources: Shazeer et al., "Outrageously large neural networks", 2017; Jiang et al., "Mixtral of
/// experts", 2024; for tensors that are cut, Singh et al., arXiv:2303.06318.
class Experts {
 public:
  struct Options {
    std::int64_t width = 0, ffn = 0;          ///< C, F
    std::int64_t experts = 0, per_token = 0;  ///< E, k
    RouterKind router = RouterKind::softmax;
    bool normalised = true;
    double scale = 1;
    bool bias = false;                             ///< whether there is b
    bool logit_bias = false, expert_bias = false;  ///< biases of l, and of experts' products
    /// Whether p_i multiplies the input of expert i, not its output (Llama 4).
    bool scales_input = false;
    bool factors = false;  ///< whether p_i is multiplied by a learned c_i (Gemma 4)
    ops::Gate activation = {};
    /// Only experts of the best groups can be chosen; see ops::Route.
    std::int64_t groups = 1, kept_groups = 1, group_best = 2;
    double init_std = 0.02;       ///< of W_g, W1 and W3
    double down_init_std = 0.02;  ///< of W2
    std::int64_t layer = 0;       ///< number among the layers with experts
  };

  /// Declares the router in `dense`, and the experts in `held`, a group of Holders::same_experts.
  /// Throws UsageError if the grid cannot cut them.
  Experts(ParameterGroup& dense, ParameterGroup& held, const std::string& name,
          const Options& options);

  /// Throws if inp's columns are not cut over y. With a Routing, notes what it chooses.
  Var operator()(const Context& ctx, const Var& inp) const;
  /// The same with another input of the router, which lies like inp.
  Var operator()(const Context& ctx, const Var& inp, const Var& of_router) const;

  /// b; null if there is none.
  const Parameter* bias() const { return bias_; }

 private:
  struct Routed;
  struct Pass;

  struct Weights;

  static void add_biases(ParameterGroup& held, const std::string& expert, const Layout& up,
                         const Layout& down, Weights& weights);
  Chunk forward(const Context& ctx, const Chunk& inp, const Chunk& of_router) const;
  Tensor weights_of(const Context& ctx, const Routed& routed) const;
  Tensor d_weights_of(const Context& ctx, const Chunk& inp, const Routed& routed,
                      const Tensor& d_weights) const;
  Routed route(const Context& ctx, const Chunk& inp) const;
  Tensor logits(const Context& ctx, const Chunk& inp) const;
  Tensor exchange(const Context& ctx, const Chunk& inp, const Pass& pass) const;
  Tensor weigh(const Context& ctx, const Pass& pass, const Tensor& whole,
               const Tensor& routed) const;
  Tensor d_results_of(const Context& ctx, const Pass& pass, const Tensor& d_out,
                      const Tensor& d_weights) const;
  Tensor gate_up_of(const Context& ctx, const Pass& pass, const Tensor& rows) const;
  Tensor activated_of(const Context& ctx, const Tensor& gate_up) const;
  void compute(const Context& ctx, const Chunk& inp, Pass& pass) const;
  void backward(const Context& ctx, const Chunk& inp, const Chunk& of_router, const Pass& pass,
                const Tensor& d_out) const;
  /// Whether this rank's part of F is not all padding.
  bool reads_activated() const;
  Tensor d_activated_of(const Context& ctx, const Pass& pass, const Tensor& gate_up,
                        const Tensor& d_down) const;
  Tensor compute_backward(const Context& ctx, const Chunk& inp, const Pass& pass,
                          const Tensor& d_results) const;
  Tensor route_backward(const Context& ctx, const Chunk& inp, const Routed& routed,
                        const Tensor& d_weights) const;

  /// One product for each expert here that has rows: make(i, its rows).
  template <typename Make>
  void for_experts(const Context& ctx, const ExpertPath& path, const Make& make) const;

  /// One of an expert's matrices, its bias, and the axis over which the product is summed.
  struct Matrix {
    const Parameter* Weights::*weight;
    const Parameter* Weights::*bias;
    Axis summed;
  };
  void multiply(const Context& ctx, const ExpertPath& path, const Matrix& matrix, const Tensor& out,
                const Tensor& inp) const;

  Options options_;
  const Parameter* gate_;
  const Parameter *logit_bias_ = nullptr, *factors_ = nullptr;
  const Parameter* bias_ = nullptr;
  /// Of an expert; biases may be null.
  struct Weights {
    const Parameter *gate_up, *down;
    const Parameter *gate_up_bias = nullptr, *down_bias = nullptr;
  };
  std::vector<Weights> here_;  // of the experts that this rank holds
};

}  // namespace axonn
