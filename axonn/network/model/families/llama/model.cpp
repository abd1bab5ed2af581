#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/decoder.h"
#include "axonn/network/model/families/llama/llama.h"
#include "axonn/network/model/mtp_layer.h"
#include "axonn/network/nn/attention/delta_net.h"
#include "axonn/network/nn/attention/gated_attention.h"
#include "axonn/network/nn/attention/latent_attention.h"
#include "axonn/network/nn/attention/rope.h"
#include "axonn/network/nn/attention/sinks.h"
#include "axonn/network/nn/attention/value_norm.h"
#include "axonn/network/nn/experts/experts.h"
#include "axonn/network/nn/experts/row_gate.h"
#include "axonn/network/nn/pointwise.h"
#include "axonn/network/nn/xielu.h"

namespace axonn {

namespace {

Norm::Options norm_of(const ModelConfig& config) {
  return {.width = config.hidden,
          .kind = config.norm == NormKind::rms ? Norm::Kind::rms : Norm::Kind::layer,
          .bias = config.norm == NormKind::layer,
          .eps = static_cast<float>(config.norm_eps),
          .plus_one = config.norm_plus_one};
}

/// The gated linear unit of dense MLPs and experts.
ops::Gate gate_of(const ModelConfig& config) {
  if (config.activation == MlpKind::geglu) return {ops::GateKind::gelu};
  if (config.activation != MlpKind::clamped_swiglu) return {ops::GateKind::silu};
  return {ops::GateKind::clamped, static_cast<float>(config.swiglu_alpha),
          static_cast<float>(config.swiglu_limit)};
}

/// The MLP of Llama, with a gate or without; see MlpKind.
class LlamaMlp {
 public:
  struct Options {
    MlpKind kind;
    ops::Gate gate;
    Linear::Options up;  ///< of the gate and of up, joined, or of up alone
    Linear::Options down;
  };
  LlamaMlp(ParameterGroup& group, const std::string& name, const Options& options)
      : kind_(options.kind),
        gate_(options.gate),
        up_(group, name, options.up),
        down_(group, name + ".down_proj", options.down) {
    if (kind_ == MlpKind::xielu) xielu_.emplace(group, name + ".act_fn");
  }

  Var operator()(const Context& ctx, const Var& x) const { return down_(ctx, hidden(ctx, x)); }

 private:
  Var hidden(const Context& ctx, const Var& x) const {
    if (kind_ == MlpKind::gelu) return up_.gelu(ctx, x);
    const Var up = up_(ctx, x);
    if (kind_ == MlpKind::xielu) return (*xielu_)(ctx, up);
    if (kind_ == MlpKind::relu2) return squared_relu(ctx, up);
    return swiglu(ctx, up, gate_);
  }

  MlpKind kind_;
  ops::Gate gate_;
  Linear up_, down_;
  std::optional<Xielu> xielu_;
};

/// The norms of attention, or of the MLP.
class Norms {
 public:
  struct Names {
    std::string input, output;
  };
  Norms(ParameterGroup& group, const ModelConfig& config, const Names& names) {
    const BlockNormKind kind = config.block_norm;
    if (kind != BlockNormKind::output) input_.emplace(group, names.input, norm_of(config));
    if (kind == BlockNormKind::output || kind == BlockNormKind::both)
      output_.emplace(group, names.output, norm_of(config));
  }

  BlockNorms get() const { return {input_ ? &*input_ : nullptr, output_ ? &*output_ : nullptr}; }

 private:
  std::optional<Norm> input_, output_;
};

class LlamaBlock final : public DecoderBlock {
 public:
  /// What the layers of one model may differ in.
  struct Layer {
    std::int64_t window;   ///< positions that attention sees; 0: all
    const Rope* rope;      ///< shared by blocks, outlives them; null: no rotary positions
    std::int64_t keys_of;  ///< the layer whose keys and values it uses
    bool own_keys, gives_keys;
    bool delta;    ///< whether it has a gated delta net in place of attention
    bool rotates;  ///< false: `rope`, if there is one, only lets queries grow
    /// With experts, its number among the layers that have some.
    std::optional<std::int64_t> routed;
  };
  LlamaBlock(const ModelConfig& config, const Grid& grid, const std::string& name,
             const Layer& layer)
      : DecoderBlock(config, grid, name, layer.window),
        rope_(layer.rope),
        attends_{attention_heads(heads_, layer)},
        queries_{query_heads(heads_, layer)},
        gives_keys_(layer.gives_keys),
        norms_rotated_(config.qk_norm == QkNormKind::rotated_head),
        values_are_keys_(config.full_values_are_keys && layer.window == 0 && layer.own_keys),
        held_(name + ".mlp.experts", grid, Holders::same_experts),
        attention_norms_(parameters_, config,
                         {name + ".input_layernorm", name + ".post_attention_layernorm"}),
        parallel_(config.block_norm == BlockNormKind::parallel) {
    if (layer.delta)
      add_delta(config, name + ".linear_attn");
    else
      add_attention(config, name + ".self_attn");
    if (!parallel_)
      mlp_norms_.emplace(
          parameters_, config,
          Norms::Names{name + mlp_norm(config), name + ".post_feedforward_layernorm"});
    held_.set_rate(1 / config.width_factor());
    held_codes_.emplace(held_, config, Coded::products, Holders::same_experts);
    if (layer.routed)
      experts_.emplace(parameters_, held_, name + ".mlp", expert_options(config, *layer.routed));
    const std::int64_t times = config.double_shared_ffn && !layer.own_keys ? 2 : 1;
    if (!layer.routed)
      mlp_.emplace(parameters_, name + ".mlp", mlp_options(config, times * config.ffn));
    else if (config.shared_ffn > 0)
      mlp_.emplace(parameters_, name + ".mlp.shared_experts",
                   mlp_options(config, times * config.shared_ffn));
    if (layer.routed && config.shared_gate)
      shared_gate_.emplace(parameters_, name + ".mlp.shared_expert_gate", config.hidden,
                           init_std(config));
    if (layer.routed && config.expert_block_norms) {
      const auto norm = [&](const char* of) {
        return Norm(parameters_, name + of, norm_of(config));
      };
      own_norms_ =
          OwnNorms{norm(".post_feedforward_layernorm_1"), norm(".pre_feedforward_layernorm_2"),
                   norm(".post_feedforward_layernorm_2"), norm(".mlp.gate.norm"),
                   1 / std::sqrt(static_cast<float>(config.hidden))};
    }
    if (config.qk_norm == QkNormKind::rotated_plain && layer.rotates)
      norms_queries_ = static_cast<float>(config.norm_eps);
    if (config.layer_input > 0) add_layer_input(config, name);
    if (config.layer_factor)
      factor_ =
          &parameters_.add({.name = name + ".layer_scalar", .layout = {.rows = 1}, .init_mean = 1});
  }

  Var operator()(const Context& ctx, Var x) const override {
    return with_inputs(ctx, std::move(x), {});
  }
  Var with_inputs(const Context& ctx, Var x, const BlockInputs& inputs) const override {
    Var keys_values = inputs.keys_values;
    if (parallel_)
      return residual(ctx, x, attention_norms_.get(), [&](const Var& in) {
        return add(ctx, attend(ctx, in, keys_values), feed_forward(ctx, in, x));
      });
    x = residual(ctx, x, attention_norms_.get(), [&](Var in) {
      return attend(ctx, std::exchange(in, {}), keys_values);  // whose memory attention may need
    });
    x = residual(ctx, x, mlp_norms_->get(),
                 [&](const Var& in) { return feed_forward(ctx, in, x); });
    if (layer_input_) x = add(ctx, x, layer_input_->admit(ctx, x, inputs.of_layer));
    if (factor_) x = scale_by_constant(ctx, x, *factor_);
    if (gives_keys_) x.append(keys_values);
    return x;
  }

  std::vector<ParameterGroup*> groups() override {
    std::vector<ParameterGroup*> all = DecoderBlock::groups();
    if (experts_ && !held_.parameters().empty()) all.push_back(&held_);
    if (experts_) std::ranges::copy(held_codes_->groups(), std::back_inserter(all));
    return all;
  }
  const Experts* experts() const override { return experts_ ? &*experts_ : nullptr; }

 private:
  /// Declares attention's products.
  void add_attention(const ModelConfig& config, const std::string& name) {
    const bool latent = config.kv_lora_rank > 0;
    if (latent)
      latent_.emplace(parameters_, name, latent_options(config));
    else
      qkv_.emplace(parameters_, queries_.makes_keys() ? name : name + ".q_proj",
                   products_options(config));
    const std::int64_t width = latent ? config.v_head_dim : heads_.head_dim;
    project_.emplace(parameters_, name + ".o_proj",
                     residual_options(config, heads_.heads * width, width, config.out_bias));
    gates_heads_ = config.attention_gate;
    const QkNormOptions of_heads{static_cast<float>(config.norm_eps), config.norm_plus_one};
    if (config.qk_norm == QkNormKind::width)
      qk_norm_ = QkWidthNorm(parameters_, name, heads_, of_heads);
    else if (config.qk_norm != QkNormKind::none && config.qk_norm != QkNormKind::rotated_plain)
      qk_norm_ = QkNorm(parameters_, name, queries_, of_heads);
    if (config.value_norm && queries_.makes_keys())
      norms_values_ = static_cast<float>(config.norm_eps);
    if (config.sinks) sinks_.emplace(parameters_, name, heads_, init_std(config));
  }
  void add_delta(const ModelConfig& config, const std::string& name) {
    const DeltaSizes& sizes = config.delta;
    delta_.emplace(parameters_, name,
                   DeltaNet::Options{.width = config.hidden,
                                     .sizes = sizes,
                                     .init_std = init_std(config),
                                     .eps = static_cast<float>(config.norm_eps),
                                     .adapters = &adapters_});
    project_.emplace(
        parameters_, name + ".out_proj",
        residual_options(config, sizes.value_heads * sizes.value_dim, sizes.value_dim, false));
  }
  /// Those of attention.
  static Heads attention_heads(Heads heads, const Layer& layer) {
    if (!layer.own_keys) heads.cached_by = layer.keys_of;
    return heads;
  }
  /// Those that the block's own product makes: without keys of its own, of queries alone.
  static Heads query_heads(Heads heads, const Layer& layer) {
    if (!layer.own_keys) heads.features = {{heads.head_dim}};
    return heads;
  }
  void add_layer_input(const ModelConfig& config, const std::string& name) {
    layer_input_.emplace(
        LayerInput{Linear(parameters_, name + ".per_layer_input_gate",
                          up_options(config, config.layer_input, false)),
                   Linear(parameters_, name + ".per_layer_projection",
                          residual_options(config, config.layer_input, 1, false)),
                   Norm(parameters_, name + ".post_per_layer_input_norm", norm_of(config))});
  }
  Linear::Options products_options(const ModelConfig& config) {
    if (!queries_.makes_keys()) {
      Linear::Options options = qkv_options(config, config.qkv_bias);
      options.heads = queries_;
      options.out = queries_.qkv_width();
      return options;
    }
    std::vector<std::string> parts{"q_proj", "k_proj", "v_proj"};
    if (values_are_keys_) parts.pop_back();
    Linear::Options options = qkv_options(config, config.qkv_bias, std::move(parts));
    if (values_are_keys_) options.heads->features = {{heads_.head_dim}, {heads_.head_dim, true}};
    if (config.attention_gate) options.heads->features = gated_features(heads_);
    options.out = options.heads->qkv_width();
    return options;
  }
  LatentAttention::Options latent_options(const ModelConfig& config) {
    Heads heads = heads_;
    if (heads.scale == 0)
      heads.scale =
          1 / std::sqrt(static_cast<double>(config.qk_nope_head_dim + config.qk_rope_head_dim));
    return {.width = config.hidden,
            .heads = heads,
            .sizes = {.query_rank = config.q_lora_rank,
                      .key_rank = config.kv_lora_rank,
                      .rotated = config.qk_rope_head_dim,
                      .plain = config.qk_nope_head_dim,
                      .value = config.v_head_dim},
            .bias = config.qkv_bias,
            .init_std = init_std(config),
            .adapters = &adapters_};
  }

  /// `keys_values`: of another layer, if this one has none; else becomes those that it gives.
  Var attend(const Context& ctx, Var in, Var& keys_values) const {
    if (delta_) return (*project_)(ctx, (*delta_)(ctx, in));
    if (latent_) return (*project_)(ctx, (*latent_)(ctx, in, rope_));
    Var qkv = (*qkv_)(ctx, std::exchange(in, {})), gates;
    if (gates_heads_) {
      gates = gates_of_heads(ctx, qkv, heads_);
      qkv = without_gates(ctx, qkv, heads_);
    }
    if (values_are_keys_) qkv = keys_as_values(ctx, qkv, heads_);
    if (qk_norm_ && !norms_rotated_) qkv = qk_norm_(ctx, qkv);
    if (norms_values_) qkv = value_norm(ctx, qkv, heads_, *norms_values_);
    if (rope_) qkv = (*rope_)(ctx, std::move(qkv), queries_);
    if (qk_norm_ && norms_rotated_) qkv = qk_norm_(ctx, qkv);
    if (norms_queries_) qkv = query_key_norm(ctx, qkv, heads_, *norms_queries_);
    if (!queries_.makes_keys()) qkv = concat_columns(ctx, {qkv, keys_values});
    if (gives_keys_) keys_values = keys_and_values(ctx, qkv, heads_);
    Var out = attention(ctx, qkv, attends_, sinks_ ? &*sinks_ : nullptr);
    if (gates_heads_) out = multiply(ctx, out, sigmoid(ctx, gates));
    return (*project_)(ctx, out);
  }
  /// `in`: x after the norm at the MLP's input.
  Var feed_forward(const Context& ctx, const Var& in, const Var& x) const {
    if (!experts_) return (*mlp_)(ctx, in);
    if (own_norms_) return with_own_norms(ctx, in, x);
    const Var routed = (*experts_)(ctx, in);
    if (!mlp_) return routed;
    const Var beside = (*mlp_)(ctx, in);
    return add(ctx, routed, shared_gate_ ? (*shared_gate_)(ctx, beside, in) : beside);
  }
  /// Experts beside the MLP, each with a norm of its own at both ends; and the router with one.
  Var with_own_norms(const Context& ctx, const Var& in, const Var& x) const {
    const Var of_router = scale(ctx, own_norms_->router(ctx, x), own_norms_->router_scale);
    const Var routed = (*experts_)(ctx, own_norms_->input(ctx, x), of_router);
    return add(ctx, own_norms_->of_mlp(ctx, (*mlp_)(ctx, in)), own_norms_->of_experts(ctx, routed));
  }
  /// Of the norm at the MLP's input; Llama calls it after what stands before it.
  static const char* mlp_norm(const ModelConfig& config) {
    return config.block_norm == BlockNormKind::both ? ".pre_feedforward_layernorm"
                                                    : ".post_attention_layernorm";
  }
  /// Of an MLP of this width.
  LlamaMlp::Options mlp_options(const ModelConfig& config, std::int64_t width) {
    Linear::Options up = up_options(config, width, config.mlp_bias);
    up.parts = {"up_proj"};
    if (config.has_gate()) {
      up.out = 2 * width;
      up.segments.push_back(up.segments.front());
      up.parts.insert(up.parts.begin(), "gate_proj");
    }
    return {config.activation, gate_of(config), up,
            residual_options(config, width, 1, config.mlp_bias)};
  }
  Experts::Options expert_options(const ModelConfig& config, std::int64_t routed) {
    return {.width = config.hidden,
            .ffn = config.expert_ffn,
            .experts = config.experts,
            .per_token = config.experts_per_token,
            .router = config.router,
            .normalised = config.expert_norm,
            .scale = config.router_scale,
            .bias = config.router_bias,
            .logit_bias = config.router_logit_bias,
            .expert_bias = config.expert_bias,
            .scales_input = config.expert_input_scores,
            .factors = config.expert_block_norms,
            .activation = gate_of(config),
            .groups = config.expert_groups,
            .kept_groups = config.expert_groups_per_token,
            .group_best = config.expert_group_best,
            .init_std = init_std(config),
            .down_init_std = residual_options(config, config.expert_ffn, 1, false).init_std,
            .layer = routed};
  }

  const Rope* rope_;
  const Heads attends_, queries_;  // of attention; that the block's own product makes
  bool gives_keys_;                // to other layers
  bool norms_rotated_;             // whether queries and keys are normed after rotary positions
  bool values_are_keys_;
  std::optional<float> norms_values_, norms_queries_;  // the eps of norms without weights
  const Parameter* factor_ = nullptr;                  // of the output
  ParameterGroup held_;                                // of experts; empty without
  std::optional<CodedGroups> held_codes_;              // of held_
  Norms attention_norms_;
  std::optional<DeltaNet> delta_;  // in place of attention
  std::optional<Linear> qkv_;      // or latent_
  bool gates_heads_ = false;
  std::optional<LatentAttention> latent_;
  std::function<Var(const Context&, const Var&)> qk_norm_;  // empty: none
  std::optional<Sinks> sinks_;
  std::optional<Linear> project_;
  bool parallel_;  // whether attention and MLP have one norm, and no sum between them
  std::optional<Norms> mlp_norms_;
  /// Norms inside of a block whose experts have some of their own.
  struct OwnNorms {
    Norm of_mlp, input, of_experts, router;
    float router_scale;  // of the router's input
  };
  std::optional<OwnNorms> own_norms_;
  /// What lets a layer's input in.
  struct LayerInput {
    Linear gate, project;
    Norm norm;

    Var admit(const Context& ctx, const Var& x, const Var& input) const {
      return norm(ctx, project(ctx, multiply(ctx, gate.gelu(ctx, x), input)));
    }
  };
  std::optional<LayerInput> layer_input_;
  std::optional<LlamaMlp> mlp_;         // beside experts: that of all tokens, if there is one
  std::optional<RowGate> shared_gate_;  // of that one
  std::optional<Experts> experts_;
};

class Llama final : public Decoder {
 public:
  Llama(const ModelConfig& config, const Grid& grid)
      : Decoder(config, grid,
                {.embedding = {"model.embed_tokens.weight", ""},
                 .norm = "model.norm",
                 .norm_options = norm_of(config)}),
        rope_(rope_of(config, config.rope_theta, config.rope, config.head_width(0))) {
    if (config.has_window_rope())
      window_rope_ = rope_of(
          config, config.window_rope_theta > 0 ? config.window_rope_theta : config.rope_theta,
          config.window_rope_scaling ? config.rope : RopeScaling{}, config.head_width());
    for (std::int64_t i = 0; i < config.layers; ++i) add(block(config, grid, i));
    for (std::int64_t i = config.layers; i < config.layers + config.mtp_layers; ++i)
      add_mtp(std::make_unique<MtpLayer>(config, grid, name_of(i), norm_of(config),
                                         block(config, grid, i)));
  }

 private:
  static std::string name_of(std::int64_t layer) { return concat("model.layers.", layer); }
  /// Also of layers behind the model's, which have their own keys.
  std::unique_ptr<LlamaBlock> block(const ModelConfig& config, const Grid& grid, std::int64_t i) {
    const std::int64_t window = config.window_of(i),
                       keys_of = i < config.layers ? config.keys_of(i) : i;
    const Rope* rope = window > 0 && window_rope_ ? &*window_rope_ : &rope_;
    if (!config.has_rope(i))
      rope = config.nope_query_growth > 0 ? growing_queries(config, config.head_width(window))
                                          : nullptr;
    std::optional<std::int64_t> number;
    if (config.has_experts(i)) number = routed();
    return std::make_unique<LlamaBlock>(config, grid, name_of(i),
                                        LlamaBlock::Layer{.window = window,
                                                          .rope = rope,
                                                          .keys_of = keys_of,
                                                          .own_keys = keys_of == i,
                                                          .gives_keys = config.gives_keys(i),
                                                          .delta = config.has_delta(i),
                                                          .rotates = config.has_rope(i),
                                                          .routed = number});
  }
  /// Of heads of this width.
  static Rope rope_of(const ModelConfig& config, double theta, const RopeScaling& scaling,
                      std::int64_t head) {
    const std::int64_t width = config.rotary_width(head);
    LongFrequencies longer;
    if (scaling.kind == RopeScalingKind::longrope)
      longer = {long_rope_frequencies(width, theta, scaling), scaling.original_positions};
    return Rope(rope_frequencies(width, theta, scaling),
                {.magnitude = rope_magnitude(scaling),
                 .longer = std::move(longer),
                 .neighbours = config.rope_pairs == RopePairs::neighbours,
                 .queries = {config.query_growth, config.rope.original_positions}});
  }
  /// Of layers without rotary positions whose heads have this width: angles of 0.
  const Rope* growing_queries(const ModelConfig& config, std::int64_t width) {
    const Rope::Options options = {
        .queries = {config.nope_query_growth, config.nope_query_positions, 1}};
    return &nope_ropes_.try_emplace(width, std::vector<double>(width / 2), options).first->second;
  }
  void prepare(const Context& ctx, const Tokens& tokens) override {
    rope_.prepare(ctx, tokens.rows);
    for (auto& [width, rope] : nope_ropes_) rope.prepare(ctx, tokens.rows);
    if (window_rope_) window_rope_->prepare(ctx, tokens.rows);
  }

  Rope rope_;
  std::map<std::int64_t, Rope> nope_ropes_;  // without positions, queries grow; by heads' width
  std::optional<Rope> window_rope_;          // of layers with a window, if theirs is another
};

}  // namespace

std::unique_ptr<Model> make_llama(const ModelConfig& config, const Grid& grid) {
  return std::make_unique<Llama>(config, grid);
}

}  // namespace axonn
