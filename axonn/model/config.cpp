#include "axonn/model/config.h"

#include <string>

#include "axonn/base/check.h"
#include "axonn/base/options.h"

namespace axonn {

namespace {

/// "12 or 16": the divisors of `whole` that lie around `part`.
std::string divisors_near(std::int64_t whole, std::int64_t part) {
  std::int64_t below = part, above = part;
  while (below > 1 && whole % below != 0) --below;
  while (above < whole && whole % above != 0) ++above;
  return below < 1 || above > whole ? concat(whole)
                                    : concat(below, above != below ? concat(" or ", above) : "");
}

void need(std::int64_t value, const char* key) {
  if (value <= 0)
    refuse("[model] ", key, " is missing: set it in the file or with --model.", key,
           ", or name a checkpoint with --model.path");
}

}  // namespace

ModelConfig resolved(ModelConfig model, std::int64_t vocab, std::int64_t positions) {
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.ffn == 0) model.ffn = 4 * model.hidden;
  if (model.vocab == 0) model.vocab = vocab;
  if (model.positions == 0) model.positions = positions;
  return model;
}

void validate(const ModelConfig& model) {
  if (model.family == ModelFamily::llama)
    refuse("[model] family = \"llama\" is not yet in this version; the family it has is gpt");
  if (!model.path.empty()) return;
  need(model.layers, "layers");
  need(model.hidden, "hidden");
  need(model.heads, "heads");
  if (model.hidden % model.heads != 0)
    refuse("[model] heads = ", model.heads, " does not divide hidden = ", model.hidden, "; take ",
           divisors_near(model.hidden, model.heads), " heads, or a hidden of ",
           model.hidden / model.heads * model.heads + model.heads);
  if (model.kv_heads > 0 && model.heads % model.kv_heads != 0)
    refuse("[model] kv_heads = ", model.kv_heads, " does not divide heads = ", model.heads,
           "; take ", divisors_near(model.heads, model.kv_heads), ", or 0 for as many as heads");
}

void list_options(ModelConfig& model, OptionList& list) {
  list.section("model", "The sizes of the model, or the checkpoint it is read from");
  list.add("family", model.family, kModelFamilies, {.help = "kind of model; llama is yet to come"});
  list.add("layers", &model.layers,
           {.help = "transformer blocks",
            .min = 1,
            .required = true,
            .also = "n_layer n_layers num_layers num_hidden_layers depth"});
  list.add("hidden", &model.hidden,
           {.help = "width of the residual stream",
            .min = 1,
            .required = true,
            .also = "n_embd dim d_model hidden_size width channels"});
  list.add("heads", &model.heads,
           {.help = "attention heads; divides hidden",
            .min = 1,
            .required = true,
            .also = "n_head n_heads num_heads num_attention_heads"});
  list.add("kv_heads", &model.kv_heads,
           {.help = "key-value heads; divides heads; 0: as many as heads",
            .min = 0,
            .also = "n_kv_heads num_key_value_heads num_query_groups"});
  list.add("ffn", &model.ffn,
           {.help = "width inside the MLP; 0: 4 times hidden",
            .min = 0,
            .also = "ffn_hidden_size intermediate_size n_inner mlp"});
  list.add("vocab", &model.vocab,
           {.help = "size of the vocabulary, before padding; 0: the tokenizer's",
            .min = 0,
            .also = "vocab_size padded_vocab_size"});
  list.add("positions", &model.positions,
           {.help = "longest sequence the model can learn; 0: training.seq_len",
            .min = 0,
            .also = "max_position_embeddings n_positions n_ctx"});
  list.add("tied", &model.tied,
           {.help = "whether logits use the embedding's weight",
            .also = "tie_word_embeddings untie_embeddings_and_output_weights"});
  list.add("bias", &model.bias,
           {.help = "whether linear layers and norms have biases", .also = "add_bias_linear"});
  list.add("norm_eps", &model.norm_eps,
           {.help = "added to the variance in norms",
            .above = 0,
            .also = "layer_norm_epsilon rms_norm_eps layernorm_epsilon"});
  list.add("init_std", &model.init_std,
           {.help = "standard deviation of the initial weights",
            .min = 0,
            .also = "initializer_range init_method_std"});
  list.add("path", &model.path,
           {.help = "a checkpoint to take sizes and weights from; empty: a new model",
            .also = "init_from load model_name"});
}

}  // namespace axonn
