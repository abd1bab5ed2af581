// Adapters of PEFT that are read by merging: DoRA, modules trained whole, biases, adapters of the
// embedding and of the output layer. The expected weights are computed by plain loops in double.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/convert/convert.h"

#include "tests/data/storage/plain_safetensors.h"
#include "tests/support/model_folder.h"
#include "tests/support/write_safetensors.h"

using namespace axonn;
using namespace axonn::test;
using testing::HasSubstr;
using testing::ThrowsMessage;
namespace fs = std::filesystem;

namespace {

struct FloatTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using FloatTensors = std::map<std::string, FloatTensor>;

FloatTensors float_folder(const std::string& folder) {
  FloatTensors all;
  for (const auto& [name, tensor] : plain_folder(folder)) {
    FloatTensor& mine = all[name];
    mine.shape = tensor.shape;
    mine.values.resize(tensor.bytes.size() / 4);
    std::memcpy(mine.values.data(), tensor.bytes.data(), tensor.bytes.size());
  }
  return all;
}

void write_floats(const std::string& path, const FloatTensors& tensors) {
  std::vector<SafetensorsTensor> all;
  for (const auto& [name, tensor] : tensors)
    all.push_back({.entry = {.name = name, .type = StoredType::f32, .shape = tensor.shape},
                   .data = std::as_bytes(std::span(tensor.values))});
  write_safetensors(path, all);
}

/// A tensor of values from -1/8 to 1/8 that depend on the name.
FloatTensor made(const std::string& name, std::vector<std::int64_t> shape) {
  FloatTensor tensor{std::move(shape), {}};
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape) count *= extent;
  for (std::int64_t i = 0; i < count; ++i)
    tensor.values.push_back(static_cast<float>(std::sin(static_cast<double>(i + name.size())) / 8));
  return tensor;
}

/// W + scale · B · A, in which W is (out, in).
FloatTensor sum_with(const FloatTensor& w, const FloatTensor& a, const FloatTensor& b,
                     double scale) {
  FloatTensor sum = w;
  const std::int64_t in = w.shape[1], r = a.shape[0];
  for (std::int64_t o = 0; o < w.shape[0]; ++o)
    for (std::int64_t i = 0; i < in; ++i) {
      double change = 0;
      for (std::int64_t k = 0; k < r; ++k)
        change += double{b.values[o * r + k]} * a.values[k * in + i];
      sum.values[o * in + i] = static_cast<float>(w.values[o * in + i] + scale * change);
    }
  return sum;
}

FloatTensor transposed(const FloatTensor& m) {
  FloatTensor out{{m.shape[1], m.shape[0]}, std::vector<float>(m.values.size())};
  for (std::int64_t i = 0; i < m.shape[0]; ++i)
    for (std::int64_t j = 0; j < m.shape[1]; ++j)
      out.values[j * m.shape[0] + i] = m.values[i * m.shape[1] + j];
  return out;
}

constexpr std::int64_t kHidden = 48, kVocab = 101, kRank = 3;
constexpr double kScale = 8.0 / kRank;

class PeftMerge : public testing::Test {
 protected:
  /// Writes a base model.
  void make_base(ModelFamily family, bool tied) {
    ModelConfig config{.family = family,
                       .layers = 2,
                       .hidden = kHidden,
                       .heads = 12,
                       .ffn = 96,
                       .vocab = kVocab,
                       .positions = 8,
                       .tied = tied};
    if (family == ModelFamily::llama) config.kv_heads = 4;
    config_ = resolved(config, 0, 0);
    fs::create_directory(base_);
    write_model(base_, config_, {.type = StoredType::f32});
    spill(base_ + "/config.json", to_hugging_face_config(config_, {}));
    weights_ = float_folder(base_);
  }

  /// Adds an adapter's A (r, in) and B (out, r), and returns what they make of the base's weight.
  FloatTensor adapt(const std::string& module, std::int64_t out, std::int64_t in) {
    const std::string name = "base_model.model." + module;
    const FloatTensor& a = adapters_[name + ".lora_A.weight"] = made(module + "A", {kRank, in});
    const FloatTensor& b = adapters_[name + ".lora_B.weight"] = made(module, {out, kRank});
    return sum_with(weights_.at(module + ".weight"), a, b, kScale);
  }

  void write_adapters(const std::string& more) {
    fs::create_directory(peft_);
    write_floats(peft_ + "/adapter_model.safetensors", adapters_);
    spill(peft_ + "/adapter_config.json",
          R"({"peft_type": "LORA", "r": 3, "lora_alpha": 8, )" + more + "}");
  }

  /// Compares with a folder of the weights_, on several grids, and with a merged folder.
  void expect_weights() {
    const std::string wanted = path_ / "wanted";
    fs::create_directory(wanted);
    write_floats(wanted + "/model.safetensors", weights_);
    if (weights_.contains("lm_head.weight")) config_.tied = false;
    spill(wanted + "/config.json", to_hugging_face_config(config_, {}));
    const std::vector<float> want = logits(config_of_model(wanted, ""), {}),
                             base = logits(config_of_model(base_, ""), {});
    EXPECT_GT(difference_of(base, want), 0.01) << "the adapters have no effect";
    for (const GridShape& grid :
         {GridShape{}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {2, 2, 1, 2}})
      EXPECT_LT(difference_of(logits(config_of_model(base_, peft_), grid), want), kRounding);
    convert({.model = base_, .out = path_ / "merged", .adapters = peft_});
    const FloatTensors merged = float_folder(path_ / "merged");
    for (const auto& [name, tensor] : merged)
      EXPECT_LT(difference_of(tensor.values, weights_.at(name).values), kRounding) << name;
    EXPECT_EQ(merged.contains("lm_head.weight"), !config_.tied);
    EXPECT_LT(difference_of(logits(config_of_model(path_ / "merged", ""), {}), want), kRounding);
  }

  static double difference_of(const std::vector<float>& got, const std::vector<float>& want) {
    if (got.size() != want.size()) return INFINITY;
    double difference = 0, most = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference = std::max(difference, std::abs(double{got[i]} - want[i]));
      most = std::max(most, std::abs(double{want[i]}));
    }
    return difference / most;
  }

  // At most 14 consecutive products of a layer, each a sum of at most 96 terms in f32.
  static constexpr double kRounding = 14 * 96 * 0x1p-24;

  TemporaryPath path_;
  std::string base_ = path_ / "base", peft_ = path_ / "peft";
  ModelConfig config_;
  FloatTensors weights_, adapters_;
};

const std::string kQuery = "model.layers.1.self_attn.q_proj";

}  // namespace

TEST_F(PeftMerge, DoraScalesEachRowToItsMagnitude) {
  make_base(ModelFamily::llama, false);
  FloatTensor sum = adapt(kQuery, kHidden, kHidden);
  FloatTensor magnitudes = made("m", {kHidden});
  for (std::int64_t row = 0; row < kHidden; ++row) {
    magnitudes.values[row] += 0.5F;
    double squares = 0;
    for (std::int64_t i = 0; i < kHidden; ++i)
      squares += std::pow(double{sum.values[row * kHidden + i]}, 2);
    for (std::int64_t i = 0; i < kHidden; ++i)
      sum.values[row * kHidden + i] *=
          static_cast<float>(magnitudes.values[row] / std::sqrt(squares));
  }
  adapters_["base_model.model." + kQuery + ".lora_magnitude_vector"] = magnitudes;
  weights_[kQuery + ".weight"] = sum;
  write_adapters(R"("use_dora": true, "target_modules": ["q_proj"], "layers_to_transform": [1])");
  expect_weights();
}

TEST_F(PeftMerge, ModulesThatWereTrainedWholeReplaceTheBases) {
  make_base(ModelFamily::llama, false);
  for (const std::string name : {"lm_head.weight", "model.layers.0.input_layernorm.weight"})
    weights_[name] = adapters_["base_model.model." + name] = made(name, weights_.at(name).shape);
  weights_[kQuery + ".weight"] = adapt(kQuery, kHidden, kHidden);
  write_adapters(
      R"("target_modules": ".*q_proj", "modules_to_save": ["lm_head", "input_layernorm"])");
  expect_weights();
}

TEST_F(PeftMerge, AnOutputLayerOfATiedModelThatWasTrainedWholeIsNotTied) {
  make_base(ModelFamily::llama, true);
  weights_[kQuery + ".weight"] = adapt(kQuery, kHidden, kHidden);
  weights_["lm_head.weight"] = adapters_["base_model.model.lm_head.weight"] =
      made("head", {kVocab, kHidden});
  write_adapters(R"("target_modules": ["q_proj"], "modules_to_save": ["lm_head"])");
  expect_weights();
}

TEST_F(PeftMerge, TheOutputLayerHasAnAdapterBesideASavedBaseLayer) {
  make_base(ModelFamily::llama, false);
  weights_["lm_head.weight"] = adapters_["base_model.model.lm_head.base_layer.weight"] =
      made("head", {kVocab, kHidden});
  weights_["lm_head.weight"] = adapt("lm_head", kVocab, kHidden);
  write_adapters(R"("target_modules": ["lm_head"])");
  expect_weights();
}

// PEFT leaves the output layer of a tied model as the base has it.
TEST_F(PeftMerge, AnAdapterOfTheEmbeddingChangesTheEmbeddingAlone) {
  make_base(ModelFamily::llama, true);
  const std::string embedding = "model.embed_tokens";
  const FloatTensor a = made("A", {kRank, kVocab}), b = made("B", {kHidden, kRank});
  adapters_["base_model.model." + embedding + ".lora_embedding_A"] = a;
  adapters_["base_model.model." + embedding + ".lora_embedding_B"] = b;
  weights_["lm_head.weight"] = weights_.at(embedding + ".weight");
  weights_[embedding + ".weight"] =
      sum_with(weights_.at(embedding + ".weight"), transposed(b), transposed(a), kScale);
  write_adapters(R"("target_modules": ["embed_tokens"])");
  expect_weights();
}

// Both share the base layer that PEFT stores beside such an adapter.
TEST_F(PeftMerge, TheStoredBaseLayerOfATiedOutputLayerIsTheEmbeddingsToo) {
  make_base(ModelFamily::llama, true);
  weights_["lm_head.weight"] = weights_["model.embed_tokens.weight"] =
      adapters_["base_model.model.lm_head.base_layer.weight"] = made("head", {kVocab, kHidden});
  weights_["lm_head.weight"] = adapt("lm_head", kVocab, kHidden);
  write_adapters(R"("target_modules": ["lm_head"])");
  expect_weights();
}

TEST_F(PeftMerge, BiasesAndWholeLayersOfGpt2AreStoredAsInTheBase) {
  make_base(ModelFamily::gpt, true);
  const std::string bias = "h.0.attn.c_attn.base_layer.bias", whole = "h.1.mlp.c_fc.weight";
  const auto prefixed = [](const std::string& name) {
    return "base_model.model.transformer." + name;
  };
  weights_["h.0.attn.c_attn.bias"] = adapters_[prefixed(bias)] = made(bias, {3 * kHidden});
  weights_[whole] = adapters_[prefixed(whole)] = made(whole, weights_.at(whole).shape);
  const std::string module = "h.0.attn.c_attn";
  const FloatTensor& a = adapters_[prefixed(module) + ".lora_A.weight"] = made("A", {3, kHidden});
  const FloatTensor& b = adapters_[prefixed(module) + ".lora_B.weight"] =
      made("B", {3 * kHidden, 3});
  weights_[module + ".weight"] =
      transposed(sum_with(transposed(weights_.at(module + ".weight")), a, b, kScale));
  write_adapters(
      R"("target_modules": ["c_attn"], "bias": "lora_only", "modules_to_save": ["c_fc"])");
  expect_weights();
}

TEST_F(PeftMerge, WhatPeftDoesNotReadAndWhatCannotBeTrainedIsRefused) {
  make_base(ModelFamily::llama, false);
  adapt(kQuery, kHidden, kHidden);
  adapters_["base_model.model.lm_head.weight"] = made("head", {kVocab, kHidden});
  const auto merge = [&] { logits(config_of_model(base_, peft_), {}); };
  write_adapters(R"("target_modules": ["q_proj"])");
  EXPECT_THAT(merge, ThrowsMessage<UsageError>(HasSubstr("which modules_to_save in its")));
  write_adapters(R"("target_modules": ["v_proj"], "modules_to_save": ["lm_head"])");
  EXPECT_THAT(merge, ThrowsMessage<UsageError>(HasSubstr("q_proj', which its adapter_config")));
  adapters_["base_model.model.other.weight"] = made("other", {2});
  write_adapters(R"("target_modules": ["q_proj"], "modules_to_save": ["lm_head", "other"])");
  EXPECT_THAT(merge, ThrowsMessage<UsageError>(HasSubstr("base_model.model.other.weight")));
  Config config;
  config.model.path = base_;
  config.model.lora.path = peft_;
  const auto refusal = [&](const std::string& keys) {
    write_adapters(keys);
    try {
      with_stored_model(config, Origins());
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string query = R"("target_modules": ["q_proj"], )";
  EXPECT_THAT(refusal(query + R"("modules_to_save": ["lm_head", "norm"])"),
              HasSubstr("modules_to_save has 'norm', but there are no tensors of it; merge it into "
                        "its base with axonn convert --model BASE --adapter"));
  EXPECT_THAT(refusal(query + R"("modules_to_save": ["lm_head"], "bias": "all")"),
              HasSubstr("has biases, which are not trained here"));
  adapters_["base_model.model.model.embed_tokens.base_layer.weight"] =
      made("embedding", {kVocab, kHidden});
  EXPECT_THAT(refusal(query + R"("modules_to_save": ["lm_head"])"),
              HasSubstr("embed_tokens.base_layer.weight' with other values than those of "));
}
