#include "axonn/model/llama.h"

namespace axonn {

namespace {

Norm::Options rms_norm_options(const ModelConfig& config) {
  return {
      .width = config.hidden, .kind = Norm::Kind::rms, .eps = static_cast<float>(config.norm_eps)};
}

std::vector<double> frequencies(const ModelConfig& config) {
  std::optional<RopeScaling> scaling;
  if (config.rope_scaling == RopeScalingKind::llama3) scaling = config.rope;
  return rope_frequencies(config.head_width(), config.rope_theta, scaling);
}

}  // namespace

LlamaBlock::LlamaBlock(const ModelConfig& config, const Grid& grid, const std::string& name,
                       const Rope& rope)
    : DecoderBlock(config, grid, name,
                   {config.heads, config.kv_heads, config.head_width(), config.window}),
      rope_(rope),
      norm1_(parameters_, name + ".input_layernorm", rms_norm_options(config)),
      qkv_(parameters_, name + ".self_attn",
           {.in = config.hidden,
            .out = heads_.qkv_width(),
            .bias = config.qkv_bias,
            .init_std = config.init_std,
            .heads = heads_,
            .parts = {"q_proj", "k_proj", "v_proj"},
            .adapters = &adapters_}),
      project_(parameters_, name + ".self_attn.o_proj",
               {.in = heads_.out_width(),
                .out = config.hidden,
                .orientation = Orientation::transposed,
                .bias = false,
                .init_std = residual_init_std(config),
                .adapters = &adapters_}),
      norm2_(parameters_, name + ".post_attention_layernorm", rms_norm_options(config)),
      gate_up_(parameters_, name + ".mlp",
               {.in = config.hidden,
                .out = 2 * config.ffn,
                .bias = false,
                .init_std = config.init_std,
                .segments = {{.rows = config.ffn}, {.rows = config.ffn}},
                .parts = {"gate_proj", "up_proj"},
                .adapters = &adapters_}),
      down_(parameters_, name + ".mlp.down_proj",
            {.in = config.ffn,
             .out = config.hidden,
             .orientation = Orientation::transposed,
             .bias = false,
             .init_std = residual_init_std(config),
             .adapters = &adapters_}) {
  if (config.qk_norm)
    qk_norm_.emplace(parameters_, name + ".self_attn", heads_, static_cast<float>(config.norm_eps));
  finish();
}

Var LlamaBlock::operator()(const Context& ctx, Var x) const {
  Var qkv = qkv_(ctx, norm1_(ctx, x));
  if (qk_norm_) qkv = (*qk_norm_)(ctx, qkv);
  x = add(ctx, x, project_(ctx, attention(ctx, rope_(ctx, std::move(qkv), heads_), heads_)));
  return add(ctx, x, down_(ctx, swiglu(ctx, gate_up_(ctx, norm2_(ctx, x)))));
}

Llama::Llama(const ModelConfig& config, const Grid& grid)
    : Decoder(config, grid,
              {.embedding = {.tokens = "model.embed_tokens.weight", .positions = {}},
               .norm = "model.norm",
               .norm_options = rms_norm_options(config)}),
      rope_(frequencies(config)) {
  for (std::int64_t i = 0; i < config.layers; ++i)
    add(std::make_unique<LlamaBlock>(config, grid, "model.layers." + std::to_string(i), rope_));
}

void Llama::prepare(const Context& ctx, const Rows& rows) {
  rope_.prepare(ctx, rows.most_positions());
}

}  // namespace axonn
