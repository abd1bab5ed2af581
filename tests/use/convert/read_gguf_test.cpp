// Models are read from GGUF files as the models that these were written from.
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/data/storage/gguf.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/model_files.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/resolve.h"
#include "axonn/use/convert/convert.h"

#include "tests/data/storage/plain_safetensors.h"
#include "tests/support/model_folder.h"
#include "tests/use/convert/gguf_types.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::HasSubstr;

namespace {

ModelConfig small_llama() {
  return resolved({.family = ModelFamily::llama,
                   .layers = 2,
                   .hidden = 64,
                   .heads = 8,
                   .kv_heads = 4,
                   .head_dim = 8,
                   .ffn = 96,
                   .vocab = 256,
                   .positions = 8,
                   .tied = false},
                  0, 0);
}

/// llama with the frequencies of Llama 3.1, tied; qwen2; qwen3; Mixtral; qwen3_moe; olmoe.
std::vector<ModelConfig> models_in_gguf() {
  std::vector<ModelConfig> all(6, small_llama());
  all[0].rope = {.kind = RopeScalingKind::llama3};
  all[0].tied = true;
  all[1].qkv_bias = true;
  all[2].qk_norm = QkNormKind::head;
  for (std::size_t i = 3; i < all.size(); ++i) {
    all[i].experts = 4;
    all[i].experts_per_token = 2;
    all[i].expert_ffn = all[i].ffn;
  }
  all[4].qk_norm = QkNormKind::head;
  all[4].expert_ffn = 32;
  all[5].qk_norm = QkNormKind::width;
  all[5].expert_norm = false;
  all[5].kv_heads = all[5].heads;
  return all;
}

std::vector<float> floats_of(const PlainTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

std::vector<float> floats_of(const std::string& folder, const std::string& name) {
  return floats_of(plain_safetensors(folder + "/model.safetensors").at(name));
}

/// Expects that the folders have the same tensors. Where a file has norms' factors with 1 added, or
/// -e^A_log, values may differ by the rounding of that.
void expect_same_tensors(const std::string& got, const std::string& want) {
  const PlainTensors all = plain_safetensors(want + "/model.safetensors"),
                     read = plain_safetensors(got + "/model.safetensors");
  ASSERT_EQ(read.size(), all.size());
  for (const auto& [name, tensor] : all) {
    if (name.find("norm") == name.npos && !name.ends_with("A_log")) {
      EXPECT_EQ(read.at(name).bytes, tensor.bytes) << name;
      continue;
    }
    EXPECT_THAT(floats_of(read.at(name)),
                testing::Pointwise(testing::FloatNear(3e-7), floats_of(tensor)))
        << name;
  }
}

/// Converts, and returns the message of the UsageError, or "".
std::string refusal_of(const ConvertJob& job) {
  try {
    convert(job);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// Converts a model and returns the path of the new one.
std::string made(const std::string& model, const std::string& out, ModelForm form,
                 std::optional<GgufType> blocks = {}) {
  ConvertJob job{.model = model, .out = out, .to = form, .tokenizer = "bytes"};
  job.blocks = blocks;
  convert(job);
  return out;
}

/// The config.json of a folder, without the width of dense MLPs if all have experts.
nlohmann::json sizes_in(const std::string& folder) {
  auto json = nlohmann::json::parse(slurp(folder + "/config.json"));
  if (json.contains("moe_intermediate_size")) json.erase("intermediate_size");
  return json;
}

}  // namespace

TEST(ReadGguf, GivesTheModelThatTheFileWasWrittenFrom) {
  const TemporaryPath path;
  int number = 0;
  for (const ModelConfig& config : models_in_gguf()) {
    SCOPED_TRACE(++number);
    const std::string run = concat(path / "run", number);
    save_checkpoint(run, config, {});
    const std::string gguf = made(run, run + ".gguf", ModelForm::gguf),
                      want = made(run, run + "-hf", ModelForm::hugging_face),
                      got = made(gguf, run + "-back", ModelForm::hugging_face);
    EXPECT_EQ(slurp(got + "/model.safetensors"), slurp(want + "/model.safetensors"));
    EXPECT_EQ(sizes_in(got), sizes_in(want));
  }
}

TEST(ReadGguf, GivesTheModelOfEveryTypeThatIsWritten) {
  const TemporaryPath path;
  int number = 0;
  for (const auto& [name, change] : types_in_gguf()) {
    SCOPED_TRACE(name);
    ModelConfig config = small_llama();
    change(config);
    config = resolved(config, 0, 0);
    const std::string run = concat(path / "run", ++number);
    save_checkpoint(run, config, {});
    const std::string gguf = made(run, run + ".gguf", ModelForm::gguf),
                      want = made(run, run + "-hf", ModelForm::hugging_face),
                      got = made(gguf, run + "-back", ModelForm::hugging_face);
    EXPECT_EQ(sizes_in(got), sizes_in(want));
    expect_same_tensors(got, want);
  }
}

TEST(ReadGguf, PassesOverBlocksThatPredictFurtherTokensAlone) {
  const TemporaryPath path;
  save_checkpoint(path / "run", small_llama(), {});
  const std::string gguf = made(path / "run", path / "m.gguf", ModelForm::gguf),
                    want = made(path / "run", path / "hf", ModelForm::hugging_face);
  const auto with = [bytes = slurp(gguf)](const std::string& key, const std::string& other) {
    std::string changed = bytes;
    const std::size_t at = changed.find(key);
    changed.replace(at, key.size(), other)[at + key.size() + 4] = 1;
    return changed;
  };
  // Two blocks, of which one is behind the model.
  spill(gguf, with("llama.rope.dimension_count", "llama.nextn_predict_layers"));
  const std::string got = made(gguf, path / "back", ModelForm::hugging_face);
  EXPECT_EQ(sizes_in(got).at("num_hidden_layers"), 1);
  const std::string name = "model.layers.0.self_attn.k_proj.weight";
  EXPECT_EQ(floats_of(got, name), floats_of(want, name));
  // One block, and the tensors of two.
  spill(gguf, with("llama.block_count", "llama.block_count"));
  EXPECT_THAT(refusal_of({.model = gguf,
                          .out = path / "out",
                          .to = ModelForm::hugging_face,
                          .tokenizer = "bytes"}),
              HasSubstr("blk.1.attn_q.weight is not known"));
}

TEST(ReadGguf, RefusesKeysThatSayOtherwiseThanTheModelThatIsRead) {
  const TemporaryPath path;
  ModelConfig config = small_llama();
  use_delta_nets(config);
  save_checkpoint(path / "run", config, {});
  const std::string gguf = made(path / "run", path / "m.gguf", ModelForm::gguf),
                    whole = slurp(gguf);
  const auto with = [&](const std::string& key, char value) {
    std::string bytes = whole;
    bytes[bytes.find(key) + key.size() + 4] = value;
    spill(gguf, bytes);
    return refusal_of(
        {.model = gguf, .out = path / "out", .to = ModelForm::hugging_face, .tokenizer = "bytes"});
  };
  EXPECT_THAT(with("qwen35.attention.value_length", 7),
              HasSubstr("qwen35.attention.value_length is 7, wanted 8"));
  EXPECT_THAT(with("qwen35.full_attention_interval", 9), HasSubstr("m.gguf"));
  EXPECT_THAT(with("qwen35.full_attention_interval", 0),
              HasSubstr("full_attention_interval is 0, wanted 1 to"));
  EXPECT_THAT(with("qwen35.ssm.conv_kernel", 65),
              HasSubstr("ssm.conv_kernel is 65, wanted 1 to 64"));
  std::string bytes = whole;
  const std::string key = "qwen35.ssm.inner_size";
  bytes.replace(bytes.find(key), key.size(), "qwen35.ssm.inner_sizE");
  spill(gguf, bytes);
  EXPECT_THAT(refusal_of({.model = gguf,
                          .out = path / "out",
                          .to = ModelForm::hugging_face,
                          .tokenizer = "bytes"}),
              HasSubstr("has no qwen35.ssm.inner_size"));
}

TEST(ReadGguf, GivesTheValuesOfBlocks) {
  const TemporaryPath path;
  save_checkpoint(path / "run", small_llama(), {});
  const std::string want = made(path / "run", path / "hf", ModelForm::hugging_face);
  for (const auto& [type, kind] : {std::pair{GgufType::q8_0, Quantization::q8_0},
                                   std::pair{GgufType::q4_0, Quantization::q4_0},
                                   std::pair{GgufType::q5_0, Quantization::q5_0},
                                   std::pair{GgufType::q4_1, Quantization::q4_1},
                                   std::pair{GgufType::q5_1, Quantization::q5_1}}) {
    const std::string part(name_of(type)),
        gguf = made(path / "run", path / (part + ".gguf"), ModelForm::gguf, type),
        got = made(gguf, path / part, ModelForm::hugging_face);
    for (const std::string name : {"model.layers.1.self_attn.k_proj.weight", "lm_head.weight"}) {
      const std::vector<float> exact = floats_of(want, name), values = floats_of(got, name);
      QuantizedValues codes;
      quantize(kind, 32, exact, codes);
      ASSERT_EQ(values.size(), exact.size());
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(values[i], codes.value(kind, static_cast<std::int64_t>(i), 32)) << name << i;
    }
  }
}

// bf16 goes into bf16 as it is, without a detour through f32.
TEST(ReadGguf, PassesFloatsOnAsTheFileHasThem) {
  const TemporaryPath path;
  save_checkpoint(path / "run", small_llama(), {});
  const ModelFiles files(made(path / "run", path / "model.gguf", ModelForm::gguf, GgufType::bf16));
  const auto world = make_self();
  const Grid grid(*world, {});
  const auto model = make_model(files.config(), grid);
  const auto source = files.source(files.config(), stored_parameters(model->groups()));
  std::vector<SliceRequest> wanted;
  for (const auto& [name, rows, cols] : source->parameters())
    wanted.push_back(
        {.parameter = name, .slices = {{.rows = rows, .cols = cols, .end = rows * cols}}});
  std::set<std::size_t> taken;
  source->read(wanted, [&](std::size_t i, std::int64_t, StoredType type, auto) {
    const bool matrix = source->parameters()[i].cols > 1;
    EXPECT_EQ(type, matrix ? StoredType::bf16 : StoredType::f32) << wanted[i].parameter;
    taken.insert(i);
  });
  EXPECT_EQ(taken.size(), wanted.size());
}

TEST(ReadGguf, GivesValuesNearToThoseThatEachTypeWasWrittenFrom) {
  const TemporaryPath path;
  ModelConfig config = small_llama();
  config.hidden = 256;  // blocks of 256 in all matrices but down_proj, whose rows have 96 values
  config.head_dim = 32;
  save_checkpoint(path / "run", config, {});
  const std::string want = made(path / "run", path / "hf", ModelForm::hugging_face);
  const std::vector<std::pair<GgufType, double>> types = {
      {GgufType::q4_0, 0.12}, {GgufType::q5_1, 0.05}, {GgufType::q3_k, 0.20},
      {GgufType::q4_k, 0.10}, {GgufType::q5_k, 0.05}, {GgufType::q6_k, 0.03}};
  for (const auto& [type, allowed] : types) {
    const std::string name(name_of(type)), file = path / (name + ".gguf");
    const std::string got =
        made(made(path / "run", file, ModelForm::gguf, type), path / name, ModelForm::hugging_face);
    for (const std::string matrix :
         {"model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.down_proj.weight"}) {
      const std::vector<float> exact = floats_of(want, matrix), values = floats_of(got, matrix);
      double off = 0, size = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        off += std::pow(double{values[i]} - exact[i], 2);
        size += std::pow(double{exact[i]}, 2);
      }
      EXPECT_LT(std::sqrt(off / size), allowed) << name << ' ' << matrix;
      EXPECT_GT(off, 0) << name << ' ' << matrix;
    }
  }
}

TEST(Nf4Folder, HasTheCodesOfItsMatricesAndIsReadAsTheirValues) {
  const TemporaryPath path;
  ModelConfig config = small_llama();
  config.ffn = 99;  // rows of down_proj end within blocks
  save_checkpoint(path / "run", config, {});
  const std::string want = made(path / "run", path / "hf", ModelForm::hugging_face);
  convert({.model = path / "run",
           .out = path / "nf4",
           .to = ModelForm::hugging_face,
           .nf4 = true,
           .tokenizer = "bytes"});
  const auto stated = nlohmann::json::parse(slurp(path / "nf4/config.json"));
  EXPECT_EQ(stated.at("quantization_config").at("bnb_4bit_quant_type"), "nf4");
  convert({.model = path / "nf4",
           .out = path / "back",
           .to = ModelForm::hugging_face,
           .type = StoredType::f32,
           .tokenizer = "bytes"});
  const PlainTensors packed = plain_safetensors(path / "nf4/model.safetensors");
  for (const auto& [name, tensor] : plain_safetensors(want + "/model.safetensors")) {
    const std::vector<float> exact = floats_of(want, name), values = floats_of(path / "back", name);
    if (!name.ends_with("_proj.weight")) {
      EXPECT_EQ(values, exact) << name;
      continue;
    }
    QuantizedValues codes;
    quantize(Quantization::nf4, 64, exact, codes);
    for (std::size_t i = 0; i < exact.size(); ++i)
      ASSERT_EQ(values[i], codes.value(Quantization::nf4, static_cast<std::int64_t>(i), 64)) << i;
    const std::string& bytes = packed.at(name).bytes;
    ASSERT_EQ(bytes.size(), (exact.size() + 1) / 2);
    EXPECT_EQ(static_cast<std::uint8_t>(bytes[1]), codes.codes[2] << 4 | codes.codes[3]);
    EXPECT_EQ(packed.at(name + ".absmax").bytes.size(), 4 * codes.factors.size());
    const nlohmann::json state =
        nlohmann::json::parse(packed.at(name + ".quant_state.bitsandbytes__nf4").bytes);
    EXPECT_EQ(state, (nlohmann::json{{"quant_type", "nf4"},
                                     {"blocksize", 64},
                                     {"dtype", "float32"},
                                     {"shape", tensor.shape}}));
  }
}

TEST(Nf4Folder, IsRefusedForModelsThatTransformersDoesNotReadSo) {
  const TemporaryPath path;
  ModelConfig experts = small_llama();
  experts.experts = 4;
  experts.experts_per_token = 2;
  experts.expert_ffn = experts.ffn;
  save_checkpoint(path / "experts", experts, {});
  const auto job = [&](const char* model, ModelForm to) {
    return ConvertJob{
        .model = path / model, .out = path / "out", .to = to, .nf4 = true, .tokenizer = "bytes"};
  };
  EXPECT_THAT(refusal_of(job("experts", ModelForm::hugging_face)), HasSubstr("without experts"));
  EXPECT_THAT(refusal_of(job("experts", ModelForm::gguf)), HasSubstr("--to hf"));
}

TEST(ReadGguf, HasTheLogitsOfTheModelOnEveryGrid) {
  const TemporaryPath path;
  ModelConfig config = small_llama();
  save_checkpoint(path / "run", config, {});
  const std::string gguf = made(path / "run", path / "m.gguf", ModelForm::gguf);
  config.path = path / "run";
  const std::vector<float> want = logits(config, {});
  config.path = gguf;
  EXPECT_EQ(logits(config, {}), want);
  for (const GridShape& grid : {GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2}})
    EXPECT_THAT(logits(config, grid), testing::Pointwise(testing::FloatNear(1e-5), want));
}

TEST(ReadGguf, RefusesDamagedFilesAndOtherModelsByName) {
  const TemporaryPath path;
  save_checkpoint(path / "run", small_llama(), {});
  const std::string damaged = path / "damaged.gguf",
                    whole = slurp(made(path / "run", path / "m.gguf", ModelForm::gguf));
  const auto refusal = [&](const std::string& bytes) {
    spill(damaged, bytes);
    return refusal_of({.model = damaged,
                       .out = path / "out",
                       .to = ModelForm::hugging_face,
                       .tokenizer = "bytes",
                       .overwrite = true});
  };
  EXPECT_THAT(refusal(whole.substr(0, whole.size() - 100)), HasSubstr("is cut short"));
  for (std::size_t size = 0; size < 4000; size += 61)
    EXPECT_THAT(refusal(whole.substr(0, size)), HasSubstr("damaged.gguf")) << size;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = whole;
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, bytes.npos) << from;
    return refusal(bytes.replace(at, from.size(), to));
  };
  EXPECT_THAT(with("llama.attention.head_count_kv", "llama.attention.head_count_kw"),
              HasSubstr("may change the model: llama.attention.head_count_kw"));
  EXPECT_THAT(with("blk.1.ffn_up.weight", "blk.1.ffn_xx.weight"),
              AllOf(HasSubstr("there is no blk.1.ffn_up.weight"),
                    HasSubstr("blk.1.ffn_xx.weight is not known")));
  std::string other = whole;
  const std::string name = "blk.1.ffn_up.weight";
  constexpr std::size_t kSizes = 4 + 2 * 8;  // their number, and two
  other[other.find(name) + name.size() + kSizes] = 16;
  EXPECT_THAT(refusal(other), AllOf(HasSubstr("blk.1.ffn_up.weight is of type 16 of ggml"),
                                    HasSubstr("Q4_K, Q5_K, Q6_K")));
  other = whole;
  other.replace(other.find("llama", other.find("general.architecture")), 5, "mamba");
  EXPECT_THAT(refusal(other), HasSubstr("models of the architecture 'mamba' are not read"));
  spill(damaged, "no model");
  EXPECT_THAT(refusal("no model"), HasSubstr("damaged.gguf is no GGUF file"));
}
