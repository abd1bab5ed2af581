#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "axonn/network/nn/attention/rope.h"
#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/norm.h"

namespace axonn {

/// The sizes of multi-head latent attention.
struct LatentSizes {
  std::int64_t query_rank = 0;  ///< Lq; 0: queries are made of the input itself
  std::int64_t key_rank = 0;    ///< Lk, of keys and values
  std::int64_t rotated = 0;     ///< r, columns of a head's queries and keys with positions
  std::int64_t plain = 0;       ///< n, those without
  std::int64_t value = 0;       ///< v, columns of a head's values

  /// D, of a head's queries, keys and values in the kernels of attention; the rest is zero.
  std::int64_t head_dim() const { return std::max(rotated + plain, value); }
};

/// Multi-head latent attention (DeepSeek-V2), up to the output projection. Queries and keys are
/// made of a few columns, their latents, and the r columns of the keys with positions are the same
/// for all heads:
///
///   (a, c, k) = W_down · inp;  q = W_q · norm(a);  (keys, values) = W_kv · norm(c)
///   head h: softmax(scale · (q_h · (keys_h, rope(k))))  · values_h
///
///   global                            dims                 this rank holds       cut over
///   inp                               (R, C)               (R/Gd/Gz, C/Gy)       y
///   q_a_proj, kv_a_proj_with_mqa      (Lq, C), (Lk + r, C) rows / Gx, C/Gy       x and y
///   q_a_layernorm, kv_a_layernorm     (Lq), (Lk)           a part                y
///   q_b_proj, kv_b_proj               (H(n+r), Lq), (H(n+v), Lk)                 x and y
///   out                               (R, H·v)             (R/Gd/Gz, h·v)        x, or x and y
///
/// The latents are gathered over x, and each rank of y continues with its columns of them:
/// R · (Lq + Lk + r) elements forward; as many over y, and R · r over x, backward.
///
/// A KeyValueCache with latents holds (rope(k), norm(c)) alone, r + Lk columns for all heads, the
/// same on all ranks. Rows that read it attend to these: W_kv's part of the keys multiplies the
/// queries, and its part of the values the results:
///
///   head h: W_vh · softmax(scale · (W_khᵀ · q_h, rope(q_h)) · (norm(c), rope(k))) · norm(c)
///
/// With y they gather (R, H(n+r)/Gx), (R, H·Lk/Gx) and (R, Lk) over it, and sum (R, H·v/Gx). Other
/// rows, and caches without latents, have keys and values of each head, as in training.
///
/// Source: DeepSeek-AI, "DeepSeek-V2: a strong, economical, and efficient mixture-of-experts
/// language model", 2024 (arXiv 2405.04434).
class LatentAttention {
 public:
  struct Options {
    std::int64_t width = 0;  ///< C
    Heads heads = {};        ///< of LatentSizes::head_dim()
    LatentSizes sizes = {};
    bool bias = false;  ///< of the products that make latents
    double init_std = 0.02;
    float eps = 1e-6f;  ///< of the norms
    Adapters* adapters = nullptr;
  };

  /// Declares the parameters as name.q_a_proj.weight and so on. Throws UsageError unless x and y
  /// divide the latents.
  LatentAttention(ParameterGroup& group, const std::string& name, const Options& options);

  /// rope: null: no rotary positions.
  Var operator()(const Context& ctx, const Var& inp, const Rope* rope) const;

  /// Columns that a cache with latents holds of a position.
  static std::int64_t cached_columns(const LatentSizes& sizes) {
    return sizes.rotated + sizes.key_rank;
  }

 private:
  struct Inputs;
  Tensor absorbed_queries(const Context& ctx, const Tensor& queries) const;
  Tensor values_of(const Context& ctx, const Tensor& seen, const Chunk& queries) const;
  std::optional<Chunk> cached(const Context& ctx, const Inputs& of, KeyValueCache& cache,
                              const Rope* rope) const;
  Var queries(const Context& ctx, const Var& inp, const Var& latents) const;
  Var heads_of(const Context& ctx, const Var& q, const Var& kv, const Var& latents) const;
  Chunk assemble(const Context& ctx, const Chunk& q, const Chunk& kv, const Chunk& latents) const;
  Tensor d_key(const Context& ctx, const Placement& placement, const View& d_k,
               std::int64_t rows) const;

  Heads heads_;
  LatentSizes sizes_;
  Linear down_;
  std::optional<Norm> query_norm_;
  Norm key_norm_;
  Linear query_up_, key_up_;
};

}  // namespace axonn
