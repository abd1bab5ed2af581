#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/dtype.h"
#include "axonn/foundation/options/own_values.h"
#include "axonn/network/nn/options.h"

namespace axonn {

class ModelFiles;
class OptionList;

/// The families of this library; those that a program registers (model/model.h) follow.
enum class ModelFamily { gpt, llama, opt };

/// Names of all families, in the order of their values.
std::span<const std::string_view> model_families();
/// The family of this name, such as a registered one: model_family("neighbours"). Throws
/// UsageError, with the names of all, if there is none.
ModelFamily model_family(std::string_view name);

/// RMSNorm of queries and keys: of each head (Qwen3), of all heads' columns together (OLMoE), of
/// each head after rotary positions (HunYuan), or that without weights, in layers with rotary
/// positions alone (Llama 4).
enum class QkNormKind { none, head, width, rotated_head, rotated_plain };

inline constexpr std::array<std::string_view, 5> kQkNormKinds = {"none", "head", "width",
                                                                 "rotated-head", "rotated-plain"};

/// The MLP of the llama family: down(silu(gate x) ⊙ up x), down(xielu(up x)) without a gate, or
/// down(gelu(gate x) ⊙ up x), or without a gate down(gelu(up x)) or down(relu(up x)²), or
/// down(f(gate x, up x)) with the clamped f of ops::Gate (gpt-oss).
enum class MlpKind { swiglu, xielu, geglu, gelu, relu2, clamped_swiglu };

inline constexpr std::array<std::string_view, 6> kMlpKinds = {"swiglu", "xielu", "geglu",
                                                              "gelu",   "relu2", "clamped-swiglu"};

/// The norms of the llama family but those of queries and keys: RMSNorm, or LayerNorm with biases
/// or without.
enum class NormKind { rms, layer, layer_without_bias };

inline constexpr std::array<std::string_view, 3> kNormKinds = {"rms", "layer",
                                                               "layer-without-bias"};

/// Where the norms of attention and MLP stand: x + f(norm(x)), x + norm(f(x)) (OLMo 2), or
/// x + norm(f(norm(x))) (Gemma); or one norm for both in parallel, x + attention(n) + MLP(n) with
/// n = norm(x) (Command R).
enum class BlockNormKind { input, output, both, parallel };

inline constexpr std::array<std::string_view, 4> kBlockNormKinds = {"input", "output", "both",
                                                                    "parallel"};

/// The columns of a head that rotary positions rotate together: i and i + D/2, or 2i and 2i + 1.
enum class RopePairs { halves, neighbours };

inline constexpr std::array<std::string_view, 2> kRopePairs = {"halves", "neighbours"};

/// Kinds of codes of matrices: one for all, or by parameter.
class KeptKinds {
 public:
  using ByName = std::map<std::string, Quantization, std::less<>>;
  KeptKinds() = default;
  explicit KeptKinds(Quantization all) : all_(all) {}
  explicit KeptKinds(ByName kinds) : by_name_(std::make_shared<const ByName>(std::move(kinds))) {}

  /// none: the parameter is kept in the compute type.
  Quantization as(std::string_view parameter) const {
    if (!by_name_) return all_;
    const auto found = by_name_->find(parameter);
    return found == by_name_->end() ? Quantization::none : found->second;
  }
  bool any_as(Quantization kind) const {
    if (!by_name_) return all_ == kind;
    return std::ranges::any_of(*by_name_, [&](const auto& one) { return one.second == kind; });
  }
  bool operator==(const KeptKinds& other) const {
    const bool both = by_name_ && other.by_name_;
    return all_ == other.all_ && (both ? *by_name_ == *other.by_name_ : by_name_ == other.by_name_);
  }
  bool empty() const { return by_name_ ? by_name_->empty() : all_ == Quantization::none; }

 private:
  Quantization all_ = Quantization::none;
  std::shared_ptr<const ByName> by_name_;
};

/// The section [model]: the sizes of a model, or the path it is read from. Plain data.
///
/// resolved() replaces a 0 by a value that follows from the others. layers, hidden and heads have
/// no default, and are 0 until the user sets them. Only gpt and opt read `bias`; only llama reads
/// activation to rope.
struct ModelConfig {
  ModelFamily family = ModelFamily::gpt;
  std::int64_t layers = 0;      ///< L
  std::int64_t mtp_layers = 0;  ///< layers behind them, each of which predicts a further token
  std::int64_t hidden = 0;      ///< C, the model width
  std::int64_t heads = 0;       ///< H
  std::int64_t kv_heads = 0;    ///< key-value heads; 0: heads
  std::int64_t head_dim = 0;    ///< D; 0: hidden / heads
  std::int64_t ffn = 0;         ///< F, the MLP width; 0: 4 hidden, or with swiglu 8/3 hidden
  std::int64_t vocab = 0;       ///< V, unpadded; 0: the tokenizer's
  std::int64_t positions = 0;   ///< the longest sequence; 0: training.seq_len
  bool tied = true;             ///< the logits' weight is the embedding's
  bool bias = true;             ///< biases in linear layers and, but for OPT, in norms
  double norm_eps = 1e-5;
  double init_std = 0.02;  ///< of the initial weights; projections into the residual: / sqrt(2 L)
  /// muP: the width, and the head width, that init_std and the settings of the optimizer are for.
  std::int64_t mup_base = 0;           ///< 0: not muP
  std::int64_t mup_base_head_dim = 0;  ///< 0: head_width()
  MlpKind activation = MlpKind::swiglu;
  double swiglu_limit = 7, swiglu_alpha = 1.702;  ///< of clamped-swiglu
  bool qkv_bias = false;                          ///< biases of queries, keys and values (Qwen2)
  bool out_bias = false;                          ///< of attention's output projection
  bool mlp_bias = false;                          ///< of the products of dense MLPs
  bool sinks = false;  ///< attention has a further score of each head without a value (gpt-oss)
  QkNormKind qk_norm = QkNormKind::none;
  NormKind norm = NormKind::rms;
  BlockNormKind block_norm = BlockNormKind::input;
  bool norm_plus_one = false;  ///< norms' factors are 1 + weight (Gemma)
  // Factors (Granite): of the embeddings; of scores, 0: 1 / sqrt(D); of what attention and MLP add
  // to the residual stream; of the logits.
  double embedding_scale = 1, attention_scale = 0, residual_scale = 1, logit_scale = 1;
  // Of layers without the window (Gemma 4): a head's width and key-value heads, 0: those of others;
  // whether their values are their keys, before these are normed.
  std::int64_t full_head_dim = 0, full_kv_heads = 0;
  bool full_values_are_keys = false;
  bool value_norm = false;    ///< values are divided by their root mean square
  bool layer_factor = false;  ///< a constant of each layer multiplies its output
  /// Width of an input of each layer by token that a gate lets in after the MLP; 0: none (Gemma 4).
  std::int64_t layer_input = 0;
  std::int64_t shared_kv_layers = 0;  ///< so many last layers have keys of others; see keys_of()
  bool double_shared_ffn = false;     ///< their MLPs are twice as wide
  /// Latent attention (DeepSeek): columns of the latents of keys and values, 0: it is not used, and
  /// of queries, 0: these have none; of a head's queries and keys without positions and with them,
  /// and of its values. head_dim follows from the last three.
  std::int64_t kv_lora_rank = 0, q_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 128, qk_rope_head_dim = 64, v_head_dim = 128;
  bool attention_gate = false;  ///< q_proj also makes gates of attention's output (Qwen3-Next)
  /// Layers, counted from 0, with a gated delta net in place of attention.
  std::vector<std::int64_t> delta_layers = {};
  DeltaSizes delta = {};  ///< the keys delta_key_heads to delta_taps
  /// Scores s of attention, and logits, become cap · tanh(s / cap) (Gemma 2); 0: they stay.
  double score_cap = 0, logit_cap = 0;
  std::int64_t window = 0;     ///< positions that attention sees, its own included; 0: all
  bool window_chunks = false;  ///< positions see those of their own chunk of `window` (Llama 4)
  std::vector<std::int64_t> full_layers = {};  ///< layers, counted from 0, without the window
  std::vector<std::int64_t> nope_layers = {};  ///< layers without rotary positions
  double rope_theta = 10000;                   ///< base of the rotary frequencies
  double partial_rotary_factor = 1;  ///< the share of a head's columns, the first, that rotate
  RopePairs rope_pairs = RopePairs::halves;
  RopeScaling rope = {};  ///< the keys rope_scaling and rope_factor to rope_truncate
  /// Queries at position p are multiplied by 1 + this · ln(1 + floor(p / rope.original_positions)).
  double query_growth = 0;
  /// The same in layers without rotary positions, by p + 1 and this many (Llama 4).
  double nope_query_growth = 0;
  std::int64_t nope_query_positions = 8192;
  double window_rope_theta = 0;        ///< the base in layers with the window; 0: rope_theta
  bool window_rope_scaling = true;     ///< whether layers with the window have rope's scaling, too
  std::int64_t experts = 0;            ///< E, experts of a layer's MLP; 0: all MLPs are dense
  std::int64_t experts_per_token = 0;  ///< k
  std::int64_t expert_ffn = 0;         ///< F of an expert; 0: ffn
  std::int64_t shared_ffn = 0;     ///< width of an MLP that all tokens have beside experts; 0: none
  bool shared_gate = false;        ///< the sigmoid of a product multiplies it (Qwen2-MoE)
  std::int64_t expert_groups = 1;  ///< equal groups of experts, of which a token uses some
  std::int64_t expert_groups_per_token = 1;
  std::int64_t expert_group_best = 2;  ///< so many best scores of a group count for its choice
  bool expert_norm = true;             ///< the chosen scores are divided by their sum
  std::int64_t expert_step = 1;        ///< every so many layers, the last one has experts
  std::vector<std::int64_t> dense_layers = {};  ///< layers without experts, counted from 0
  RouterKind router = RouterKind::softmax;
  double router_scale = 1;           ///< factor of the chosen scores
  bool expert_input_scores = false;  ///< scores multiply the inputs of experts (Llama 4)
  bool router_bias = false;          ///< a bias that only selects, see training.balance.bias
  bool router_logit_bias = false;    ///< a learned bias of the router's logits
  bool expert_bias = false;          ///< biases of the products of experts
  /// Experts, their router and the MLP beside them have norms of their own, and each expert a
  /// learned factor of its scores (Gemma 4).
  bool expert_block_norms = false;
  /// The type of Hugging Face's files, where the other options leave several: "phi3"; "": by them.
  std::string type = {};
  std::string name = {};  ///< a published model, whose sizes are the defaults of the fields above
  std::string path = {};  ///< a checkpoint or Hugging Face folder, instead of the sizes above
  /// How the matrices of the blocks' products are kept under adapters.
  Quantization quantize = Quantization::none;
  bool quantize_embeddings = false;  ///< of the table of tokens and the output layer, too
  KeptKinds file_kinds = {};         ///< those of the model's GGUF file, for Quantization::file
  /// Which matrices are kept as codes, and whether those at the ends of the model may be.
  KeptKinds kept() const {
    return quantize == Quantization::file ? file_kinds : KeptKinds(quantize);
  }
  bool codes_ends() const { return quantize_embeddings || quantize == Quantization::file; }
  LoraConfig lora = {};  ///< the section [lora]

  /// Hyperparameters of registered families, by "family.key"; one that is missing has its default.
  OwnValues own_values = {};
  /// Such a value, as own<std::int64_t>("neighbours.context"). Throws Error, with the keys that are
  /// near, if there is no such key, and with its type if that is not T.
  template <typename T>
  const T& own(const std::string& key) const {
    return own_value_as<T>(own_values, key);
  }

  bool is_llama() const { return family == ModelFamily::llama; }
  /// Whether dense MLPs have a matrix gate_proj beside up_proj and down_proj.
  bool has_gate() const {
    return is_llama() && (activation == MlpKind::swiglu || activation == MlpKind::geglu ||
                          activation == MlpKind::clamped_swiglu);
  }
  // Of a layer, counted from 0:

  /// Whether it has experts instead of a dense MLP.
  bool has_experts(std::int64_t layer) const {
    return experts > 0 && (layer + 1) % expert_step == 0 && !lists(dense_layers, layer);
  }
  /// The positions that its attention sees; 0: all.
  std::int64_t window_of(std::int64_t layer) const {
    return lists(full_layers, layer) ? 0 : window;
  }
  bool has_rope(std::int64_t layer) const { return !lists(nope_layers, layer); }
  /// Whether it has a gated delta net in place of attention.
  bool has_delta(std::int64_t layer) const { return lists(delta_layers, layer); }

  /// The layer whose keys and values it uses: itself, or the last one before the last
  /// shared_kv_layers that sees as many positions; -1: there is none.
  std::int64_t keys_of(std::int64_t layer) const {
    std::int64_t of = layer;
    if (layer < layers - shared_kv_layers) return of;
    for (of = layers - shared_kv_layers - 1; of >= 0 && window_of(of) != window_of(layer);) --of;
    return of;
  }
  /// Whether other layers use its keys and values.
  bool gives_keys(std::int64_t layer) const {
    for (std::int64_t other = layers - shared_kv_layers; other < layers; ++other)
      if (other != layer && keys_of(other) == layer) return true;
    return false;
  }

  /// All in which layers may differ but for adapters; to be compared.
  auto kind_of(std::int64_t layer) const {
    return std::tuple(has_experts(layer), window_of(layer), has_rope(layer), has_delta(layer),
                      keys_of(layer) == layer, gives_keys(layer));
  }

  /// The positions that attention sees in the layers that see most; 0: all.
  std::int64_t widest_window() const { return full_layers.empty() ? window : 0; }
  /// Whether layers with the window have other rotary frequencies than those without.
  bool has_window_rope() const {
    return window > 0 &&
           (full_head_dim > 0 || (window_rope_theta > 0 && window_rope_theta != rope_theta) ||
            (!window_rope_scaling && rope.kind != RopeScalingKind::none));
  }
  /// m, how many times as wide as muP's base; 1 without muP.
  double width_factor() const {
    return mup_base > 0 ? static_cast<double>(hidden) / static_cast<double>(mup_base) : 1;
  }
  /// D; 0 if there are no heads. With latent attention the wider one of keys and values.
  std::int64_t head_width() const {
    if (kv_lora_rank > 0) return std::max(qk_nope_head_dim + qk_rope_head_dim, v_head_dim);
    return head_dim > 0 || heads == 0 ? head_dim : hidden / heads;
  }
  /// The same of a layer that sees `window` positions, 0: all; and its key-value heads.
  std::int64_t head_width(std::int64_t of_window) const {
    return of_window == 0 && full_head_dim > 0 ? full_head_dim : head_width();
  }
  std::int64_t kv_heads_of(std::int64_t of_window) const {
    return of_window == 0 && full_kv_heads > 0 ? full_kv_heads : kv_heads;
  }
  /// The columns of a head, of so many, that rotate; the others are the same at all positions.
  std::int64_t rotary_width() const { return rotary_width(head_width()); }
  std::int64_t rotary_width(std::int64_t of_head) const {
    if (kv_lora_rank > 0) return qk_rope_head_dim;
    return static_cast<std::int64_t>(static_cast<double>(of_head) * partial_rotary_factor);
  }
  /// The names of the products of the family llama's attention, for messages.
  std::string_view attention_products() const {
    if (kv_lora_rank == 0) return "q_proj, k_proj, v_proj, o_proj";
    return q_lora_rank > 0 ? "q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj"
                           : "q_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj";
  }
  /// Sequences longer than this have other rotary frequencies than shorter ones; 0: none have.
  std::int64_t short_sequences() const {
    return is_llama() && rope.kind == RopeScalingKind::longrope ? rope.original_positions : 0;
  }
  bool operator==(const ModelConfig&) const = default;

 private:
  static bool lists(const std::vector<std::int64_t>& layers, std::int64_t layer) {
    return std::ranges::find(layers, layer) != layers.end();
  }
};

/// The files at path, lora.path and those of lora.choices of a model, each null until it is opened.
/// The ranks of a process share them.
struct OpenFiles {
  std::shared_ptr<const ModelFiles> model = {}, adapters = {};
  std::vector<std::shared_ptr<const ModelFiles>> choices = {};
};

/// The config with every 0 replaced by the value it stands for. `vocab` is the tokenizer's and
/// `positions` training.seq_len; if one of these is 0, the config's 0 stays.
ModelConfig resolved(ModelConfig model, std::int64_t vocab, std::int64_t positions);

/// The keys of [model] that must be set and are not: "model.layers". None if the model is read from
/// a path or its family is registered.
std::vector<std::string> missing_keys(const ModelConfig& model);

/// Throws UsageError, with the keys and the remedy, if sizes are missing or do not fit one another.
/// Whether a grid can cut them is checked by the layers.
void validate(const ModelConfig& model);

/// The one list of the keys of [model] and [lora]; parsing, help, printing and docs follow from it.
void list_options(ModelConfig& model, OptionList& list);
/// Lists the sections of registered families; sets their keys that are not set to defaults.
void list_own_options(ModelConfig& model, OptionList& list);

}  // namespace axonn
