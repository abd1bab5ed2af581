#include "axonn/network/model/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/gguf_keys.h"
#include "axonn/network/model/gguf_source.h"
#include "axonn/network/model/gguf_tensors.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/json_reader.h"
#include "axonn/network/nn/attention/rope.h"

namespace axonn {

namespace {

/// Which layers have the window, and which a state in place of attention, in newer files.
constexpr const char *kWindowLayers = "attention.sliding_window_pattern",
                     *kRecurrentLayers = "attention.recurrent_layers";

/// A type, and its family.
struct Candidate {
  const Family* family = nullptr;
  const ModelType* type = nullptr;
};

/// Of the types of an architecture the one that is called so, or one with experts as the file.
Candidate type_of(const GgufModelKeys& keys) {
  const bool routed = keys.integer_or("expert_count", 0) > 0;
  const auto fits = [&](const ModelType& type) {
    return 2 * static_cast<int>((type.defaults.experts > 0) == routed) +
           static_cast<int>(type.name == keys.architecture());
  };
  Candidate best;
  std::set<std::string_view> names;
  for (const Family* const family : families())
    for (const ModelType& type : family->types()) {
      const GgufForm& form = type.gguf;
      if (!form.architecture.empty()) names.insert(form.architecture);
      if (form.architecture == keys.architecture() && (!best.type || fits(type) > fits(*best.type)))
        best = {family, &type};
    }
  if (best.type) return best;
  refuse(keys.file().path(), ": models of the architecture '", printable(keys.architecture()),
         "' are not read from GGUF; those of ", join(names), " are", kGgufRemedy);
}

void read_sizes(const GgufModelKeys& keys, ModelConfig& model) {
  const auto& tensors = keys.file().tensors();
  const auto embedding = tensors.find("token_embd.weight");
  if (embedding == tensors.end() || embedding->second.sizes.size() != 2)
    refuse(keys.file().path(), " has no matrix token_embd.weight; is it a language model?");
  model.vocab = embedding->second.sizes[1];
  model.tied = !tensors.contains("output.weight");
  const std::int64_t further = keys.integer_or("nextn_predict_layers", 0);  // passed over
  model.layers = keys.needed("block_count", kMostLayers) - further;
  if (model.layers < 1)
    refuse(keys.file().path(), ": ", keys.full("nextn_predict_layers"), " is ", further,
           ", wanted less than ", keys.full("block_count"));
  model.positions = keys.needed("context_length", kMostRows);
  model.hidden = keys.needed("embedding_length", kMostColumns);
  model.heads = keys.needed("attention.head_count", kMostColumns);
  const auto of_layers = [&](std::string_view key, std::int64_t otherwise) {
    const std::vector<std::int64_t> all = keys.integers(key);
    return all.empty() ? otherwise : all.front();
  };
  model.kv_heads = of_layers("attention.head_count_kv", model.heads);
  model.head_dim = keys.integer_or("attention.key_length", 0);
  if (model.heads * std::max<std::int64_t>(model.head_width(), 1) > kMostColumns)
    refuse(keys.file().path(), ": ", model.heads, " heads of ", model.head_width(),
           " are too wide");
  model.ffn = of_layers("feed_forward_length", 4 * model.hidden);
  for (const char* const key : {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"})
    model.norm_eps = keys.number_or(key, model.norm_eps);
  model.init_std = 0.02;
}

void read_experts(const GgufModelKeys& keys, ModelConfig& model) {
  model.experts = keys.integer_or("expert_count", 0);
  if (model.experts == 0) {
    model.experts_per_token = model.expert_ffn = model.shared_ffn = 0;
    model.shared_gate = false;
    return;
  }
  model.experts_per_token = keys.needed("expert_used_count", kMostExperts);
  model.expert_ffn = keys.integer_or("expert_feed_forward_length", model.ffn);
  model.shared_ffn = keys.integer_or("expert_shared_feed_forward_length",
                                     keys.integer_or("expert_shared_count", 0) * model.expert_ffn);
  if (const auto kind = keys.integer("expert_gating_func"))
    model.router = *kind == kGgufSigmoid ? RouterKind::sigmoid : RouterKind::softmax;
  model.expert_norm = keys.integer_or("expert_weights_norm", model.expert_norm) != 0;
  model.router_scale = keys.number_or("expert_weights_scale", model.router_scale);
  model.router_bias = keys.has_in_blocks("exp_probs_b.bias");
  model.expert_step = keys.integer_or("interleave_moe_layer_step", 1);
  model.expert_groups = keys.integer_or("expert_group_count", 1);
  model.expert_groups_per_token = keys.integer_or("expert_group_used_count", 1);
  model.dense_layers = {};
  const std::int64_t dense = keys.integer_or("leading_dense_block_count", 0);
  for (std::int64_t i = 0; i < std::min(dense, model.layers); ++i) model.dense_layers.push_back(i);
}

/// The factors by which the file divides rotary frequencies are those of Llama 3.1 or 3.2.
RopeScaling scaling_with(const std::vector<float>& factors, const ModelConfig& model,
                         const std::string& path) {
  RopeScaling scaling{.kind = RopeScalingKind::llama3};
  const auto plain = rope_frequencies(model.head_width(), model.rope_theta, {});
  for (const double factor : {8.0, 32.0}) {
    scaling.factor = factor;
    const auto scaled = rope_frequencies(model.head_width(), model.rope_theta, scaling);
    bool same = factors.size() == plain.size();
    for (std::size_t i = 0; same && i < plain.size(); ++i)
      same = std::abs(plain[i] / scaled[i] / static_cast<double>(factors[i]) - 1) < 1e-5;
    if (same) return scaling;
  }
  refuse(path, ": rope_freqs.weight is of no known scaling (those of Llama 3.1 and 3.2 are known)",
         kGgufRemedy);
}

void read_rope(const GgufModelKeys& keys, const GgufForm& form, ModelConfig& model) {
  constexpr double kTheta = 10000;  // of llama.cpp, where a file says nothing
  model.rope_theta = keys.number_or("rope.freq_base", kTheta);
  const std::int64_t width = model.head_width();
  model.partial_rotary_factor =
      static_cast<double>(keys.integer_or("rope.dimension_count", width)) /
      static_cast<double>(width);
  model.rope = {};
  if (const auto factors = gguf_rotary_factors(keys.file()); !factors.empty() && !form.rope_factors)
    model.rope = scaling_with(factors, model, keys.file().path());
  const std::string type = keys.file().text(keys.full("rope.scaling.type")).value_or("none");
  if (type == "none") return;
  const auto factor = keys.number("rope.scaling.factor");
  if ((type != "linear" && type != "yarn") || !factor)
    refuse(keys.file().path(), ": ", keys.full("rope.scaling.type"), " is '", printable(type),
           "', which is not read", kGgufRemedy);
  model.rope.factor = *factor;
  model.rope.kind = type == "linear" ? RopeScalingKind::linear : RopeScalingKind::yarn;
  if (type == "linear") return;
  model.rope.original_positions = keys.needed("rope.scaling.original_context_length", kMostRows);
  model.rope.beta_fast = keys.number_or("rope.scaling.yarn_beta_fast", model.rope.beta_fast);
  model.rope.beta_slow = keys.number_or("rope.scaling.yarn_beta_slow", model.rope.beta_slow);
  const double of_usual = keys.number_or("rope.scaling.attn_factor", 1);
  if (of_usual != 1)
    model.rope.attention_factor = shortest_decimal(of_usual * rope_magnitude(model.rope));
}

/// Layers with and without the window and rotary positions, of which files say little.
void read_layers(const GgufModelKeys& keys, const GgufForm& form, ModelConfig& model) {
  const auto every = [&](std::int64_t n) {
    std::vector<std::int64_t> layers;
    for (std::int64_t i = n - 1; n > 0 && i < model.layers; i += n) layers.push_back(i);
    return layers;
  };
  model.window = keys.integer_or("attention.sliding_window", 0);
  model.full_layers = {};
  const std::vector<std::int64_t> slides = keys.integers(kWindowLayers);
  if (model.window > 0 && slides.empty()) model.full_layers = every(form.full_every);
  for (std::int64_t i = 0; model.window > 0 && i < std::ssize(slides); ++i)
    if (slides[i] == 0) model.full_layers.push_back(i);
  model.nope_layers =
      model.window > 0 || !form.windows ? every(form.nope_every) : std::vector<std::int64_t>();
}

void read_biases_and_norms(const GgufModelKeys& keys, ModelConfig& model) {
  if (!model.is_llama()) return;
  model.qkv_bias = keys.has_in_blocks("attn_q.bias");
  model.out_bias = keys.has_in_blocks("attn_output.bias");
  model.mlp_bias = keys.has_in_blocks("ffn_down.bias");
  const bool normed = keys.has_in_blocks("attn_q_norm.weight");
  if (normed && model.qk_norm == QkNormKind::none) model.qk_norm = QkNormKind::head;
  if (!normed && model.qk_norm != QkNormKind::rotated_plain) model.qk_norm = QkNormKind::none;
  model.score_cap = keys.number_or("attn_logit_softcapping", model.score_cap);
  model.logit_cap = keys.number_or("final_logit_softcapping", model.logit_cap);
}

using Numbers = std::vector<double>;

/// Numbers of all kinds as a list; empty: it is text.
Numbers numbers_of(const auto& value) {
  return std::visit(
      [](const auto& of) -> Numbers {
        using T = std::decay_t<decltype(of)>;
        if constexpr (std::is_arithmetic_v<T>)
          return {static_cast<double>(of)};
        else if constexpr (requires {
                             of.size();
                             static_cast<double>(of[0]);
                           } &&
                           !std::is_same_v<T, std::string>)
          return Numbers(of.begin(), of.end());
        else
          return {};
      },
      value);
}

std::string text_of(const auto& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  std::string all;
  for (const double number : numbers_of(value)) all += concat(all.empty() ? "" : ", ", number);
  return all;
}

/// Whether values are the same but for rounding. One number stands for a list of it.
bool same(const GgufFile::Value& in_file, const GgufValue& wanted) {
  Numbers some = numbers_of(in_file), others = numbers_of(wanted);
  if (some.empty() || others.empty()) return text_of(in_file) == text_of(wanted);
  const std::size_t count = std::max(some.size(), others.size());
  if (some.size() == 1) some.assign(count, some[0]);
  if (others.size() == 1) others.assign(count, others[0]);
  return std::ranges::equal(some, others, [](double a, double b) {
    return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
  });
}

/// Keys that a file may lack: their values are those that read_gguf_config() and llama.cpp take.
constexpr std::array<std::string_view, 15> kMayMiss = {"vocab_size",
                                                       "expert_gating_func",
                                                       "expert_weights_norm",
                                                       "expert_weights_scale",
                                                       "attention.sliding_window",
                                                       "attention.head_count_kv",
                                                       "attention.key_length",
                                                       "attention.value_length",
                                                       "rope.dimension_count",
                                                       "rope.freq_base",
                                                       "rope.scaling.yarn_beta_fast",
                                                       "rope.scaling.yarn_beta_slow",
                                                       "rope.scaling.attn_factor",
                                                       "feed_forward_length",
                                                       "expert_feed_forward_length"};

/// Keys that are not written, but that files of some types and versions have, and what they say of
/// a model.
GgufKeys further_keys(const ModelConfig& model) {
  const auto number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  std::vector<bool> slides, recurrent;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    slides.push_back(model.window_of(layer) > 0);
    recurrent.push_back(model.has_delta(layer));
  }
  return {{"attention.sliding_window", number(model.window)},
          {kWindowLayers, slides},
          {kRecurrentLayers, recurrent},
          {"expert_group_count", number(model.expert_groups)},
          {"expert_group_used_count", number(model.expert_groups_per_token)},
          gguf_number("attention.layer_norm_epsilon", model.norm_eps),
          gguf_number("attention.layer_norm_rms_epsilon", model.norm_eps),
          gguf_number("rope.freq_base_swa",
                      model.window_rope_theta > 0 ? model.window_rope_theta : model.rope_theta)};
}

/// Compares the file's keys with those that are written for the model that was read from it.
void compare_keys(const GgufModelKeys& keys, const ModelConfig& model) {
  const std::string own = keys.architecture() + '.', &path = keys.file().path();
  const auto in_file = [&](const std::string& name) {
    const auto found = keys.file().keys().find(name);
    return found == keys.file().keys().end() ? nullptr : &found->second;
  };
  const auto need = [&](const std::string& name, const GgufValue& wanted) {
    const GgufFile::Value* const value = in_file(name);
    if (value && !same(*value, wanted))
      refuse(path, ": ", name, " is ", printable(text_of(*value)), ", wanted ", text_of(wanted),
             kGgufRemedy);
  };
  std::set<std::string, std::less<>> known{keys.full("nextn_predict_layers"),
                                           keys.full("rope.scaling.type"),
                                           keys.full("rope.scaling.original_context_length")};
  // Read as they are; written otherwise for programs that attend to all, or if nothing is so wide.
  std::set<std::string, std::less<>> free{keys.full("context_length"), keys.full("block_count")};
  if (model.experts > 0) free.insert(keys.full("feed_forward_length"));
  if (in_file(keys.full(kRecurrentLayers))) free.insert(keys.full("full_attention_interval"));
  std::vector<std::string> missing, unread;
  for (const auto& [name, wanted] : gguf_model_keys(model, "", GgufType::f32)) {
    if (name == "general.architecture") need(name, wanted);
    if (!name.starts_with(own)) continue;
    known.insert(name);
    if (!free.contains(name)) need(name, wanted);
    if (!in_file(name) && std::ranges::find(kMayMiss, name.substr(own.size())) == kMayMiss.end())
      missing.push_back(name);
  }
  for (const auto& [key, wanted] : further_keys(model))
    if (const std::string name = keys.full(key); known.insert(name).second) need(name, wanted);
  for (const auto& [name, value] : keys.file().keys())
    if (name.starts_with(own) && !known.contains(name)) unread.push_back(name);
  if (!unread.empty())
    refuse(path, ": not read, but they may change the model: ", join(unread), kGgufRemedy);
  if (!missing.empty()) refuse(path, " has no ", join(missing), kGgufRemedy);
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file) {
  const GgufModelKeys keys(file);
  const auto [family, type] = type_of(keys);
  ModelConfig model = type->defaults;
  read_sizes(keys, model);
  read_experts(keys, model);
  read_biases_and_norms(keys, model);
  read_layers(keys, type->gguf, model);
  read_rope(keys, type->gguf, model);
  if (type->gguf.read) type->gguf.read(keys, model);
  check_whole(model, file.path());
  try {
    GgufModel known(model);
  } catch (const UsageError& error) {
    refuse(file.path(), ": ", error.what());
  }
  compare_keys(keys, model);
  return model;
}

}  // namespace axonn
