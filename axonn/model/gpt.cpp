#include "axonn/model/gpt.h"

namespace axonn {

namespace {

Norm::Options layer_norm_options(const ModelConfig& config) {
  return {.width = config.hidden, .bias = config.bias, .eps = static_cast<float>(config.norm_eps)};
}

}  // namespace

GptBlock::GptBlock(const ModelConfig& config, const Grid& grid, const std::string& name)
    : DecoderBlock(config, grid, name, {config.heads, config.kv_heads, config.head_width()}),
      norm1_(parameters_, name + ".ln_1", layer_norm_options(config)),
      qkv_(parameters_, name + ".attn.c_attn",
           {.in = config.hidden,
            .out = heads_.qkv_width(),
            .bias = config.bias,
            .init_std = config.init_std,
            .heads = heads_,
            .adapters = &adapters_}),
      project_(parameters_, name + ".attn.c_proj",
               {.in = heads_.out_width(),
                .out = config.hidden,
                .orientation = Orientation::transposed,
                .bias = config.bias,
                .init_std = residual_init_std(config),
                .adapters = &adapters_}),
      norm2_(parameters_, name + ".ln_2", layer_norm_options(config)),
      up_(parameters_, name + ".mlp.c_fc",
          {.in = config.hidden,
           .out = config.ffn,
           .bias = config.bias,
           .init_std = config.init_std,
           .adapters = &adapters_}),
      down_(parameters_, name + ".mlp.c_proj",
            {.in = config.ffn,
             .out = config.hidden,
             .orientation = Orientation::transposed,
             .bias = config.bias,
             .init_std = residual_init_std(config),
             .adapters = &adapters_}) {
  finish();
}

Var GptBlock::operator()(const Context& ctx, Var x) const {
  x = add(ctx, x, project_(ctx, attention(ctx, qkv_(ctx, norm1_(ctx, x)), heads_)));
  return add(ctx, x, down_(ctx, up_.gelu(ctx, norm2_(ctx, x))));
}

Gpt::Gpt(const ModelConfig& config, const Grid& grid)
    : Decoder(config, grid,
              {.embedding = {.tokens = "wte.weight", .positions = "wpe.weight"},
               .norm = "ln_f",
               .norm_options = layer_norm_options(config)}) {
  for (std::int64_t i = 0; i < config.layers; ++i)
    add(std::make_unique<GptBlock>(config, grid, "h." + std::to_string(i)));
}

}  // namespace axonn
