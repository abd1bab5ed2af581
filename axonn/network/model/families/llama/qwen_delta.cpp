// Qwen3-Next, Qwen3.5 and 3.6: gated delta nets in most layers; in the others attention whose
// output has gates, norms of the heads of queries and keys, and rotary positions on a part of each
// head. Norms multiply by 1 + weight, but for those in delta nets. Perhaps experts, and an MLP
// beside them that has a gate. Of positions in images only the text's are read. Sizes: the
// config.json of each model.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

constexpr std::int64_t kFullInterval = 4;  // of layers with attention, if the file is silent

ModelConfig qwen_delta(ModelConfig model) {
  model.norm_eps = 1e-6;
  model.head_dim = 256;
  model.partial_rotary_factor = 0.25;
  model.qk_norm = QkNormKind::head;
  model.norm_plus_one = true;
  model.attention_gate = true;
  return model;
}

LayerList all_but_every_nth(const ModelConfig& model, std::int64_t n) {
  return layers_where(model, [n](std::int64_t layer) { return (layer + 1) % n != 0; });
}

/// The layers with delta nets, by layer_types or every how many layers there is attention.
LayerList read_delta_layers(const JsonReader& file, const ModelConfig& model,
                            Unsupported& unsupported) {
  const std::int64_t interval =
      file.integer({"full_attention_interval"}, kMostLayers).value_or(kFullInterval);
  const nlohmann::json* const kinds = file.find({"layer_types"});
  if (!kinds) return all_but_every_nth(model, interval);
  if (!kinds->is_array() || std::ssize(*kinds) != model.layers)
    refuse(file.location(), ": layer_types wants a list of num_hidden_layers = ", model.layers,
           " kinds of layers, got ", kinds->dump());
  for (const nlohmann::json& kind : *kinds)
    if (kind != "linear_attention" && kind != "full_attention")
      unsupported.push_back("layer_types with " + kind.dump());
  return layers_where(model, [&](std::int64_t i) { return (*kinds)[i] == "linear_attention"; });
}

void read_delta(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  const auto size = [&](const char* key, std::int64_t& to) {
    to = file.integer({key}, kMostColumns).value_or(to);
  };
  size("linear_num_key_heads", model.delta.key_heads);
  size("linear_num_value_heads", model.delta.value_heads);
  size("linear_key_head_dim", model.delta.key_dim);
  size("linear_value_head_dim", model.delta.value_dim);
  size("linear_conv_kernel_dim", model.delta.taps);
  if (model.delta.taps < 2 || model.delta.taps > DeltaSizes::kMostTaps)
    unsupported.push_back(concat("linear_conv_kernel_dim = ", model.delta.taps));
  model.delta_layers = read_delta_layers(file, model, unsupported);
  if (!file.flag("attn_output_gate", true)) unsupported.emplace_back("attn_output_gate = false");
  if (file.flag("mtp_use_dedicated_embeddings", false)) model.mtp_layers = 0;  // passed over
}

void write_delta(const ModelConfig& model, JsonObject& out) {
  nlohmann::json kinds = nlohmann::json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    kinds.push_back(model.has_delta(layer) ? "linear_attention" : "full_attention");
  out.update({{"layer_types", std::move(kinds)},
              {"linear_num_key_heads", model.delta.key_heads},
              {"linear_num_value_heads", model.delta.value_heads},
              {"linear_key_head_dim", model.delta.key_dim},
              {"linear_value_head_dim", model.delta.value_dim},
              {"linear_conv_kernel_dim", model.delta.taps}});
}

void check_delta(const ModelConfig& model, Unsupported& unsupported) {
  if (!model.attention_gate) unsupported.emplace_back("attention_gate = false");
  if (model.qk_norm != QkNormKind::head) unsupported.emplace_back("qk_norm other than head");
}

/// The names that all these types have.
void rename_common(const std::string& parameter, StoredName& stored) {
  if (parameter.ends_with("conv1d.weight")) stored.depthwise = true;
  rename_part(parameter, ".mlp.shared_experts.", ".mlp.shared_expert.", stored);
}

/// Its files join queries, keys and values of delta nets.
void rename_qwen3_5(const ModelConfig& model, const std::string& parameter, StoredName& stored) {
  rename_common(parameter, stored);
  const std::int64_t keys = model.delta.key_heads * model.delta.key_dim,
                     all = 2 * keys + model.delta.value_heads * model.delta.value_dim;
  constexpr std::string_view kJoined = "linear_attn.in_proj_qkv.weight";
  join_part(parameter, {"linear_attn.q_proj.weight", kJoined, all, 0}, stored);
  join_part(parameter, {"linear_attn.k_proj.weight", kJoined, all, keys}, stored);
  join_part(parameter, {"linear_attn.v_proj.weight", kJoined, all, 2 * keys}, stored);
}

/// Its files join all products of delta nets in two tensors, key head by key head.
void rename_qwen3_next(const ModelConfig& model, const std::string& parameter, StoredName& stored) {
  rename_common(parameter, stored);
  const std::int64_t heads = model.delta.key_heads, keys = model.delta.key_dim,
                     group = model.delta.value_heads / heads,
                     values = group * model.delta.value_dim;
  const auto join = [&](std::string_view name, std::string_view joined, std::int64_t rows,
                        std::int64_t first) {
    if (!parameter.ends_with(name)) return;
    join_part(parameter, {name, joined, heads * rows, first}, stored);
    stored.joined.turns = heads;
  };
  constexpr std::string_view kProducts = "linear_attn.in_proj_qkvz.weight",
                             kGates = "linear_attn.in_proj_ba.weight";
  const std::int64_t rows = 2 * keys + 2 * values;
  join("linear_attn.q_proj.weight", kProducts, rows, 0);
  join("linear_attn.k_proj.weight", kProducts, rows, keys);
  join("linear_attn.v_proj.weight", kProducts, rows, 2 * keys);
  join("linear_attn.in_proj_z.weight", kProducts, rows, 2 * keys + values);
  join("linear_attn.in_proj_b.weight", kGates, 2 * group, 0);
  join("linear_attn.in_proj_a.weight", kGates, 2 * group, group);
}

/// Whether all layers have experts, or none has.
bool all_alike(const ModelConfig& model) {
  return model.experts == 0 || (model.expert_step == 1 && model.dense_layers.empty());
}

void read_delta_moe(const JsonReader& file, ModelConfig& model, Unsupported& unsupported) {
  read_delta(file, model, unsupported);
  const std::int64_t ffn = model.expert_ffn, step = model.expert_step;
  const bool none = file.zero_or("num_experts", kMostExperts, model.experts) == 0;
  if (none)
    model.experts = 0;
  else
    read_experts(file, model, unsupported);
  model.expert_ffn = file.integer({"moe_intermediate_size"}, kMostColumns).value_or(ffn);
  model.shared_ffn =
      file.integer({"shared_expert_intermediate_size"}, kMostColumns).value_or(model.shared_ffn);
  model.expert_step = file.integer({"decoder_sparse_step"}, kMostLayers).value_or(step);
  model.dense_layers = file.integers("mlp_only_layers");
  model.expert_norm = file.flag("norm_topk_prob", true);
  if (!all_alike(model)) model.mtp_layers = 0;  // no file says whether that layer has experts
}

void write_delta_moe(const ModelConfig& model, JsonObject& out) {
  write_delta(model, out);
  out["num_experts"] = model.experts;
  if (model.experts == 0) return;
  write_experts(model, 0.001, out);
  out["moe_intermediate_size"] = model.expert_ffn;
  out["shared_expert_intermediate_size"] = model.shared_ffn;
}

void write_qwen3_next(const ModelConfig& model, JsonObject& out) {
  write_delta_moe(model, out);
  if (model.experts == 0) return;
  out["norm_topk_prob"] = model.expert_norm;
  out["decoder_sparse_step"] = model.expert_step;
  out["mlp_only_layers"] = model.dense_layers;
}

void check_delta_moe(const ModelConfig& model, Unsupported& unsupported) {
  check_delta(model, unsupported);
  check_router(model, unsupported);
  if (model.mtp_layers > 0 && !all_alike(model))
    unsupported.emplace_back("mtp_layers with layers without experts");
}

void check_qwen3_5_moe(const ModelConfig& model, Unsupported& unsupported) {
  check_delta_moe(model, unsupported);
  check_all_routed(model, unsupported);
  if (!model.expert_norm) unsupported.emplace_back("expert_norm = false");
}

ModelConfig with_shared_expert(ModelConfig model, std::int64_t experts, std::int64_t per_token) {
  model = with_experts(std::move(model), experts, per_token, 512);
  model.shared_ffn = 512;
  model.shared_gate = true;
  return model;
}

ModelConfig known_qwen3_5(bool tied, std::int64_t value_heads) {
  ModelConfig model = qwen_delta(known_llama(248320, 262144, 1e7));
  model.tied = tied;
  model.delta.value_heads = value_heads;
  return model;
}

std::vector<ModelConfig> known_qwens_3_5() {
  std::vector<ModelConfig> models;
  add_known(models, known_qwen3_5(true, 16),
            {{"qwen3.5-0.8b", 24, 1024, 8, 2, 3584}, {"qwen3.5-2b", 24, 2048, 8, 2, 6144}});
  add_known(models, known_qwen3_5(true, 32), {{"qwen3.5-4b", 32, 2560, 16, 4, 9216}});
  add_known(models, known_qwen3_5(false, 32), {{"qwen3.5-9b", 32, 4096, 16, 4, 12288}});
  add_known(models, known_qwen3_5(false, 48), {{"qwen3.5-27b", 64, 5120, 24, 4, 17408}});
  for (ModelConfig& model : models) model.delta_layers = all_but_every_nth(model, kFullInterval);
  return models;
}

std::vector<ModelConfig> known_qwens_3_5_moe() {
  std::vector<ModelConfig> models;
  add_known(models, with_shared_expert(known_qwen3_5(false, 32), 256, 8),
            {{"qwen3.5-35b-a3b", 40, 2048, 16, 2, 5632}});
  for (ModelConfig& model : models) {
    model.type = "qwen3_5_moe_text";
    model.delta_layers = all_but_every_nth(model, kFullInterval);
  }
  return models;
}

std::vector<ModelConfig> known_qwens_3_next() {
  ModelConfig model = with_shared_expert(qwen_delta(known_llama(151936, 262144, 1e7)), 512, 10);
  model.tied = false;
  std::vector<ModelConfig> models;
  add_known(models, model, {{"qwen3-next-80b-a3b", 48, 2048, 16, 2, 5120}});
  for (ModelConfig& one : models) {
    one.type = "qwen3_next";
    one.delta_layers = all_but_every_nth(one, kFullInterval);
  }
  return models;
}

// In GGUF a delta net's queries, keys and values are one tensor, and decays are -e^A_log. The value
// heads of qwen35, but not of qwen3next, come in another order: the first ones of all key heads,
// then the second ones.

constexpr std::array<std::array<std::string_view, 2>, 5> kGgufNext = {
    {{"linear_attn.A_log", "ssm_a"},
     {"linear_attn.dt_bias", "ssm_dt.bias"},
     {"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
     {"linear_attn.in_proj_b.weight", "ssm_ba.weight"},
     {"linear_attn.in_proj_a.weight", "ssm_ba.weight"}}};
constexpr std::array<std::array<std::string_view, 2>, 5> kGguf3_5 = {
    {{"linear_attn.A_log", "ssm_a"},
     {"linear_attn.dt_bias", "ssm_dt.bias"},
     {"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
     {"linear_attn.in_proj_b.weight", "ssm_beta.weight"},
     {"linear_attn.in_proj_a.weight", "ssm_alpha.weight"}}};

void arrange_delta(const ModelConfig& model, const std::string& parameter, GgufTensor& tensor) {
  if (parameter.ends_with("linear_attn.norm.weight")) tensor.plus = 0;
  if (parameter.ends_with(".A_log")) tensor.decays = true;
  if (parameter.ends_with(".conv1d.weight")) tensor.type = GgufType::f32;
  if (tensor.name.ends_with(".ssm_ba.weight")) tensor.turns = model.delta.key_heads;
}

/// The same, with the value heads in their order; they follow queries and keys in two tensors.
void arrange_value_heads(const ModelConfig& model, const std::string& parameter,
                         GgufTensor& tensor) {
  arrange_delta(model, parameter, tensor);
  const DeltaSizes& sizes = model.delta;
  const std::int64_t keys = 2 * sizes.key_heads * sizes.key_dim;
  const auto order = [&](std::int64_t width, std::int64_t first) {
    tensor.tiles = {.groups = sizes.key_heads,
                    .each = sizes.value_heads / sizes.key_heads,
                    .width = width,
                    .first = first};
  };
  const auto is = [&](const char* end) { return parameter.ends_with(end); };
  if (is(".in_proj_b.weight") || is(".in_proj_a.weight") || is(".A_log") || is(".dt_bias"))
    order(1, 0);
  if (is(".in_proj_z.weight")) order(sizes.value_dim, 0);
  if (is(".conv1d.weight") || is("linear_attn.q_proj.weight")) order(sizes.value_dim, keys);
  if (is("linear_attn.out_proj.weight")) {
    order(sizes.value_dim, 0);
    tensor.tiles.columns = true;
  }
}

/// Every so many layers, the last one has attention; 0: it is not so.
std::int64_t full_interval(const ModelConfig& model) {
  for (std::int64_t n = 2; n <= model.layers; ++n)
    if (model.delta_layers == all_but_every_nth(model, n)) return n;
  return 0;
}

GgufKeys gguf_delta_keys(const ModelConfig& model) {
  const DeltaSizes& sizes = model.delta;
  const auto number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  GgufKeys keys{{"ssm.conv_kernel", number(sizes.taps)},
                {"ssm.state_size", number(sizes.key_dim)},
                {"ssm.group_count", number(sizes.key_heads)},
                {"ssm.time_step_rank", number(sizes.value_heads)},
                {"ssm.inner_size", number(sizes.value_heads * sizes.value_dim)},
                {"full_attention_interval", number(full_interval(model))}};
  if (model.experts > 0)
    keys.emplace_back("expert_shared_feed_forward_length", number(model.shared_ffn));
  return keys;
}

/// As of positions in images, which llama.cpp needs: thirds of the rotary pairs, 11, 11 and 10 of
/// the published models. In a text they change nothing.
GgufKeys gguf_qwen3_5_keys(const ModelConfig& model) {
  GgufKeys keys = gguf_delta_keys(model);
  const auto pairs = static_cast<std::int32_t>(model.rotary_width() / 2);
  const std::int32_t first = (pairs + 2) / 3, second = (pairs + 1) / 3;
  keys.emplace_back("rope.dimension_sections",
                    std::vector<std::int32_t>{first, second, pairs - first - second, 0});
  return keys;
}

void read_delta_gguf(const GgufModelKeys& keys, ModelConfig& model) {
  DeltaSizes& sizes = model.delta;
  sizes.taps = keys.needed("ssm.conv_kernel", DeltaSizes::kMostTaps);
  sizes.key_dim = keys.needed("ssm.state_size", kMostColumns);
  sizes.key_heads = keys.needed("ssm.group_count", kMostColumns);
  sizes.value_heads = keys.needed("ssm.time_step_rank", kMostColumns);
  sizes.value_dim = keys.needed("ssm.inner_size", kMostColumns) / sizes.value_heads;
  const std::vector<std::int64_t> recurrent = keys.integers("attention.recurrent_layers");
  model.delta_layers =
      recurrent.empty()
          ? all_but_every_nth(model, keys.needed("full_attention_interval", kMostLayers))
          : layers_where(model, [&](std::int64_t layer) {
              return layer < std::ssize(recurrent) && recurrent[layer] != 0;
            });
  model.shared_gate = model.experts > 0;
}

void check_delta_gguf(const ModelConfig& model, Unsupported& unsupported) {
  need_plain_rope(model, unsupported);
  if (full_interval(model) == 0)
    unsupported.emplace_back("delta_layers other than all but every n-th layer");
  if (model.delta.value_dim != model.delta.key_dim)
    unsupported.push_back(concat("delta_value_dim = ", model.delta.value_dim,
                                 " other than delta_key_dim = ", model.delta.key_dim));
  check_all_routed(model, unsupported);
  if (!model.expert_norm) unsupported.emplace_back("expert_norm = false");
}

void check_next_gguf(const ModelConfig& model, Unsupported& unsupported) {
  check_delta_gguf(model, unsupported);
  if (model.experts == 0) unsupported.emplace_back("experts = 0");
}

GgufForm gguf_delta(const char* architecture) {
  return {.architecture = architecture,
          .mlp_norm = "post_attention_norm",
          .partial_rotary = true,
          .experts = true,
          .names = kGguf3_5,
          .arrange = arrange_value_heads,
          .keys = gguf_qwen3_5_keys,
          .read = read_delta_gguf,
          .check = check_delta_gguf};
}

GgufForm gguf_next() {
  GgufForm form = gguf_delta("qwen3next");
  form.names = kGgufNext;
  form.arrange = arrange_delta;
  form.keys = gguf_delta_keys;
  form.check = check_next_gguf;
  return form;
}

ModelConfig qwen3_5_defaults() {
  ModelConfig model = qwen_delta(llama_defaults());
  model.layers = 32;
  model.hidden = 4096;
  model.heads = 16;
  model.kv_heads = 4;
  model.ffn = 12288;
  model.vocab = 248320;
  model.positions = 32768;
  return model;
}

}  // namespace

std::vector<ModelType> qwen_delta_types() {
  const ModelConfig dense = qwen3_5_defaults();
  ModelConfig moe = with_shared_expert(dense, 256, 8);
  moe.type = "qwen3_5_moe_text";
  moe.layers = 40;
  moe.hidden = 2048;
  moe.kv_heads = 2;
  moe.ffn = 512;  // of a file without intermediate_size
  ModelConfig next = with_shared_expert(moe, 512, 10);
  next.type = "qwen3_next";
  next.layers = 48;
  next.ffn = 5632;
  next.vocab = 151936;
  return {{.name = "qwen3_5_text",
           .architecture = "Qwen3_5ForCausalLM",
           .defaults = dense,
           .bias_keys = {.attention = true},
           .rope_keys = {.part = true, .sections = true},
           .further = {.key = "mtp_num_hidden_layers", .silent = 1, .named = true},
           .fits = no_layer_slides,
           .known = known_qwens_3_5,
           .read = read_delta,
           .write = write_delta,
           .check = check_delta,
           .rename = rename_qwen3_5,
           .gguf = gguf_delta("qwen35")},
          {.name = "qwen3_5_moe_text",
           .architecture = "Qwen3_5MoeForCausalLM",
           .defaults = moe,
           .bias_keys = {.attention = true},
           .rope_keys = {.part = true, .sections = true},
           .further = {.key = "mtp_num_hidden_layers", .silent = 1, .named = true},
           .is_named = true,
           .fits = no_layer_slides,
           .known = known_qwens_3_5_moe,
           .read = read_delta_moe,
           .write = write_delta_moe,
           .check = check_qwen3_5_moe,
           .rename = rename_qwen3_5,
           .gguf = gguf_delta("qwen35moe")},
          {.name = "qwen3_next",
           .architecture = "Qwen3NextForCausalLM",
           .defaults = next,
           .bias_keys = {.attention = true},
           .rope_keys = {.part = true},
           .further = {.key = "num_nextn_predict_layers", .silent = 1, .named = true},
           .is_named = true,
           .dense_or_experts = true,
           .fits = no_layer_slides,
           .known = known_qwens_3_next,
           .read = read_delta_moe,
           .write = write_qwen3_next,
           .check = check_delta_moe,
           .rename = rename_qwen3_next,
           .gguf = gguf_next()}};
}

}  // namespace axonn
