#include "axonn/network/model/gguf_tensors.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/model.h"
#include "axonn/network/nn/attention/rope.h"

namespace axonn {

namespace {

constexpr std::string_view kRouter = ".ffn_gate_inp.weight", kExperts = "_exps.",
                           kLatentHeads = ".attn_kv_b.weight";

/// Whether one of those before it, if it is of an expert or the rows after a gate's, takes it up.
bool add_to_last_alike(std::vector<GgufTensor>& tensors, const GgufTensor& tensor) {
  auto latest_first = std::views::reverse(tensors);
  const auto found = std::ranges::find(latest_first, tensor.name, &GgufTensor::name);
  if (found == latest_first.end()) return false;
  found->more.push_back(tensor.parameter);
  return true;
}

/// A head's rows of the product that makes keys and values of a latent are a matrix of keys,
/// transposed, and one of values.
void add_latent_heads(const ModelConfig& model, const GgufTensor& both,
                      std::vector<GgufTensor>& tensors) {
  const std::string block = both.name.substr(0, both.name.size() - kLatentHeads.size());
  const std::int64_t keys = model.qk_nope_head_dim, values = model.v_head_dim;
  GgufTensor part = both;
  part.name = block + ".attn_k_b.weight";
  part.heads = {.of = keys + values, .first = 0, .count = keys, .transposed = true};
  part.type = type_for_rows(both.type, keys);
  tensors.push_back(part);
  part.name = block + ".attn_v_b.weight";
  part.heads = {.of = keys + values, .first = keys, .count = values};
  part.type = type_for_rows(both.type, both.parameter.cols);
  tensors.push_back(std::move(part));
}

/// What divides the rotary frequencies.
std::vector<float> llama3_factors(const ModelConfig& model) {
  const auto plain = rope_frequencies(model.head_width(), model.rope_theta, {}),
             scaled = rope_frequencies(model.head_width(), model.rope_theta, model.rope);
  std::vector<float> factors;
  for (std::size_t i = 0; i < plain.size(); ++i)
    factors.push_back(static_cast<float>(plain[i] / scaled[i]));
  return factors;
}

[[noreturn]] void refuse_type(const ModelConfig& model, const ModelType* type) {
  std::vector<std::string_view> names;
  for (const Family* const one : families())
    for (const ModelType& known : one->types())
      if (!known.gguf.architecture.empty()) names.push_back(known.name);
  refuse("in GGUF files models of ",
         type ? concat("the type ", type->name)
              : concat("family ", model_families()[static_cast<int>(model.family)]),
         " can be neither read nor written, those of the types ", join(names), " can",
         type ? "; convert the Hugging Face folder with llama.cpp's own script" : "");
}

void check_type(const ModelConfig& model, const ModelType* type) {
  Unsupported unsupported;
  // In others, versions of llama.cpp differ in what they multiply cosines and sines by.
  if (model.rope.kind == RopeScalingKind::yarn && type->gguf.yarn == GgufYarn::none)
    unsupported.emplace_back("rope_scaling = yarn");
  // llama.cpp takes the factors of long sequences for short ones, too, if the context is long.
  if (model.rope.kind == RopeScalingKind::longrope)
    unsupported.emplace_back("rope_scaling = longrope");
  if (model.rope.kind == RopeScalingKind::linear && !type->gguf.linear_and_window_ropes)
    unsupported.emplace_back("rope_scaling = linear");
  if (model.partial_rotary_factor != 1 && !type->gguf.partial_rotary)
    unsupported.push_back(concat("partial_rotary_factor = ", model.partial_rotary_factor));
  if (!type->gguf.biases) {
    const ModelConfig& usual = type->defaults;
    if (model.qkv_bias && !usual.qkv_bias) unsupported.emplace_back("qkv_bias = true");
    if (model.out_bias && !usual.out_bias) unsupported.emplace_back("out_bias = true");
    if (model.mlp_bias && !usual.mlp_bias) unsupported.emplace_back("mlp_bias = true");
  }
  if (model.experts > 0 && !type->gguf.experts)
    unsupported.push_back(concat("experts = ", model.experts));
  if (model.has_window_rope() && !type->gguf.linear_and_window_ropes)
    unsupported.emplace_back("other rotary frequencies in layers with the window");
  if (unsupported.empty() && type->gguf.check) type->gguf.check(model, unsupported);
  if (!unsupported.empty())
    refuse("in GGUF files models of the type ", type->name,
           " can be neither read nor written with ", join(unsupported),
           "; convert the Hugging Face folder with llama.cpp's own script");
}

}  // namespace

GgufModel::GgufModel(const ModelConfig& model)
    : family(find_family(model)), type(family ? &need_type(*family, model) : nullptr) {
  if (!type || type->gguf.architecture.empty()) refuse_type(model, type);
  check_type(model, type);
}

std::vector<GgufTensor> gguf_tensors(const ModelConfig& model,
                                     std::span<const ParameterSpec> parameters, GgufType type) {
  const GgufModel known(model);
  const GgufForm& form = known.type->gguf;
  std::vector<GgufTensor> tensors;
  for (const ParameterSpec& spec : parameters) {
    const bool in_keys =
        !form.kept_in_keys.empty() && spec.name.find(form.kept_in_keys) != spec.name.npos;
    if (in_keys) continue;  // gguf_values()
    GgufTensor tensor{.name = known.family->gguf_name(model, spec.name),
                      .parameter = {spec.name, spec.layout.rows, spec.layout.cols},
                      .type = type,
                      .vector = spec.layout.cols == 1 && !spec.decays};
    if (tensor.name.empty())
      refuse("in GGUF files llama.cpp has no name for the parameter ", spec.name);
    if (tensor.vector || tensor.name.ends_with(kRouter)) tensor.type = GgufType::f32;
    if (tensor.name.ends_with(kLatentHeads)) {
      add_latent_heads(model, tensor, tensors);
      continue;
    }
    tensor.stacked = tensor.name.find(kExperts) != tensor.name.npos;
    if (add_to_last_alike(tensors, tensor)) continue;
    if (model.norm_plus_one && spec.name.ends_with("norm.weight")) tensor.plus = 1;
    if (form.arrange) form.arrange(model, spec.name, tensor);
    tensor.type = type_for_rows(tensor.type, tensor.parameter.cols);
    constexpr std::array kRotated = {".attn_q.weight", ".attn_k.weight", ".attn_q.bias",
                                     ".attn_k.bias"};
    if (form.interleaved &&
        std::ranges::any_of(kRotated, [&](const char* end) { return tensor.name.ends_with(end); }))
      tensor.interleaved = model.head_width();
    tensors.push_back(std::move(tensor));
  }
  std::vector<float> factors;
  if (form.rope_factors) factors = form.rope_factors(model);
  if (model.rope.kind == RopeScalingKind::llama3) factors = llama3_factors(model);
  if (!factors.empty())
    tensors.push_back({.name = "rope_freqs.weight",
                       .parameter = {"", std::ssize(factors), 1},
                       .vector = true,
                       .values = factors});
  return tensors;
}

}  // namespace axonn
