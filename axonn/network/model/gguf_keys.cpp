#include "axonn/network/model/gguf_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/gguf_tensors.h"
#include "axonn/network/model/json_reader.h"
#include "axonn/network/nn/attention/rope.h"

namespace axonn {

namespace {

/// llama.cpp's code for the type of most tensors of a file.
std::uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q4_0:
      return 2;
    case GgufType::q4_1:
      return 3;
    case GgufType::q8_0:
      return 7;
    case GgufType::q5_0:
      return 8;
    case GgufType::q5_1:
      return 9;
    case GgufType::q3_k:
      return 11;
    case GgufType::q4_k:
      return 14;
    case GgufType::q5_k:
      return 16;
    case GgufType::q6_k:
      return 18;
    case GgufType::bf16:
      return 32;
    case GgufType::mxfp4:
      return 38;
  }
  return 0;
}

std::int64_t dense_layers_of(const ModelConfig& model) {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) count += !model.has_experts(layer);
  return count;
}

void add_yarn(const ModelConfig& model, GgufYarn form, const std::string& architecture,
              GgufKeys& keys) {
  const RopeScaling& rope = model.rope;
  const std::string scaling = architecture + ".rope.scaling.";
  keys.emplace_back(scaling + "type", std::string("yarn"));
  keys.push_back(gguf_number(scaling + "factor", rope.factor));
  keys.emplace_back(scaling + "original_context_length",
                    static_cast<std::uint32_t>(rope.original_positions));
  keys.push_back(gguf_number(scaling + "yarn_beta_fast", rope.beta_fast));
  keys.push_back(gguf_number(scaling + "yarn_beta_slow", rope.beta_slow));
  RopeScaling usual = rope;
  usual.attention_factor = 0;
  if (form == GgufYarn::rotary)  // a factor of the usual one
    keys.push_back(
        gguf_number(scaling + "attn_factor", rope_magnitude(rope) / rope_magnitude(usual)));
}

void set_key(GgufKeys& keys, std::string name, GgufValue value) {
  const auto found = std::ranges::find(keys, name, [](const auto& key) { return key.first; });
  if (found == keys.end())
    keys.emplace_back(std::move(name), std::move(value));
  else
    found->second = std::move(value);
}

}  // namespace

double shortest_decimal(double rounded) {
  std::array<char, 32> text{};
  std::to_chars(text.data(), text.data() + text.size() - 1, static_cast<float>(rounded));
  return std::strtod(text.data(), nullptr);
}

GgufModelKeys::GgufModelKeys(const GgufFile& file)
    : file_(file), architecture_(file.text("general.architecture").value_or("")) {}

std::string GgufModelKeys::full(std::string_view key) const {
  return concat(architecture_, '.', key);
}

std::optional<std::int64_t> GgufModelKeys::integer(std::string_view key) const {
  const auto value = file_.integer(full(key));
  if (value && (*value < 0 || *value > kMostRows))
    refuse(file_.path(), ": ", full(key), " is ", *value, ", wanted 0 to ", kMostRows);
  return value;
}

std::int64_t GgufModelKeys::integer_or(std::string_view key, std::int64_t otherwise) const {
  return integer(key).value_or(otherwise);
}

std::optional<double> GgufModelKeys::number(std::string_view key) const {
  const auto value = file_.number(full(key));
  return value ? std::optional(shortest_decimal(*value)) : std::nullopt;
}

double GgufModelKeys::number_or(std::string_view key, double otherwise) const {
  return number(key).value_or(otherwise);
}

std::vector<std::int64_t> GgufModelKeys::integers(std::string_view key) const {
  const auto found = file_.keys().find(full(key));
  if (found == file_.keys().end()) return {};
  if (const auto* const one = std::get_if<std::int64_t>(&found->second)) return {*one};
  const auto* const all = file_.integers(full(key));
  return all ? *all : std::vector<std::int64_t>();
}

std::int64_t GgufModelKeys::needed(std::string_view key, std::int64_t most) const {
  const auto value = integer(key);
  if (!value) refuse(file_.path(), " has no ", full(key), kGgufRemedy);
  if (*value < 1 || *value > most)
    refuse(file_.path(), ": ", full(key), " is ", *value, ", wanted 1 to ", most);
  return *value;
}

bool GgufModelKeys::has_in_blocks(std::string_view end) const {
  constexpr std::string_view kBlock = "blk.";
  return std::ranges::any_of(file_.tensors(), [&](const auto& of) {
    const std::string& name = of.first;
    const std::size_t dot = name.find('.', kBlock.size());
    return name.starts_with(kBlock) && dot != name.npos &&
           std::string_view(name).substr(dot + 1) == end;
  });
}

std::int64_t gguf_positions(const ModelConfig& model) {
  const Family* const family = find_family(model);
  const ModelType* const type = family ? find_type(*family, model) : nullptr;
  const bool cut = model.window > 0 && !(type && type->gguf.windows);
  return cut ? std::min(model.window, model.positions) : model.positions;
}

GgufKeys gguf_model_keys(const ModelConfig& model, const std::string& name, GgufType type) {
  const GgufForm& form = GgufModel(model).type->gguf;
  const std::string architecture(form.architecture);
  GgufKeys keys{{"general.architecture", architecture},
                {"general.type", std::string("model")},
                {"general.name", name},
                {"general.file_type", file_type(type)}};
  if (is_quantized(type)) keys.emplace_back("general.quantization_version", std::uint32_t{2});
  const auto key = [&](const char* of) { return concat(architecture, '.', of); };
  const auto add = [&](const char* of, std::int64_t value) {
    keys.emplace_back(key(of), static_cast<std::uint32_t>(value));
  };
  const auto add_number = [&](const char* of, double value) {
    keys.emplace_back(key(of), static_cast<float>(value));
  };
  add("block_count", model.layers);
  add("context_length", gguf_positions(model));
  add("embedding_length", model.hidden);
  // Where all layers have experts, some architectures take it for their width.
  const bool all_routed = model.experts > 0 && dense_layers_of(model) == 0;
  add("feed_forward_length", all_routed ? model.expert_ffn : model.ffn);
  add("vocab_size", model.vocab);
  add("attention.head_count", model.heads);
  if (model.is_llama()) {
    add("attention.head_count_kv", model.kv_heads);
    add("attention.key_length", model.head_width());
    add("attention.value_length", model.head_width());
    add("rope.dimension_count", model.rotary_width());
    add_number("rope.freq_base", model.rope_theta);
  }
  if (model.window > 0) add("attention.sliding_window", model.window);
  add_number(model.is_llama() && model.norm == NormKind::rms ? "attention.layer_norm_rms_epsilon"
                                                             : "attention.layer_norm_epsilon",
             model.norm_eps);
  if (model.rope.kind == RopeScalingKind::linear) {
    keys.emplace_back(key("rope.scaling.type"), std::string("linear"));
    add_number("rope.scaling.factor", model.rope.factor);
  }
  if (model.experts > 0) {
    add("expert_count", model.experts);
    add("expert_used_count", model.experts_per_token);
    add("expert_feed_forward_length", model.expert_ffn);
  }
  if (model.rope.kind == RopeScalingKind::yarn) add_yarn(model, form.yarn, architecture, keys);
  if (form.keys)
    for (auto& [of, value] : form.keys(model)) set_key(keys, key(of.c_str()), std::move(value));
  return keys;
}

GgufKeys gguf_values(const ModelConfig& model, ParameterSource& source) {
  const GgufForm& form = GgufModel(model).type->gguf;
  return form.values ? form.values(model, source) : GgufKeys();
}

}  // namespace axonn
