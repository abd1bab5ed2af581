#include "axonn/network/model/config.h"

#include <algorithm>
#include <string>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/known_models.h"
#include "axonn/network/model/model.h"
#include "axonn/network/nn/adapters/layer_adapters.h"

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

/// Whether no layer has a dense MLP, nor an expert the width of one.
bool only_experts(const ModelConfig& model) {
  if (model.experts == 0 || model.expert_ffn == 0) return false;
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    if (!model.has_experts(layer)) return false;
  return true;
}

void validate_mup(const ModelConfig& model) {
  if (model.mup_base_head_dim > 0 && model.mup_base == 0)
    refuse("[model] mup_base_head_dim = ", model.mup_base_head_dim,
           " needs mup_base, the width of that model");
  if (model.mup_base > 0 && (model.attention_scale > 0 || model.norm_plus_one))
    refuse("[model] mup_base = ", model.mup_base, " and ",
           model.norm_plus_one ? "norm_plus_one = true" : "attention_scale",
           ": muP has factors of its own; set mup_base = 0");
  if (model.mup_base > 0 && model.lora.rank > 0)
    refuse("[model] mup_base = ", model.mup_base, " and [lora] rank = ", model.lora.rank,
           ": muP is for models that are trained from the start; set mup_base = 0");
}

/// Whether lora.layers lists each block.
bool names_all_blocks(const ModelConfig& model) {
  if (std::ssize(model.lora.layers) != model.layers) return false;
  for (std::int64_t block = 0; block < model.layers; ++block)
    if (std::ranges::find(model.lora.layers, block) == model.lora.layers.end()) return false;
  return model.layers > 0;
}

/// Whether the embedding or the output layer is trained whole beside adapters.
bool trains_end(const ModelConfig& model) {
  const Family* const family = find_family(model);
  if (!family || model.lora.rank == 0) return false;
  return trains_whole(model.lora, "lm_head.weight") || trains_whole(model.lora, family->embedding);
}

}  // namespace

ModelConfig resolved(ModelConfig model, std::int64_t vocab, std::int64_t positions) {
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.kv_lora_rank > 0) model.head_dim = 0;  // it follows
  if (model.head_dim == 0 && model.heads > 0) model.head_dim = model.head_width();
  if (model.ffn == 0) model.ffn = default_ffn(model);
  if (model.experts > 0 && model.expert_ffn == 0) model.expert_ffn = model.ffn;
  if (model.vocab == 0) model.vocab = vocab;
  if (model.positions == 0) model.positions = positions;
  if (names_all_blocks(model)) model.lora.layers.clear();
  if (trains_end(model)) model.tied = false;
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

namespace {

void validate_quantize(const ModelConfig& model) {
  if (model.quantize == Quantization::none && model.quantize_embeddings)
    refuse("[model] quantize_embeddings = true wants quantize, such as q8_0");
  if (model.quantize == Quantization::none) return;
  const std::string key = concat("[model] quantize = ", name_of(model.quantize));
  if (model.quantize == Quantization::file && model.file_kinds.empty()) {
    std::string kinds;
    for (const Quantization kind : kCodes)
      if (is_of_ggml(kind)) kinds += concat(kinds.empty() ? "" : ", ", name_of(kind));
    refuse(key, ": ", model.path.empty() ? "the model" : model.path,
           " is no GGUF file with blocks of one of ", kinds,
           ", nor a folder with experts in MXFP4; take one of these kinds");
  }
  if (is_only_read(model.quantize))
    refuse(key, ": blocks of this kind are read from GGUF files, and not made; ",
           kMadeInsteadOfRead);
  if (model.quantize == Quantization::file && model.lora.dora)
    refuse(key, ": with [lora] dora = true all matrices want the same kind, such as q4_0");
  if (const Architecture* const own = architecture_of(model.family))
    refuse(key, ": models of the family ", own->name, " are not quantized; leave it out");
  if (model.mtp_layers > 0)
    refuse(key, ": layers that predict further tokens are not quantized; set mtp_layers to 0");
}

}  // namespace

void validate(const ModelConfig& model) {
  validate(model.lora);
  validate_quantize(model);
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
  if (model.head_dim == 0 && model.kv_lora_rank == 0 && model.hidden % model.heads != 0)
    refuse("[model] heads = ", model.heads, " does not divide hidden = ", model.hidden, "; take ",
           divisors_near(model.hidden, model.heads), " heads, or a hidden of ",
           model.hidden / model.heads * model.heads + model.heads, ", or set head_dim");
  if (model.kv_heads > 0 && model.heads % model.kv_heads != 0)
    refuse("[model] kv_heads = ", model.kv_heads, " does not divide heads = ", model.heads,
           "; take ", divisors_near(model.heads, model.kv_heads), ", or 0 for as many as heads");
  find_family(model)->validate(model);
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

void list_lora_options(LoraConfig& lora, OptionList& list) {
  list.section("lora", "Adapters that are trained instead of the model");
  const auto brought = [&lora] {
    return lora.path.empty() ? "" : "the adapters at lora.path bring their own";
  };
  const auto none = [&lora] {
    const bool trains_model = lora.rank == 0 && lora.path.empty();
    return trains_model ? "lora.rank is 0: the model itself is trained" : "";
  };
  const auto brought_or_none = [&lora, brought, none] {
    return lora.path.empty() ? none() : brought();
  };
  list.unused_if(brought);
  list.add("rank", &lora.rank,
           {.help = "rank of the adapters; 0: no adapters, the model itself is trained",
            .min = 0,
            .also = "r lora_rank lora_r lora_dim"});
  list.unused_if(brought_or_none);
  list.add("alpha", &lora.alpha,
           {.help = "an adapter's output is multiplied by alpha / rank",
            .above = 0,
            .also = "lora_alpha scaling"});
  list.unused_if(none);
  list.add("dropout", &lora.dropout,
           {.help = "probability that an element of an adapter's input is dropped",
            .min = 0,
            .also = "lora_dropout"});
  list.unused_if(brought_or_none);
  list.add("targets", &lora.targets,
           {.help = "layers that get adapters, by the ends of their names, such as q_proj, "
                    "layers.0.mlp.up_proj or lm_head; empty: all layers of the blocks",
            .also = "target_modules lora_target_modules lora_target modules"});
  list.add("layers", &lora.layers,
           {.help = "blocks whose layers get adapters, counted from 0; empty: all",
            .min = 0,
            .also = "layers_to_transform"});
  list.add("rank_pattern", &lora.rank_pattern,
           {.help = "other ranks of some layers, each the end of a name and a rank: \"q_proj 16\"; "
                    "the first that names a layer counts"});
  list.add("alpha_pattern", &lora.alpha_pattern,
           {.help = "other alphas of some layers, each the end of a name and an alpha: "
                    "\"q_proj 32\"; the first that names a layer counts"});
  list.add("dora", &lora.dora,
           {.help = "adapters have a magnitude of each output (DoRA): close to full fine-tuning at "
                    "small ranks, for the memory of each layer's product",
            .also = "use_dora"});
  list.add("modules", &lora.modules,
           {.help = "modules that are trained whole beside the adapters, by the ends of their "
                    "names, such as lm_head or embed_tokens",
            .also = "modules_to_save lora_modules_to_save"});
  list.unused_if({});
  list.add("path", &lora.path,
           {.help = "adapters to start from: a PEFT folder or a checkpoint of adapters, which sets "
                    "ranks, alphas and layers; empty: new adapters",
            .also = "adapter adapter_path adapter_name_or_path lora_model_dir peft_model_id",
            .reads = Reads::files});
}

void list_kind(ModelConfig& model, OptionList& list) {
  list.add("name", name_choice(model),
           {.help = "a published model: its sizes are the defaults of the keys below",
            .also = "model_name preset flavor"});
  list.add(
      "family", model.family, model_families(),
      {.help = "kind of model: gpt for GPT-2, opt for OPT, llama for Llama, Mistral, Ministral, "
               "Qwen, SmolLM3, OLMo 2 and 3, Phi-3 and 4, Seed-OSS, Mixtral, OLMoE and "
               "Apertus",
       .also = "model_type"});
}

/// The sizes that must be set, which a registered family may do without.
void list_main_sizes(ModelConfig& model, OptionList& list) {
  const auto unused_if_0 = [&](const std::int64_t& size) {
    list.unused_if([&model, &size] {
      const Architecture* const own = architecture_of(model.family);
      if (!model.path.empty() || !own || size != 0) return why_sizes_unread(model);
      return concat("model.family is ", own->name, ", which works without it");
    });
  };
  unused_if_0(model.layers);
  list.add("layers", &model.layers,
           {.help = "number of transformer blocks",
            .min = 1,
            .required = true,
            .also = "n_layer n_layers num_layers num_hidden_layers depth"});
  unused_if_0(model.hidden);
  list.add("hidden", &model.hidden,
           {.help = "width of the residual stream",
            .min = 1,
            .required = true,
            .also = "n_embd dim d_model hidden_size width channels"});
  unused_if_0(model.heads);
  list.add("heads", &model.heads,
           {.help = "number of attention heads; must divide hidden unless head_dim is set",
            .min = 1,
            .required = true,
            .also = "n_head n_heads num_heads num_attention_heads"});
}

void list_other_sizes(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] { return why_sizes_unread(model); });
  list.add("kv_heads", &model.kv_heads,
           {.help = "number of key-value heads; must divide heads; 0: as many as heads",
            .min = 0,
            .also = "n_kv_heads num_key_value_heads num_query_groups"});
  list.add("head_dim", &model.head_dim,
           {.help = "width of a head; 0: hidden / heads",
            .min = 0,
            .also = "kv_channels head_size d_head"});
  list.unused_if([&model] {
    const bool known = model.path.empty() && find_family(model);
    return known && only_experts(model) ? "all layers have experts, of width model.expert_ffn"
                                        : why_sizes_unread(model);
  });
  list.add(
      "ffn", &model.ffn,
      {.help = "width of the MLP; 0: 4 times hidden, or with swiglu 8/3 times hidden, rounded up "
               "to a multiple of 256",
       .min = 0,
       .also = "ffn_hidden_size intermediate_size n_inner mlp"});
  list.unused_if([&model] { return why_sizes_unread(model); });
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
  list.unused_if([&model] {
    return model.path.empty() && model.is_llama()
               ? "model.family is llama, which has qkv_bias, out_bias and mlp_bias"
               : why_sizes_unread(model);
  });
  list.add("bias", &model.bias,
           {.help = "whether linear layers have biases, and norms have, too (gpt), or have them "
                    "whatever this says (opt)",
            .also = "add_bias_linear enable_bias"});
}

void list_initialisation(ModelConfig& model, OptionList& list) {
  list.unused_if([&model] { return why_sizes_unread(model); });
  list.add("norm_eps", &model.norm_eps,
           {.help = "added to the variance in norms",
            .above = 0,
            .also = "layer_norm_epsilon rms_norm_eps layernorm_epsilon"});
  list.add(
      "init_std", &model.init_std,
      {.help = "standard deviation of the initial weights; divided by sqrt(2 x layers) for the "
               "last projections of attention and MLP (o_proj, down_proj, experts' too)",
       .min = 0,
       .also = "initializer_range init_method_std"});
  list.unused_if({});
  list.add("mtp_layers", &model.mtp_layers,
           {.help = "layers behind the others that each predict a further token in training, as in "
                    "DeepSeek-V3 (multi-token prediction); of the model at model.path, which may "
                    "have more; 0: none (llama)",
            .min = 0,
            .also = "num_nextn_predict_layers mtp_num_layers num_mtp_layers n_predict_tokens"});
  list.add(
      "mup_base", &model.mup_base,
      {.help = "muP: the width whose best init_std, learning rate, eps and weight decay suit this "
               "model, too: with m = hidden / mup_base, the weights of the blocks' products start "
               "with init_std / sqrt(m) and learn with lr / m and m times weight_decay; eps and "
               "logits are divided by m; axonn check --mup tests it; 0: not used (gpt, llama, opt)",
       .min = 0,
       .also = "mup_base_width mup_base_shapes base_width d_model_base use_mup"});
  list.unused_if([&model] { return model.mup_base == 0 ? "model.mup_base is 0" : ""; });
  list.add("mup_base_head_dim", &model.mup_base_head_dim,
           {.help = "width of a head of the model of width mup_base: scores are multiplied by its "
                    "square root and divided by the width of a head; 0: the same as here",
            .min = 0,
            .also = "mup_base_head_size"});
}

void list_quantize(ModelConfig& model, OptionList& list) {
  list.add(
      "quantize", model.quantize, kQuantizations,
      {.help =
           "how the frozen matrices of the blocks are kept under adapters (QLoRA): nf4 and "
           "fp4 of bitsandbytes, q4_0 and q4_k of GGUF, 4.5 bits a weight; of GGUF also q3_k "
           "of 3.4, mxfp4 of 4.25, q4_1 of 5, q5_0 and q5_k of 5.5, q5_1 of 6, q6_k of 6.6 and "
           "q8_0 of 8.5; int8, a factor for each row, 8.5 bits; file: each matrix as the GGUF "
           "file at model.path has it, also of q2_k, iq4_nl and iq4_xs, which are only read, and "
           "embeddings, too, or the experts in MXFP4 of a folder, as gpt-oss was published; "
           "none: in training.dtype",
       .also = "load_in_4bit load_in_8bit quantization bnb_4bit_quant_type quant_type"});
  list.add("quantize_embeddings", &model.quantize_embeddings,
           {.help = "keep the table of tokens and the output layer as codes, too, as GGUF does",
            .also = "token_embedding_type output_tensor_type"});
}

}  // namespace

void list_options(ModelConfig& model, OptionList& list) {
  list.section("model", "The sizes of the model, or the checkpoint it is read from");
  list.unused_if([&model] { return why_sizes_unread(model); });
  list_kind(model, list);
  list_main_sizes(model, list);
  list_other_sizes(model, list);
  list_initialisation(model, list);
  for (const Family* const family : families()) family->list_options(model, list);
  list.unused_if({});
  list.add("path", &model.path,
           {.help = "checkpoint, run's output.dir, Hugging Face folder or GGUF file to read sizes "
                    "and weights from; "
                    "empty: a new model",
            .also = "init_from load base_model model_name_or_path pretrained_model_name_or_path",
            .reads = Reads::files});
  list_quantize(model, list);
  list_lora_options(model.lora, list);
  list_own_options(model, list);
}

}  // namespace axonn
