// Phi-3, 3.5, 4 and 4-mini: a Llama whose files join queries, keys, values, and gate and up. Only
// a part of a head's columns may rotate, and longrope has other frequencies for long sequences.
// Sizes: the config.json of each model; those with longrope need its factors, too.
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/llama/types.h"

namespace axonn {

namespace {

constexpr std::string_view kPhi = "phi3";
constexpr const char* kOriginal = "original_max_position_embeddings";

std::vector<ModelConfig> known_phis() {
  ModelConfig phi_3 = known_llama(32064, 4096), phi_4 = known_llama(100352, 16384, 250000);
  phi_3.type = phi_4.type = kPhi;
  phi_3.window = 2047;
  std::vector<ModelConfig> models;
  add_known(
      models, phi_3,
      {{"phi-3-mini-4k", 32, 3072, 32, 32, 8192}, {"phi-3-medium-4k", 40, 5120, 40, 10, 17920}});
  add_known(models, phi_4, {{"phi-4", 40, 5120, 40, 10, 17920}});
  return models;
}

void read_phi(const JsonReader& file, ModelConfig& model, Unsupported&) {
  set_window(model, sliding_window(file, 0), {});
}

/// transformers 4 wants rope_scaling to have three keys, and calls the kind `type`.
void write_phi(const ModelConfig& model, JsonObject& out) {
  write_window(model, out);
  const bool scaled = model.rope.kind == RopeScalingKind::longrope;
  out[kOriginal] = scaled ? model.rope.original_positions : model.positions;
  if (!scaled) return;
  nlohmann::json& scaling = out["rope_scaling"];
  scaling["type"] = scaling["rope_type"];
  scaling.erase("rope_type");
  scaling.erase(kOriginal);
  if (model.rope.factor == longrope_factor(model)) scaling.erase("factor");
}

void check_phi(const ModelConfig& model, Unsupported& unsupported) {
  if (model.rope.kind != RopeScalingKind::longrope) return need_plain_rope(model, unsupported);
  check_head_dim(model, unsupported);  // transformers counts the factors by hidden / heads
}

void join_projections(const ModelConfig& given, const std::string& parameter, StoredName& stored) {
  const ModelConfig model = resolved(given, 0, 0);
  const std::int64_t q = model.heads * model.head_dim, kv = model.kv_heads * model.head_dim;
  constexpr std::string_view kJoined = "self_attn.qkv_proj.weight";
  join_part(parameter, {"self_attn.q_proj.weight", kJoined, q + 2 * kv, 0}, stored);
  join_part(parameter, {"self_attn.k_proj.weight", kJoined, q + 2 * kv, q}, stored);
  join_part(parameter, {"self_attn.v_proj.weight", kJoined, q + 2 * kv, q + kv}, stored);
  join_gate_and_up(model, parameter, stored);
}

}  // namespace

std::vector<ModelType> phi_types() {
  ModelConfig defaults = llama_defaults();
  defaults.type = kPhi;
  defaults.norm_eps = 1e-5;
  // As llama.cpp's "llama", with the tensors of Llama: its "phi3" wants them joined.
  return {{.name = kPhi,
           .architecture = "Phi3ForCausalLM",
           .defaults = defaults,
           .rope_keys = {.part = true, .longrope = true},
           .known = known_phis,
           .read = read_phi,
           .write = write_phi,
           .check = check_phi,
           .rename = join_projections,
           .gguf = {.architecture = "llama", .interleaved = true}}};
}

}  // namespace axonn
