#include "axonn/network/model/families/gpt/block.h"

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/nn/pointwise.h"

namespace axonn {

Norm::Options layer_norm_of(const ModelConfig& config, bool bias) {
  return {.width = config.hidden,
          .kind = Norm::Kind::layer,
          .bias = bias,
          .eps = static_cast<float>(config.norm_eps)};
}

GptBlock::GptBlock(const ModelConfig& config, const Grid& grid, const std::string& name,
                   const GptBlockForm& form)
    : DecoderBlock(config, grid, name, 0),
      relu_(form.relu),
      norm1_(parameters_, concat(name, '.', form.norm1), layer_norm_of(config, form.norm_bias)),
      qkv_(parameters_, concat(name, '.', form.qkv), qkv_options(config, config.bias, form.parts)),
      project_(parameters_, concat(name, '.', form.project),
               residual_options(config, heads_.out_width(), heads_.head_dim, config.bias)),
      norm2_(parameters_, concat(name, '.', form.norm2), layer_norm_of(config, form.norm_bias)),
      up_(parameters_, concat(name, '.', form.up), up_options(config, config.ffn, config.bias)),
      down_(parameters_, concat(name, '.', form.down),
            residual_options(config, config.ffn, 1, config.bias)) {}

Var GptBlock::operator()(const Context& ctx, Var x) const {
  x = residual(ctx, x, {.input = &norm1_},
               [&](const Var& in) { return project_(ctx, attention(ctx, qkv_(ctx, in), heads_)); });
  return residual(ctx, x, {.input = &norm2_}, [&](const Var& in) {
    return down_(ctx, relu_ ? relu(ctx, up_(ctx, in)) : up_.gelu(ctx, in));
  });
}

void need_gpt_block(const ModelConfig& model) {
  const std::string_view family = find_family(model)->name;
  if (model.activation != MlpKind::swiglu)
    refuse("[model] activation = \"", kMlpKinds[static_cast<int>(model.activation)],
           "\" needs family = \"llama\"; ", family, " has one of its own");
  if (model.experts > 0) refuse("[model] experts = ", model.experts, " needs family = \"llama\"");
  if (model.block_norm != BlockNormKind::input)
    refuse("[model] block_norm = \"", kBlockNormKinds[static_cast<int>(model.block_norm)],
           "\" needs family = \"llama\"");
  if (model.out_bias || model.mlp_bias)
    refuse("[model] out_bias and mlp_bias need family = \"llama\"; ", family, " has bias for all");
}

}  // namespace axonn
