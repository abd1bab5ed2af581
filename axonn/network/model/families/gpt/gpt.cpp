#include "axonn/network/model/families/gpt/gpt.h"

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/decoder.h"
#include "axonn/network/nn/pointwise.h"

namespace axonn {

namespace {

Norm::Options layer_norm_of(const ModelConfig& config) {
  return {.width = config.hidden,
          .kind = Norm::Kind::layer,
          .bias = config.bias,
          .eps = static_cast<float>(config.norm_eps)};
}

class GptBlock final : public DecoderBlock {
 public:
  GptBlock(const ModelConfig& config, const Grid& grid, const std::string& name)
      : DecoderBlock(config, grid, name, 0),
        norm1_(parameters_, name + ".ln_1", layer_norm_of(config)),
        qkv_(parameters_, name + ".attn.c_attn", qkv_options(config, config.bias)),
        project_(parameters_, name + ".attn.c_proj",
                 residual_options(config, heads_.out_width(), heads_.head_dim, config.bias)),
        norm2_(parameters_, name + ".ln_2", layer_norm_of(config)),
        up_(parameters_, name + ".mlp.c_fc", up_options(config, config.ffn, config.bias)),
        down_(parameters_, name + ".mlp.c_proj",
              residual_options(config, config.ffn, 1, config.bias)) {}

  Var operator()(const Context& ctx, Var x) const override {
    x = residual(ctx, x, {.input = &norm1_}, [&](const Var& in) {
      return project_(ctx, attention(ctx, qkv_(ctx, in), heads_));
    });
    return residual(ctx, x, {.input = &norm2_},
                    [&](const Var& in) { return down_(ctx, up_.gelu(ctx, in)); });
  }

 private:
  Norm norm1_;
  Linear qkv_, project_;
  Norm norm2_;
  Linear up_, down_;
};

class Gpt final : public Decoder {
 public:
  Gpt(const ModelConfig& config, const Grid& grid)
      : Decoder(config, grid,
                {.embedding = {"wte.weight", "wpe.weight"},
                 .positions = config.positions,
                 .norm = "ln_f",
                 .norm_options = layer_norm_of(config)}) {
    for (std::int64_t i = 0; i < config.layers; ++i)
      add(std::make_unique<GptBlock>(config, grid, concat("h.", i)));
  }
};

void validate_gpt(const ModelConfig& model) {
  if (model.activation != MlpKind::swiglu)
    refuse("[model] activation = \"", kMlpKinds[static_cast<int>(model.activation)],
           "\" needs family = \"llama\"; gpt has GELU");
  if (model.experts > 0) refuse("[model] experts = ", model.experts, " needs family = \"llama\"");
  if (model.block_norm != BlockNormKind::input)
    refuse("[model] block_norm = \"", kBlockNormKinds[static_cast<int>(model.block_norm)],
           "\" needs family = \"llama\"");
  if (model.out_bias || model.mlp_bias)
    refuse("[model] out_bias and mlp_bias need family = \"llama\"; gpt has bias for all");
}

}  // namespace

constexpr Family kGptFamily{
    .name = "gpt",
    .list_options = [](ModelConfig&, OptionList&) {},
    .validate = validate_gpt,
    .make = [](const ModelConfig& config, const Grid& grid) -> std::unique_ptr<Model> {
      return std::make_unique<Gpt>(config, grid);
    },
    .use_all_operations = [](ModelConfig&) {},
    .types = gpt_types,
    .is_of_type = [](const ModelConfig&, const ModelType&) { return true; },
    .type_options = [](const ModelConfig&) { return std::string(); },
    .read_config = read_gpt2,
    .write_config = write_gpt2,
    .stored_name = gpt2_stored_name,
    .embedding = "wte.weight",
    .prefix = "transformer.",
    .conv1d = true};

}  // namespace axonn
