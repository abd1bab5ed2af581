#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Options of layers that a model's config holds. Plain data.

namespace axonn {

enum class RopeScalingKind { none, llama3, yarn, longrope, linear, proportional };

inline constexpr std::array<std::string_view, 6> kRopeScalingKinds = {
    "none", "llama3", "yarn", "longrope", "linear", "proportional"};

/// Scaling of the rotary frequencies, with which a model trained on sequences of
/// `original_positions` learns longer ones. Frequency f_i of pair i, which turns
/// t_i = original_positions · f_i / (2 pi) times over these, becomes (1 - s) · f_i / factor +
/// s · f_i.
///
///   llama3   s = (t_i - low_freq_factor) / (high_freq_factor - low_freq_factor), within 0 and 1
///   yarn     s = 1 - (i - first) / (last - first), within 0 and 1: first and last are the pairs,
///            fractions, that turn beta_fast and beta_slow times; with `truncate`, the integers
///            below and above. Cosines and sines are multiplied by attention_factor.
///   linear   s = 0
///   proportional   s = 1 for the first `share` of the pairs; the others do not rotate
///
/// With longrope, f_i becomes f_i / short_factors[i], or f_i / long_factors[i] in sequences longer
/// than original_positions; cosines and sines are multiplied by attention_factor in both.
///
/// Sources: "The Llama 3 herd of models", 2024; Peng et al., "YaRN: Efficient context window
/// extension of large language models", 2023; Ding et al., "LongRoPE: Extending LLM context window
/// beyond 2 million tokens", 2024.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 8;
  std::int64_t original_positions = 8192;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< of llama3
  double beta_fast = 32, beta_slow = 1;              ///< of yarn
  /// Of yarn and longrope; 0: 0.1 ln(factor) + 1, sqrt(1 + ln(factor) / ln(original_positions)).
  double attention_factor = 0;
  bool truncate = true;  ///< of yarn
  double share = 1;      ///< of proportional
  /// Of longrope, a number for each pair of columns that rotate.
  std::vector<double> short_factors = {}, long_factors = {};

  bool operator==(const RopeScaling&) const = default;
};

/// The sizes of a gated delta net.
struct DeltaSizes {
  std::int64_t key_heads = 16;    ///< of queries and keys; divides value_heads
  std::int64_t value_heads = 32;  ///< N
  std::int64_t key_dim = 128;     ///< K, columns of a head's queries and keys
  std::int64_t value_dim = 128;   ///< V
  std::int64_t taps = 4;  ///< rows that the convolution reads, its own the last; 2 to kMostTaps
  static constexpr std::int64_t kMostTaps = 64;

  bool operator==(const DeltaSizes&) const = default;
};

/// Small adapters that are trained instead of the model (adapter.h); the section [lora].
struct LoraConfig {
  std::int64_t rank = 0;  ///< r; 0: no adapters, the model itself is trained
  double alpha = 16;      ///< an adapter's output is multiplied by alpha / rank
  double dropout = 0;     ///< probability that an element of an adapter's input is dropped
  /// Ends of layers' names, whole parts between dots: "q_proj", "layers.0.self_attn.q_proj"; empty:
  /// all layers.
  std::vector<std::string> targets = {};
  std::vector<std::int64_t> layers = {};  ///< blocks with adapters, counted from 0; empty: all
  /// Other ranks and alphas of some layers: "END NUMBER", END as in targets. The first that names a
  /// layer counts.
  std::vector<std::string> rank_pattern = {}, alpha_pattern = {};
  bool dora = false;  ///< adapters have magnitudes (adapter.h)
  /// Ends of names of modules that are trained whole, beside adapters: "lm_head", "self_attn".
  std::vector<std::string> modules = {};
  std::string path = {};  ///< adapters to start from, which set all of these but dropout
  /// If not empty: adapters side by side, of which each sequence of a generation uses one or none
  /// (AdapterRows). Of the fields above only `rank` counts then: it is not 0.
  std::vector<LoraConfig> choices = {};

  bool operator==(const LoraConfig&) const = default;
};

/// Whether blocks may have different adapters.
bool differs_by_block(const LoraConfig& config);

/// How a router turns logits into scores: over all experts together, or of each expert alone.
enum class RouterKind { softmax, sigmoid };

inline constexpr std::array<std::string_view, 2> kRouterKinds = {"softmax", "sigmoid"};

/// Over which tokens the balance loss of experts takes its means.
enum class BalanceScope {
  sequence,      ///< each sequence; does not depend on the grid or the micro-batch
  batch,         ///< a micro-batch of all ranks
  hugging_face,  ///< the same, and over the layers together, times experts_per_token
};
inline constexpr std::array<std::string_view, 3> kBalanceScopes = {"sequence", "batch",
                                                                   "hugging_face"};

/// How a training keeps experts equally busy; the keys balance.scope to balance.bias.
struct BalanceConfig {
  BalanceScope scope = BalanceScope::sequence;
  double weight = 0;  ///< of the balance loss, α
  double z = 0;       ///< of the squared log-sum of the router's logits, β
  double bias = 0;    ///< step of the router's bias, u; needs model.router_bias
  /// Rows that a plan gives the rank with the busiest experts, over the mean.
  double expected_load = 1;
};

}  // namespace axonn
