#include "axonn/model/config.h"

#include <algorithm>
#include <string>

#include "axonn/base/check.h"
#include "axonn/model/known_models.h"
#include "axonn/model/model.h"
#include "axonn/options/options.h"

namespace axonn {

namespace {

/// The divisors of `whole` next to `part`: "12 or 16".
std::string divisors_near(std::int64_t whole, std::int64_t part) {
  std::int64_t below = part, above = part;
  while (below > 1 && whole % below != 0) --below;
  while (above < whole && whole % above != 0) ++above;
  return below < 1 || above > whole ? concat(whole)
                                    : concat(below, above != below ? concat(" or ", above) : "");
}

/// An MLP with a gate has three matrices, one without two. As in Llama, two thirds of 4 · hidden,
/// rounded up to a multiple of 256, give about as many parameters.
std::int64_t default_ffn(const ModelConfig& model) {
  if (!model.has_gate()) return 4 * model.hidden;
  constexpr std::int64_t kMultiple = 256;
  return (8 * model.hidden / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

void validate_rope(const ModelConfig& model) {
  const std::int64_t width = model.head_width();
  if (width % 2 != 0)
    refuse("[model] head_dim = ", width,
           " is odd, but rotary positions rotate pairs of columns; take ", width + 1);
  if (model.rope_scaling == RopeScalingKind::none) return;
  if (model.rope.low_freq_factor >= model.rope.high_freq_factor)
    refuse("[model] rope_low_freq_factor = ", model.rope.low_freq_factor,
           " is not below rope_high_freq_factor = ", model.rope.high_freq_factor,
           "; Llama 3.1 has 1 and 4");
}

void validate_experts(const ModelConfig& model) {
  if (model.experts == 0) return;
  if (model.family != ModelFamily::llama)
    refuse("[model] experts = ", model.experts, " needs family = \"llama\"");
  if (!model.has_gate())
    refuse("[model] experts = ", model.experts, " have a gate, but activation = \"",
           kMlpKinds[static_cast<int>(model.activation)], "\" has none; set it to \"swiglu\"");
  if (model.experts_per_token < 1 || model.experts_per_token > model.experts)
    refuse("[model] experts_per_token = ", model.experts_per_token,
           " must be from 1 to experts = ", model.experts, "; Mixtral chooses 2 of 8");
  for (const std::int64_t layer : model.dense_layers)
    if (layer >= model.layers)
      refuse("[model] dense_layers has ", layer, ", but the layers are 0 to ", model.layers - 1);
  bool any = false;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) any |= model.has_experts(layer);
  if (!any)
    refuse("[model] experts = ", model.experts, ", but expert_step = ", model.expert_step,
           " and dense_layers leave none of the ", model.layers,
           " layers with experts; set experts = 0 for a dense model");
}

void validate_mup(const ModelConfig& model) {
  if (model.mup_base_head_dim > 0 && model.mup_base == 0)
    refuse("[model] mup_base_head_dim = ", model.mup_base_head_dim,
           " needs mup_base, the width of that model");
  if (model.mup_base > 0 && model.lora.rank > 0)
    refuse("[model] mup_base = ", model.mup_base, " and [lora] rank = ", model.lora.rank,
           ": muP is for models that are trained from the start; set mup_base = 0");
}

}  // namespace

ModelConfig resolved(ModelConfig model, std::int64_t vocab, std::int64_t positions) {
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0 && model.heads > 0) model.head_dim = model.hidden / model.heads;
  if (model.ffn == 0) model.ffn = default_ffn(model);
  if (model.experts > 0 && model.expert_ffn == 0) model.expert_ffn = model.ffn;
  if (model.vocab == 0) model.vocab = vocab;
  if (model.positions == 0) model.positions = positions;
  return model;
}

std::vector<std::string> missing_keys(const ModelConfig& model) {
  if (!model.path.empty() || architecture_of(model.family)) return {};
  std::vector<std::string> missing;
  for (const auto& [key, value] : {std::pair{"model.layers", model.layers},
                                   {"model.hidden", model.hidden},
                                   {"model.heads", model.heads}})
    if (value <= 0) missing.emplace_back(key);
  return missing;
}

void validate(const ModelConfig& model) {
  if (model.lora.dropout >= 1)
    refuse("[lora] dropout = ", model.lora.dropout, " is not below 1; common values are 0 to 0.1");
  const Architecture* const own = architecture_of(model.family);
  validate_own_values(model.own_values, model_families());
  if (!model.path.empty()) return;
  if (own) {
    if (own->validate) own->validate(model);
    return;
  }
  if (const auto missing = missing_keys(model); !missing.empty())
    refuse(join(missing), missing.size() == 1 ? " is missing" : " are missing",
           "; set the sizes of the model, or name one with model.path or model.name");
  if (model.head_dim == 0 && model.hidden % model.heads != 0)
    refuse("[model] heads = ", model.heads, " does not divide hidden = ", model.hidden, "; take ",
           divisors_near(model.hidden, model.heads), " heads, or a hidden of ",
           model.hidden / model.heads * model.heads + model.heads, ", or set head_dim");
  if (model.kv_heads > 0 && model.heads % model.kv_heads != 0)
    refuse("[model] kv_heads = ", model.kv_heads, " does not divide heads = ", model.heads,
           "; take ", divisors_near(model.heads, model.kv_heads), ", or 0 for as many as heads");
  if (model.family == ModelFamily::llama) validate_rope(model);
  if (model.family == ModelFamily::gpt && model.activation != MlpKind::swiglu)
    refuse("[model] activation = \"", kMlpKinds[static_cast<int>(model.activation)],
           "\" needs family = \"llama\"; gpt has GELU");
  validate_experts(model);
  validate_mup(model);
}

namespace {

/// Choice 0 is "none", the empty name.
Choice name_choice(ModelConfig& model) {
  const auto names = model_names();
  return {names,
          [&model, names] {
            const auto found = std::ranges::find(names, model.name);
            return found == names.end() ? 0 : static_cast<int>(found - names.begin());
          },
          [&model, names](int i) { model.name = i == 0 ? "" : names[i]; }};
}

/// Of qk_norm, which was a boolean before OLMoE's norm existed.
constexpr std::array<Spelling, 2> kQkNormSpellings = {{{"false", "none"}, {"true", "head"}}};

void list_llama_options(ModelConfig& model, OptionList& list) {
  list.add(
      "activation", model.activation, kMlpKinds,
      {.help = "the MLP: swiglu, gated by silu, as in Llama, or xielu, without a gate and with "
               "two learned numbers, as in Apertus (llama)",
       .also = "hidden_act activation_func mlp_activation xielu swiglu"});
  list.add("qkv_bias", &model.qkv_bias,
           {.help = "whether queries, keys and values have biases, as in Qwen2 (llama)",
            .also = "attention_bias add_qkv_bias use_qkv_bias"});
  list.add("qk_norm", model.qk_norm, kQkNormKinds,
           {.help = "RMSNorm of queries and keys: of each head, as in Qwen3, or over the width of "
                    "all heads, as in OLMoE (llama)",
            .also = "qk_layernorm use_qk_norm q_norm k_norm",
            .spellings = kQkNormSpellings});
  list.add("window", &model.window,
           {.help = "positions that attention sees, its own included, as in Mistral; 0: all "
                    "(llama)",
            .min = 0,
            .also = "sliding_window window_size"});
  list.add("rope_theta", &model.rope_theta,
           {.help = "base of the rotary frequencies (llama)",
            .above = 0,
            .also = "rotary_base rope_base"});
  list.add("rope_scaling", model.rope_scaling, kRopeScalingKinds,
           {.help = "llama3: scale the rotary frequencies for longer sequences, as in Llama 3.1 "
                    "(llama)",
            .also = "rope_type rope_parameters use_rope_scaling"});
  list.add("rope_factor", &model.rope.factor,
           {.help = "low frequencies are divided by this (rope_scaling llama3)",
            .above = 0,
            .also = "factor rope_scaling_factor"});
  list.add("rope_low_freq_factor", &model.rope.low_freq_factor,
           {.help = "frequencies with fewer rotations than this over rope_original_positions are "
                    "divided by rope_factor (rope_scaling llama3)",
            .above = 0,
            .also = "low_freq_factor"});
  list.add("rope_high_freq_factor", &model.rope.high_freq_factor,
           {.help = "frequencies with more rotations than this over rope_original_positions are "
                    "unchanged (rope_scaling llama3)",
            .above = 0,
            .also = "high_freq_factor"});
  list.add("rope_original_positions", &model.rope.original_positions,
           {.help = "longest sequence of the model before scaling (rope_scaling llama3)",
            .min = 1,
            .also = "original_max_position_embeddings"});
}

void list_expert_options(ModelConfig& model, OptionList& list) {
  list.add("experts", &model.experts,
           {.help = "number of experts in the MLP of a layer, of which a router chooses some for "
                    "each token, as in Mixtral; 0: dense MLPs (llama)",
            .min = 0,
            .also = "num_experts num_local_experts n_routed_experts moe_num_experts"});
  list.add("experts_per_token", &model.experts_per_token,
           {.help = "number of experts that the router chooses for each token",
            .min = 0,
            .also = "num_experts_per_tok moe_router_topk top_k moe_top_k"});
  list.add("expert_ffn", &model.expert_ffn,
           {.help = "width of an expert; 0: ffn",
            .min = 0,
            .also = "moe_intermediate_size moe_ffn_hidden_size"});
  list.add("expert_norm", &model.expert_norm,
           {.help = "whether the scores of a token's experts are divided by their sum",
            .also = "norm_topk_prob moe_normalize_expert_weights"});
  list.add("expert_step", &model.expert_step,
           {.help = "every so many layers, the last one has experts, the others dense MLPs",
            .min = 1,
            .also = "decoder_sparse_step moe_layer_freq"});
  list.add("dense_layers", &model.dense_layers,
           {.help = "layers, counted from 0, that have dense MLPs whatever expert_step says",
            .min = 0,
            .also = "mlp_only_layers"});
  list.add("router", model.router, kRouterKinds,
           {.help = "how the router's logits become scores: softmax over all experts, or the "
                    "sigmoid of each",
            .also = "scoring_func moe_router_score_function"});
  list.add("router_scale", &model.router_scale,
           {.help = "factor of the chosen scores",
            .above = 0,
            .also = "routed_scaling_factor moe_router_topk_scaling_factor"});
  list.add("router_bias", &model.router_bias,
           {.help = "whether each expert has a bias that counts when experts are chosen, but not "
                    "in their scores; training.balance.bias adapts it",
            .also = "e_score_correction_bias moe_router_enable_expert_bias"});
}

void list_lora_options(LoraConfig& lora, OptionList& list) {
  list.section("lora", "Adapters that are trained instead of the model");
  list.add("rank", &lora.rank,
           {.help = "rank of the adapters; 0: no adapters, the model itself is trained",
            .min = 0,
            .also = "r lora_rank lora_r lora_dim"});
  list.add("alpha", &lora.alpha,
           {.help = "an adapter's output is multiplied by alpha / rank",
            .above = 0,
            .also = "lora_alpha scaling"});
  list.add("dropout", &lora.dropout,
           {.help = "probability that an element of an adapter's input is dropped",
            .min = 0,
            .also = "lora_dropout"});
  list.add("targets", &lora.targets,
           {.help = "layers that get adapters, by the last part of their names, such as q_proj; "
                    "empty: all layers of the blocks",
            .also = "target_modules lora_target_modules lora_target modules"});
  list.add("path", &lora.path,
           {.help = "adapters to start from: a PEFT folder or a checkpoint of adapters, which sets "
                    "rank, alpha and targets; empty: new adapters",
            .also = "adapter adapter_path adapter_name_or_path lora_model_dir peft_model_id",
            .reads = Reads::files});
}

void list_kind(ModelConfig& model, OptionList& list) {
  list.add("name", name_choice(model),
           {.help = "a published model: its sizes are the defaults of the keys below",
            .also = "model_name preset flavor"});
  list.add("family", model.family, model_families(),
           {.help = "kind of model: gpt for GPT-2, llama for Llama, Mistral, Qwen, "
                    "Mixtral, OLMoE and Apertus",
            .also = "model_type"});
}

void list_initialisation(ModelConfig& model, OptionList& list) {
  list.add("norm_eps", &model.norm_eps,
           {.help = "added to the variance in norms",
            .above = 0,
            .also = "layer_norm_epsilon rms_norm_eps layernorm_epsilon"});
  list.add("init_std", &model.init_std,
           {.help = "standard deviation of the initial weights",
            .min = 0,
            .also = "initializer_range init_method_std"});
  list.add(
      "mup_base", &model.mup_base,
      {.help = "muP: the width whose best init_std, learning rate, eps and weight decay suit this "
               "model, too: with m = hidden / mup_base, the weights of the blocks' products start "
               "with init_std / sqrt(m) and learn with lr / m and m times weight_decay; eps and "
               "logits are divided by m; axonn check --mup tests it; 0: not used (gpt, llama)",
       .min = 0,
       .also = "mup_base_width mup_base_shapes base_width d_model_base use_mup"});
  list.add("mup_base_head_dim", &model.mup_base_head_dim,
           {.help = "width of a head of the model of width mup_base: scores are multiplied by its "
                    "square root and divided by the width of a head; 0: the same as here",
            .min = 0,
            .also = "mup_base_head_size"});
}

}  // namespace

void list_options(ModelConfig& model, OptionList& list) {
  list.section("model", "The sizes of the model, or the checkpoint it is read from");
  list_kind(model, list);
  list.add("layers", &model.layers,
           {.help = "number of transformer blocks",
            .min = 1,
            .required = true,
            .also = "n_layer n_layers num_layers num_hidden_layers depth"});
  list.add("hidden", &model.hidden,
           {.help = "width of the residual stream",
            .min = 1,
            .required = true,
            .also = "n_embd dim d_model hidden_size width channels"});
  list.add("heads", &model.heads,
           {.help = "number of attention heads; must divide hidden unless head_dim is set",
            .min = 1,
            .required = true,
            .also = "n_head n_heads num_heads num_attention_heads"});
  list.add("kv_heads", &model.kv_heads,
           {.help = "number of key-value heads; must divide heads; 0: as many as heads",
            .min = 0,
            .also = "n_kv_heads num_key_value_heads num_query_groups"});
  list.add("head_dim", &model.head_dim,
           {.help = "width of a head; 0: hidden / heads",
            .min = 0,
            .also = "kv_channels head_size d_head"});
  list.add(
      "ffn", &model.ffn,
      {.help = "width of the MLP; 0: 4 times hidden, or with swiglu 8/3 times hidden, rounded up "
               "to a multiple of 256",
       .min = 0,
       .also = "ffn_hidden_size intermediate_size n_inner mlp"});
  list.add("vocab", &model.vocab,
           {.help = "size of the vocabulary, before padding; 0: the tokenizer's",
            .min = 0,
            .also = "vocab_size padded_vocab_size"});
  list.add("positions", &model.positions,
           {.help = "longest sequence that the model supports; 0: training.seq_len",
            .min = 0,
            .also = "max_position_embeddings n_positions n_ctx"});
  list.add("tied", &model.tied,
           {.help = "whether the output layer uses the embedding's weight",
            .also = "tie_word_embeddings untie_embeddings_and_output_weights"});
  list.add(
      "bias", &model.bias,
      {.help = "whether linear layers and norms have biases (gpt)", .also = "add_bias_linear"});
  list_initialisation(model, list);
  list_llama_options(model, list);
  list_expert_options(model, list);
  list.add(
      "path", &model.path,
      {.help =
           "checkpoint, run's output.dir or Hugging Face folder to read sizes and weights from; "
           "empty: a new model",
       .also = "init_from load base_model model_name_or_path pretrained_model_name_or_path",
       .reads = Reads::files});
  list_lora_options(model.lora, list);
  list_own_options(model, list);
}

}  // namespace axonn
