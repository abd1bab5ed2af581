// Published forms of the family gpt. Sources of sizes: Hugging Face's config.json of each GPT-2;
// for GPT-3 Brown et al., "Language Models are Few-Shot Learners", 2020, table 2.1; for the paper's
// GPTs Singh et al., 2024 (arXiv 2502.08145), table II.
#include <algorithm>
#include <array>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/gpt/gpt.h"

namespace axonn {

namespace {

/// The paper's have heads of 128. GPT-3 XL has 16 heads of 128: the table's 24 heads do not divide
/// its width, and 16 give its 1.3 billion parameters. GPT-3 13B has width 5120: the table's 5140 is
/// not a multiple of 128.
std::vector<ModelConfig> known_gpts() {
  std::vector<ModelConfig> models;
  add_known(models, {.vocab = 32000},
            {{"gpt-5b", 24, 4096, 32},
             {"gpt-10b", 32, 5120, 40},
             {"gpt-20b", 32, 7168, 56},
             {"gpt-40b", 38, 9216, 72},
             {"gpt-60b", 56, 9216, 72},
             {"gpt-80b", 42, 12288, 96},
             {"gpt-160b", 84, 12288, 96},
             {"gpt-320b", 96, 16384, 128},
             {"gpt-640b", 192, 16384, 128}});
  add_known(models, {.vocab = 50257, .positions = 1024},
            {{"gpt2-124m", 12, 768, 12},
             {"gpt2-355m", 24, 1024, 16},
             {"gpt2-774m", 36, 1280, 20},
             {"gpt2-1.5b", 48, 1600, 25}});
  add_known(models, {.vocab = 50257, .positions = 2048},
            {{"gpt3-125m", 12, 768, 12},
             {"gpt3-350m", 24, 1024, 16},
             {"gpt3-760m", 24, 1536, 16},
             {"gpt3-1.3b", 24, 2048, 16},
             {"gpt3-2.7b", 32, 2560, 32},
             {"gpt3-6.7b", 32, 4096, 32},
             {"gpt3-13b", 40, 5120, 40},
             {"gpt3-175b", 96, 12288, 96}});
  return models;
}

void check_gpt2(const ModelConfig& model, Unsupported& unsupported) {
  if (!model.bias) unsupported.emplace_back("bias = false");
  if (model.kv_heads != model.heads) unsupported.push_back(concat("kv_heads = ", model.kv_heads));
  if (model.head_width() * model.heads != model.hidden)
    unsupported.push_back(concat("head_dim = ", model.head_dim));
}

}  // namespace

std::span<const ModelType> gpt_types() {
  static const std::array<ModelType, 1> kTypes = {
      {{.name = "gpt2",
        .architecture = "GPT2LMHeadModel",
        .known = known_gpts,
        .check = check_gpt2,
        .gguf = {.architecture = "gpt2", .biases = true}}}};
  return kTypes;
}

ModelConfig read_gpt2(const JsonReader& file, const ModelType&, Unsupported& unsupported) {
  ModelConfig model;
  model.layers = file.needed({"n_layer", "num_hidden_layers"}, kMostLayers);
  model.hidden = file.needed({"n_embd", "hidden_size"}, kMostColumns);
  model.heads = file.needed({"n_head", "num_attention_heads"}, kMostColumns);
  model.ffn = file.integer({"n_inner"}, kMostColumns).value_or(4 * model.hidden);
  model.vocab = file.needed({"vocab_size"}, kMostRows);
  model.positions = file.needed({"n_positions", "max_position_embeddings", "n_ctx"}, kMostRows);
  model.tied = file.flag("tie_word_embeddings", true);
  model.norm_eps = file.real({"layer_norm_epsilon"}, 1e-5);
  model.init_std = file.real({"initializer_range"}, 0.02);
  const std::string activation = file.text({"activation_function"}, "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    unsupported.push_back("activation_function '" + activation + "'");
  if (!file.flag("scale_attn_weights", true)) unsupported.push_back("scale_attn_weights false");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    if (file.flag(key, false)) unsupported.emplace_back(key);
  return model;
}

void write_gpt2(const ModelConfig& model, const ModelType&, JsonObject& out) {
  out.update({{"activation_function", "gelu_new"},
              {"attn_pdrop", 0.0},
              {"embd_pdrop", 0.0},
              {"resid_pdrop", 0.0},
              {"layer_norm_epsilon", model.norm_eps},
              {"n_ctx", model.positions},
              {"n_embd", model.hidden},
              {"n_head", model.heads},
              {"n_inner", model.ffn},
              {"n_layer", model.layers},
              {"n_positions", model.positions}});
}

StoredName gpt2_stored_name(const ModelConfig&, const ModelType*, const std::string& parameter) {
  const bool conv1d =
      std::ranges::any_of(std::array{".c_attn.weight", ".c_proj.weight", ".c_fc.weight"},
                          [&](const char* ending) { return parameter.ends_with(ending); });
  return {.names = {parameter, concat(kGptFamily.prefix, parameter)}, .transposed = conv1d};
}

std::string gpt2_gguf_name(const ModelConfig&, const std::string& parameter) {
  using Names = std::array<std::string_view, 2>;
  constexpr std::array<Names, 3> kEnds = {{{"wte.weight", "token_embd.weight"},
                                           {"wpe.weight", "position_embd.weight"},
                                           {"lm_head.weight", "output.weight"}}};
  constexpr std::array<Names, 6> kModules = {{{"ln_1", "attn_norm"},
                                              {"attn.c_attn", "attn_qkv"},
                                              {"attn.c_proj", "attn_output"},
                                              {"ln_2", "ffn_norm"},
                                              {"mlp.c_fc", "ffn_up"},
                                              {"mlp.c_proj", "ffn_down"}}};
  for (const auto& [here, there] : kEnds)
    if (parameter == here) return std::string(there);
  constexpr std::string_view kNorm = "ln_f.", kLayers = "h.";
  if (parameter.starts_with(kNorm)) return concat("output_norm.", parameter.substr(kNorm.size()));
  const std::size_t dot = parameter.find('.', kLayers.size()), kind = parameter.rfind('.');
  if (!parameter.starts_with(kLayers) || dot == parameter.npos || kind <= dot) return {};
  const std::string_view module = std::string_view(parameter).substr(dot + 1, kind - dot - 1);
  for (const auto& [here, there] : kModules)
    if (module == here)
      return concat("blk.", parameter.substr(kLayers.size(), dot - kLayers.size()), '.', there,
                    parameter.substr(kind));
  return {};
}

}  // namespace axonn
