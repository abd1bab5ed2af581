#include "axonn/network/model/families/gpt/gpt.h"

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/gpt/block.h"

namespace axonn {

namespace {

GptBlockForm form_of(const ModelConfig& config) {
  return {.norm1 = "ln_1",
          .qkv = "attn.c_attn",
          .project = "attn.c_proj",
          .norm2 = "ln_2",
          .up = "mlp.c_fc",
          .down = "mlp.c_proj",
          .norm_bias = config.bias};
}

class Gpt final : public Decoder {
 public:
  Gpt(const ModelConfig& config, const Grid& grid)
      : Decoder(config, grid,
                {.embedding = {"wte.weight", "wpe.weight"},
                 .positions = config.positions,
                 .norm = "ln_f",
                 .norm_options = layer_norm_of(config, config.bias)}) {
    for (std::int64_t i = 0; i < config.layers; ++i)
      add(std::make_unique<GptBlock>(config, grid, concat("h.", i), form_of(config)));
  }
};

}  // namespace

constexpr Family kGptFamily{
    .name = "gpt",
    .list_options = [](ModelConfig&, OptionList&) {},
    .validate = need_gpt_block,
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
    .gguf_name = gpt2_gguf_name,
    .conv1d = true};

}  // namespace axonn
