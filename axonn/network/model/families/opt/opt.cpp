#include "axonn/network/model/families/opt/opt.h"

#include <array>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/gpt/block.h"
#include "axonn/network/model/json_reader.h"

namespace axonn {

namespace {

constexpr const char* kEmbedding = "model.decoder.embed_tokens.weight";
constexpr double kNormEps = 1e-5;  // of all models; files do not have it

class Opt final : public Decoder {
 public:
  Opt(const ModelConfig& config, const Grid& grid)
      : Decoder(config, grid,
                {.embedding = {kEmbedding, "model.decoder.embed_positions.weight"},
                 .positions = config.positions,
                 .unused_positions = 2,
                 .norm = "model.decoder.final_layer_norm",
                 .norm_options = layer_norm_of(config, true)}) {
    const GptBlockForm form{.norm1 = "self_attn_layer_norm",
                            .qkv = "self_attn",
                            .project = "self_attn.out_proj",
                            .norm2 = "final_layer_norm",
                            .up = "fc1",
                            .down = "fc2",
                            .parts = {"q_proj", "k_proj", "v_proj"},
                            .relu = true};
    for (std::int64_t i = 0; i < config.layers; ++i)
      add(std::make_unique<GptBlock>(config, grid, concat("model.decoder.layers.", i), form));
  }
};

/// Sizes: the config.json of each model. opt-350m, whose embedding is narrower than the model and
/// whose norms stand after the sums, is refused.
std::vector<ModelConfig> known_opts() {
  std::vector<ModelConfig> models;
  add_known(models, {.family = ModelFamily::opt, .vocab = 50272, .positions = 2048},
            {{"opt-125m", 12, 768, 12},
             {"opt-1.3b", 24, 2048, 32},
             {"opt-2.7b", 32, 2560, 32},
             {"opt-6.7b", 32, 4096, 32},
             {"opt-13b", 40, 5120, 40},
             {"opt-30b", 48, 7168, 56},
             {"opt-66b", 64, 9216, 72}});
  return models;
}

/// A missing key means opt-125m's, as in transformers.
ModelConfig read_opt(const JsonReader& file, const ModelType&, Unsupported& unsupported) {
  ModelConfig model{.family = ModelFamily::opt};
  model.layers = file.integer({"num_hidden_layers"}, kMostLayers).value_or(12);
  model.hidden = file.integer({"hidden_size"}, kMostColumns).value_or(768);
  model.heads = file.integer({"num_attention_heads"}, kMostColumns).value_or(12);
  model.ffn = file.integer({"ffn_dim"}, kMostColumns).value_or(3072);
  model.vocab = file.integer({"vocab_size"}, kMostRows).value_or(50272);
  model.positions = file.integer({"max_position_embeddings"}, kMostRows).value_or(2048);
  model.tied = file.flag("tie_word_embeddings", true);
  model.bias = file.flag("enable_bias", true);
  model.norm_eps = kNormEps;
  model.init_std = file.real({"init_std", "initializer_range"}, 0.02);
  const std::string activation = file.text({"activation_function"}, "relu");
  if (activation != "relu") unsupported.push_back("activation_function '" + activation + "'");
  const std::int64_t width =
      file.integer({"word_embed_proj_dim"}, kMostColumns).value_or(model.hidden);
  if (width != model.hidden)
    unsupported.push_back(concat("word_embed_proj_dim ", width, ", as in opt-350m, which is not ",
                                 "hidden_size = ", model.hidden));
  if (!file.flag("do_layer_norm_before", true))
    unsupported.emplace_back("do_layer_norm_before false, as in opt-350m");
  if (!file.flag("layer_norm_elementwise_affine", true))
    unsupported.emplace_back("layer_norm_elementwise_affine false");
  if (file.flag("_remove_final_layer_norm", false))
    unsupported.emplace_back("_remove_final_layer_norm");
  return model;
}

void write_opt(const ModelConfig& model, const ModelType&, JsonObject& out) {
  out.update({{"_remove_final_layer_norm", false},
              {"activation_function", "relu"},
              {"attention_dropout", 0.0},
              {"do_layer_norm_before", true},
              {"dropout", 0.0},
              {"enable_bias", model.bias},
              {"ffn_dim", model.ffn},
              {"hidden_size", model.hidden},
              {"init_std", model.init_std},
              {"layer_norm_elementwise_affine", true},
              {"layerdrop", 0.0},
              {"max_position_embeddings", model.positions},
              {"num_attention_heads", model.heads},
              {"num_hidden_layers", model.layers},
              {"word_embed_proj_dim", model.hidden}});
}

void check_opt(const ModelConfig& model, Unsupported& unsupported) {
  if (model.norm_eps != kNormEps) unsupported.push_back(concat("norm_eps = ", model.norm_eps));
  if (model.kv_heads != model.heads) unsupported.push_back(concat("kv_heads = ", model.kv_heads));
  if (model.head_width() * model.heads != model.hidden)
    unsupported.push_back(concat("head_dim = ", model.head_dim));
}

std::span<const ModelType> opt_types() {
  static const std::array<ModelType, 1> kTypes = {
      {{.name = "opt", .architecture = "OPTForCausalLM", .known = known_opts, .check = check_opt}}};
  return kTypes;
}

/// Folders of models without their head have no "model." in front.
StoredName stored_name(const ModelConfig&, const ModelType*, const std::string& parameter) {
  constexpr std::string_view kPrefix = "model.";
  StoredName stored{.names = {parameter}};
  if (parameter.starts_with(kPrefix)) stored.names.push_back(parameter.substr(kPrefix.size()));
  return stored;
}

}  // namespace

constexpr Family kOptFamily{
    .name = "opt",
    .list_options = [](ModelConfig&, OptionList&) {},
    .validate = need_gpt_block,
    .make = [](const ModelConfig& config, const Grid& grid) -> std::unique_ptr<Model> {
      return std::make_unique<Opt>(config, grid);
    },
    .use_all_operations = [](ModelConfig&) {},
    .types = opt_types,
    .is_of_type = [](const ModelConfig&, const ModelType&) { return true; },
    .type_options = [](const ModelConfig&) { return std::string(); },
    .read_config = read_opt,
    .write_config = write_opt,
    .stored_name = stored_name,
    .embedding = kEmbedding};

}  // namespace axonn
