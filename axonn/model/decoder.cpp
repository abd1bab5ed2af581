#include "axonn/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>

#include "axonn/base/check.h"
#include "axonn/nn/adapter.h"
#include "axonn/nn/experts.h"
#include "axonn/nn/linear.h"
#include "axonn/nn/pointwise.h"
#include "axonn/nn/rope.h"
#include "axonn/nn/xielu.h"

namespace axonn {

namespace {

Norm::Options norm_options(const ModelConfig& config) {
  return {.width = config.hidden,
          .kind = config.is_llama() ? Norm::Kind::rms : Norm::Kind::layer,
          .bias = config.bias,
          .eps = static_cast<float>(config.norm_eps)};
}

/// The standard deviation of the initial weights of a block's products.
double block_std(const ModelConfig& config) {
  return config.init_std / std::sqrt(config.width_factor());
}

/// A block: parameters, and adapters and experts if the config has them.
class DecoderBlock {
 public:
  DecoderBlock(const ModelConfig& config, const Grid& grid, const std::string& name)
      : parameters_(name, grid),
        adapters_(name, grid, config.lora),
        heads_{config.heads, config.kv_heads, config.head_width(),
               config.is_llama() ? config.window : 0, config.mup_base_head_dim} {
    // Vectors keep the rate of the base.
    parameters_.set_rate(1 / config.width_factor());
  }
  virtual ~DecoderBlock() = default;

  virtual Var operator()(const Context& ctx, Var x) const = 0;

  /// All of the block's groups, in the order in which they are gathered.
  virtual std::vector<ParameterGroup*> groups() {
    std::vector<ParameterGroup*> all{&parameters_};
    if (ParameterGroup* adapters = adapters_.group()) all.push_back(adapters);
    return all;
  }
  Adapters& adapters() { return adapters_; }
  /// The experts of its MLP; null if that is dense.
  virtual const Experts* experts() const { return nullptr; }

 protected:
  Linear::Options qkv_options(const ModelConfig& config, bool bias,
                              std::vector<std::string> parts = {}) {
    return {.in = config.hidden,
            .out = heads_.qkv_width(),
            .bias = bias,
            .init_std = block_std(config),
            .heads = heads_,
            .parts = std::move(parts),
            .adapters = &adapters_};
  }
  /// Of a product that projects into the residual stream. As in GPT-2, its initial weights are
  /// smaller in deeper models, so that the variance of the stream does not grow with depth.
  Linear::Options residual_options(const ModelConfig& config, std::int64_t in) {
    return {.in = in,
            .out = config.hidden,
            .orientation = Orientation::transposed,
            .bias = config.bias && !config.is_llama(),
            .init_std = block_std(config) / std::sqrt(2.0 * static_cast<double>(config.layers)),
            .adapters = &adapters_};
  }

  ParameterGroup parameters_;
  Adapters adapters_;
  const Heads heads_;
};

class GptBlock final : public DecoderBlock {
 public:
  GptBlock(const ModelConfig& config, const Grid& grid, const std::string& name)
      : DecoderBlock(config, grid, name),
        norm1_(parameters_, name + ".ln_1", norm_options(config)),
        qkv_(parameters_, name + ".attn.c_attn", qkv_options(config, config.bias)),
        project_(parameters_, name + ".attn.c_proj", residual_options(config, heads_.out_width())),
        norm2_(parameters_, name + ".ln_2", norm_options(config)),
        up_(parameters_, name + ".mlp.c_fc",
            {.in = config.hidden,
             .out = config.ffn,
             .bias = config.bias,
             .init_std = block_std(config),
             .adapters = &adapters_}),
        down_(parameters_, name + ".mlp.c_proj", residual_options(config, config.ffn)) {}

  Var operator()(const Context& ctx, Var x) const override {
    x = add(ctx, x, project_(ctx, attention(ctx, qkv_(ctx, norm1_(ctx, x)), heads_)));
    return add(ctx, x, down_(ctx, up_.gelu(ctx, norm2_(ctx, x))));
  }

 private:
  Norm norm1_;
  Linear qkv_, project_;
  Norm norm2_;
  Linear up_, down_;
};

/// The MLP of Llama, down(silu(gate · x) ⊙ up · x), or without a gate down(xielu(up · x)).
class LlamaMlp {
 public:
  /// up: of the gate and of up, joined, or of up alone.
  LlamaMlp(ParameterGroup& group, const std::string& name, const Linear::Options& up,
           const Linear::Options& down)
      : up_(group, name, up), down_(group, name + ".down_proj", down) {
    if (up.parts.size() == 1) xielu_.emplace(group, name + ".act_fn");
  }

  Var operator()(const Context& ctx, const Var& x) const {
    const Var up = up_(ctx, x);
    return down_(ctx, xielu_ ? (*xielu_)(ctx, up) : swiglu(ctx, up));
  }

 private:
  Linear up_, down_;
  std::optional<Xielu> xielu_;
};

class LlamaBlock final : public DecoderBlock {
 public:
  /// `rope` is shared by all blocks of the model, and must outlive them. With experts, the block is
  /// number `routed` among those that have some.
  LlamaBlock(const ModelConfig& config, const Grid& grid, const std::string& name, const Rope& rope,
             std::optional<std::int64_t> routed)
      : DecoderBlock(config, grid, name),
        rope_(rope),
        held_(name + ".mlp.experts", grid, Holders::same_experts),
        norm1_(parameters_, name + ".input_layernorm", norm_options(config)),
        qkv_(parameters_, name + ".self_attn",
             qkv_options(config, config.qkv_bias, {"q_proj", "k_proj", "v_proj"})),
        project_(parameters_, name + ".self_attn.o_proj",
                 residual_options(config, heads_.out_width())),
        norm2_(parameters_, name + ".post_attention_layernorm", norm_options(config)) {
    held_.set_rate(1 / config.width_factor());
    if (routed)
      experts_.emplace(parameters_, held_, name + ".mlp", expert_options(config, *routed));
    else
      mlp_.emplace(parameters_, name + ".mlp", up_options(config),
                   residual_options(config, config.ffn));
    const auto eps = static_cast<float>(config.norm_eps);
    if (config.qk_norm == QkNormKind::head)
      qk_norm_ = QkNorm(parameters_, name + ".self_attn", heads_, eps);
    else if (config.qk_norm == QkNormKind::width)
      qk_norm_ = QkWidthNorm(parameters_, name + ".self_attn", heads_, eps);
  }

  Var operator()(const Context& ctx, Var x) const override {
    Var qkv = qkv_(ctx, norm1_(ctx, x));
    if (qk_norm_) qkv = qk_norm_(ctx, qkv);
    x = add(ctx, x, project_(ctx, attention(ctx, rope_(ctx, std::move(qkv), heads_), heads_)));
    const Var normed = norm2_(ctx, x);
    return add(ctx, x, experts_ ? (*experts_)(ctx, normed) : (*mlp_)(ctx, normed));
  }

  std::vector<ParameterGroup*> groups() override {
    std::vector<ParameterGroup*> all = DecoderBlock::groups();
    if (experts_) all.push_back(&held_);
    return all;
  }
  const Experts* experts() const override { return experts_ ? &*experts_ : nullptr; }

 private:
  Linear::Options up_options(const ModelConfig& config) {
    Linear::Options up{.in = config.hidden,
                       .out = config.ffn,
                       .bias = false,
                       .init_std = block_std(config),
                       .segments = {{.rows = config.ffn}},
                       .parts = {"up_proj"},
                       .adapters = &adapters_};
    if (!config.has_gate()) return up;
    up.out = 2 * config.ffn;
    up.segments.push_back({.rows = config.ffn});
    up.parts.insert(up.parts.begin(), "gate_proj");
    return up;
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
            .init_std = block_std(config),
            .down_init_std = residual_options(config, config.expert_ffn).init_std,
            .layer = routed};
  }

  const Rope& rope_;
  ParameterGroup held_;  // of experts; empty without
  Norm norm1_;
  Linear qkv_;
  std::function<Var(const Context&, const Var&)> qk_norm_;  // empty: none
  Linear project_;
  Norm norm2_;
  std::optional<LlamaMlp> mlp_;
  std::optional<Experts> experts_;
};

void check_targets(const ModelConfig& config, const Adapters& adapters) {
  for (const std::string_view product : {"gate", "gate_proj", "up_proj", "down_proj"})
    if (config.experts > 0 && std::ranges::count(config.lora.targets, product) > 0)
      refuse("[lora] targets: '", product,
             "': routers and experts have no adapters; attention's q_proj, k_proj, v_proj and "
             "o_proj can have some");
  adapters.check_targets();
}

/// A family's names of parameters, those of a block without its number.
struct ParameterNames {
  Embedding::Names embedding;
  std::string block, norm;
};

ParameterNames names_of(const ModelConfig& config) {
  if (config.is_llama()) return {{"model.embed_tokens.weight", ""}, "model.layers.", "model.norm"};
  return {{"wte.weight", "wpe.weight"}, "h.", "ln_f"};
}

class Decoder final : public LanguageModel {
 public:
  Decoder(const ModelConfig& config, const Grid& grid, const ParameterNames& names)
      : config_(config),
        embedding_group_("embedding", grid),
        embedding_(embedding_group_, names.embedding,
                   {.vocab = config.vocab,
                    .width = config.hidden,
                    .positions = config.is_llama() ? 0 : config.positions,
                    .init_std = config.init_std}),
        head_group_(names.norm, grid),
        norm_(head_group_, names.norm, norm_options(config)),
        output_(config.tied
                    ? embedding_.table()
                    : head_group_.add({.name = "lm_head.weight",
                                       .layout = vocabulary_layout(config.vocab, config.hidden),
                                       .init_std = config.init_std,
                                       .decays = true})),
        cross_entropy_(output_, {.vocab = config.vocab}),
        routers_{.experts = config.experts, .per_row = config.experts_per_token, .biases = {}} {
    if (config.is_llama()) {
      std::optional<RopeScaling> scaling;
      if (config.rope_scaling == RopeScalingKind::llama3) scaling = config.rope;
      rope_.emplace(rope_frequencies(config.head_width(), config.rope_theta, scaling));
    }
    for (std::int64_t i = 0; i < config.layers; ++i) {
      const std::string name = names.block + std::to_string(i);
      if (!rope_) {
        blocks_.push_back(std::make_unique<GptBlock>(config, grid, name));
        continue;
      }
      std::optional<std::int64_t> routed;
      if (config.has_experts(i)) routed = std::ssize(routers_.biases);
      blocks_.push_back(std::make_unique<LlamaBlock>(config, grid, name, *rope_, routed));
      if (const Experts* experts = blocks_.back()->experts())
        routers_.biases.push_back(experts->bias() ? &experts->bias()->spec() : nullptr);
    }
    if (!blocks_.empty()) check_targets(config, blocks_.front()->adapters());
    if (config.lora.rank == 0) return;
    embedding_group_.freeze();
    for (const auto& block : blocks_)
      for (ParameterGroup* group : block->groups())
        if (group != block->adapters().group()) group->freeze();
    head_group_.freeze();
  }

  std::vector<ParameterGroup*> groups() override {
    std::vector<ParameterGroup*> all{&embedding_group_};
    for (const auto& block : blocks_) std::ranges::copy(block->groups(), std::back_inserter(all));
    all.push_back(&head_group_);
    return all;
  }

  std::int64_t vocab() const override { return config_.vocab; }

  Routers routers() const override { return routers_; }

  std::string describe() const override {
    return concat(config_.layers, config_.layers == 1 ? " layer" : " layers", ", width ",
                  config_.hidden, ", ", config_.heads, " heads");
  }

 private:
  Var hidden(const Context& ctx, const Tokens& tokens) override {
    if (rope_) rope_->prepare(ctx, tokens.rows.most_positions());
    GatheredWeights weights(ctx, embedding_group_, ReadIn::forward);
    Var x = embedding_(weights.context(), tokens);
    weights.release();
    std::int64_t number = 0;
    for (const auto& block : blocks_)
      x = run_block(ctx, block->groups(), x, std::cref(*block), number++);
    return x;
  }

  Head head() override {
    std::vector<ParameterGroup*> groups{&head_group_};
    if (config_.tied) groups.insert(groups.begin(), &embedding_group_);
    return {norm_, cross_entropy_, std::move(groups),
            static_cast<float>(1 / config_.width_factor())};
  }

  ModelConfig config_;
  ParameterGroup embedding_group_;
  Embedding embedding_;
  std::optional<Rope> rope_;  // of Llama
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
  ParameterGroup head_group_;
  Norm norm_;
  const Parameter& output_;  // the embedding's table if tied
  CrossEntropy cross_entropy_;
  Routers routers_;
};

}  // namespace

std::unique_ptr<Model> make_decoder(const ModelConfig& config, const Grid& grid) {
  return std::make_unique<Decoder>(config, grid, names_of(config));
}

}  // namespace axonn
