// Adapters in PEFT's format: writing them, loading them on grids, and merging them.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/peft.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/train/training.h"
#include "axonn/use/convert/convert.h"

#include "tests/data/storage/plain_safetensors.h"
#include "tests/support/model_folder.h"
#include "tests/support/write_safetensors.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
namespace fs = std::filesystem;

namespace {

ModelConfig base_model(ModelFamily family) {
  ModelConfig config{.family = family,
                     .layers = 2,
                     .hidden = 48,
                     .heads = 12,
                     .ffn = 96,
                     .vocab = 101,
                     .positions = 8,
                     .tied = family == ModelFamily::gpt};
  if (family == ModelFamily::llama) config.kv_heads = 4;
  return resolved(config, 0, 0);
}

/// A model's folder, and checkpoints of adapters for it, written by one rank and by eight.
class AdapterFolders : public testing::TestWithParam<ModelFamily> {
 protected:
  explicit AdapterFolders(LoraConfig lora = {.rank = 3, .alpha = 6}) : base_(path_ / "base") {
    fs::create_directory(base_);
    write_model(base_, base_model(GetParam()), {.type = StoredType::f32});
    spill(base_ + "/config.json", to_hugging_face_config(base_model(GetParam()), {}));
    adapted_ = read_hugging_face_config(base_);
    adapted_.path = base_;
    adapted_.lora = std::move(lora);
    save_checkpoint(path_ / "one", adapted_, {});
    save_checkpoint(path_ / "eight", adapted_, {2, 2, 2, 1});
    convert({.model = path_ / "eight", .out = peft()});
  }

  std::string peft() const { return path_ / "peft"; }
  PlainTensors tensors() const { return plain_safetensors(peft() + "/adapter_model.safetensors"); }
  /// The base model with the adapters at a path.
  ModelConfig with(const std::string& path) const {
    return with_stored_adapters({.model = adapted_}, path).model;
  }

  TemporaryPath path_;
  std::string base_;
  ModelConfig adapted_;
};

/// Layers of the second block and, in GPT, one of two layers of a name, with own ranks and alphas.
class AdaptersOfSomeLayers : public AdapterFolders {
 protected:
  AdaptersOfSomeLayers() : AdapterFolders(some_layers(GetParam() == ModelFamily::gpt)) {}

  static LoraConfig some_layers(bool gpt) {
    LoraConfig lora{.rank = 3, .alpha = 6, .targets = {"q_proj", "v_proj"}};
    lora.rank_pattern = {"v_proj 2"};
    lora.alpha_pattern = {"layers.1.self_attn.q_proj 24"};
    lora.layers = {1};
    if (!gpt) return lora;
    lora.targets = {"h.0.attn.c_proj", "h.1.attn.c_attn"};
    lora.rank_pattern = {"c_attn 2"};
    lora.alpha_pattern = {"attn.c_proj 24"};
    lora.layers.clear();
    return lora;
  }
};

class AdaptersOfOneLayer : public AdapterFolders {
 protected:
  AdaptersOfOneLayer()
      : AdapterFolders({.rank = 1,
                        .alpha = 6,
                        .targets = {GetParam() == ModelFamily::gpt ? "c_attn" : "v_proj"}}) {}
};

class AdaptersWithMagnitudes : public AdapterFolders {
 protected:
  AdaptersWithMagnitudes() : AdapterFolders({.rank = 3, .alpha = 6, .dora = true}) {}
};

/// Whole modules, and adapters of the output layer.
class AdaptersBesideModules : public AdapterFolders {
 protected:
  AdaptersBesideModules() : AdapterFolders(ends(GetParam() == ModelFamily::gpt)) {}

  static LoraConfig ends(bool gpt) {
    LoraConfig lora{.rank = 3, .alpha = 6, .targets = {gpt ? "c_attn" : "v_proj", "lm_head"}};
    lora.modules = {gpt ? "ln_f" : "layers.1.self_attn_layer_norm", gpt ? "wte" : "embed_tokens"};
    if (GetParam() == ModelFamily::llama) lora.modules.front() = "input_layernorm";
    return lora;
  }
};

double relative_difference(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0, most = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference = std::max(difference, std::abs(double{got[i]} - want[i]));
    most = std::max(most, std::abs(double{want[i]}));
  }
  return difference / most;
}

// At most 14 consecutive products of a layer, each a sum of at most 96 terms in f32.
constexpr double kAdapterRounding = 14 * 96 * 0x1p-24;

}  // namespace

TEST_P(AdapterFolders, FilesHavePeftsNamesAndShapesAndAreEqualFromEveryGrid) {
  struct Want {
    int layers;            // of a block that have adapters
    std::int64_t targets;  // names of those
    std::string prefix, layer;
    std::int64_t rows;
  };
  const std::map<ModelFamily, Want> all{
      {ModelFamily::gpt, {4, 3, "transformer.", "h.1.attn.c_attn", 144}},
      {ModelFamily::llama, {7, 7, "", "model.layers.1.self_attn.k_proj", 16}},
      {ModelFamily::opt, {6, 6, "", "model.decoder.layers.1.self_attn.k_proj", 48}}};
  const Want& want = all.at(GetParam());
  const PlainTensors got = tensors();
  EXPECT_EQ(got.size(), 2 * 2 * want.layers);
  const std::string module = "base_model.model." + want.prefix + want.layer,
                    name = want.layer + ".lora_B.weight";
  EXPECT_THAT(got.at(module + ".lora_A.weight").shape, ElementsAre(3, 48));
  EXPECT_THAT(got.at(module + ".lora_B.weight").shape, ElementsAre(want.rows, 3));
  float last = 0;
  const std::string& bytes = got.at(module + ".lora_B.weight").bytes;
  std::copy_n(bytes.end() - 4, 4, reinterpret_cast<char*>(&last));
  EXPECT_EQ(last, value_of(name, want.rows * 3 - 1) / 16);
  convert({.model = path_ / "one", .out = path_ / "again"});
  EXPECT_EQ(plain_safetensors(path_ / "again" + "/adapter_model.safetensors"), got);
  const auto config = nlohmann::json::parse(slurp(peft() + "/adapter_config.json"));
  EXPECT_EQ(config["base_model_name_or_path"], base_);
  EXPECT_EQ(config["r"], 3);
  EXPECT_EQ(std::ssize(config["target_modules"]), want.targets)
      << "GPT-2's c_proj counts once, but occurs twice";
}

TEST_P(AdapterFolders, FromPeftsFormatOrACheckpointComputeTheSameOnEveryGrid) {
  const std::vector<float> without = logits(
      [&] {
        ModelConfig base = adapted_;
        base.lora = {};
        return base;
      }(),
      {});
  const std::vector<float> one = logits(with(path_ / "eight"), {});
  EXPECT_GT(relative_difference(one, without), 0.01) << "the adapters have no effect";
  EXPECT_EQ(logits(with(peft()), {}), one);
  for (const GridShape& grid : {GridShape{2, 2, 2, 1}, GridShape{1, 2, 1, 2}})
    EXPECT_LT(relative_difference(logits(with(peft()), grid), one), kAdapterRounding);
}

TEST_P(AdapterFolders, MergedComputeTheSame) {
  const std::string merged = path_ / "merged", also = path_ / "also", there = path_ / "there";
  convert({.model = path_ / "eight", .out = merged, .merge = true});
  convert({.model = base_, .out = also, .adapters = peft()});
  EXPECT_EQ(plain_folder(merged), plain_folder(also));
  ModelConfig whole = read_hugging_face_config(merged);
  whole.path = merged;
  EXPECT_LT(relative_difference(logits(whole, {}), logits(with(peft()), {})), kAdapterRounding);
  convert({.model = base_, .out = there, .to = ModelForm::checkpoint, .adapters = path_ / "one"});
  whole.path = there;
  EXPECT_LT(relative_difference(logits(whole, {}), logits(with(peft()), {})), kAdapterRounding);
}

TEST_P(AdapterFolders, OfAnotherModelAreRejectedWithTheMismatch) {
  ModelConfig wider = base_model(GetParam());
  wider.ffn = 192;
  const std::string other = path_ / "other";
  fs::create_directory(other);
  write_model(other, wider, {.type = StoredType::f32});
  spill(other + "/config.json", to_hugging_face_config(wider, {}));
  EXPECT_THAT([&] { convert({.model = other, .out = path_ / "m", .adapters = peft()}); },
              ThrowsMessage<UsageError>(HasSubstr("(3, 96), wanted (3, 192)")));
  EXPECT_THAT([&] { convert({.model = other, .out = path_ / "m", .adapters = path_ / "one"}); },
              ThrowsMessage<UsageError>(HasSubstr("has an adapter of ")));
  ModelConfig config = with(peft());
  config.path = other;
  config.ffn = 192;
  EXPECT_THAT([&] { logits(config, {}); }, ThrowsMessage<UsageError>(HasSubstr("wanted (3, 192)")));
  EXPECT_THAT([&] { convert({.model = base_, .out = path_ / "m", .adapters = base_}); },
              ThrowsMessage<UsageError>(HasSubstr("base holds a model, not adapters")));
  EXPECT_THAT([&] { convert({.model = peft(), .out = path_ / "m"}); },
              ThrowsMessage<UsageError>(HasSubstr("peft holds adapters in PEFT's format; name")));
  EXPECT_FALSE(fs::exists(path_ / "m"));
}

TEST_P(AdaptersOfOneLayer, MergedChangeOnlyThatLayer) {
  const std::string layer = with(peft()).lora.targets.front();
  EXPECT_THAT(with(peft()).lora.targets, ElementsAre(layer));
  const std::string before = slurp(base_ + "/model.safetensors");
  convert({.model = base_, .out = path_ / "merged", .adapters = peft()});
  EXPECT_EQ(slurp(base_ + "/model.safetensors"), before);
  const PlainTensors base = plain_folder(base_), merged = plain_folder(path_ / "merged");
  ASSERT_EQ(base.size(), merged.size());
  int changed = 0;
  for (const auto& [name, tensor] : base) {
    EXPECT_EQ(tensor.shape, merged.at(name).shape);
    const bool adapted = name.find(layer + ".weight") != name.npos;
    EXPECT_EQ(tensor == merged.at(name), !adapted) << name;
    changed += adapted;
  }
  EXPECT_EQ(changed, 2);
  EXPECT_LT(relative_difference(logits(with(peft()), {2, 2, 2, 1}), logits(with(peft()), {})),
            kAdapterRounding)
      << "adapters of rank 1";
}

TEST_P(AdaptersOfSomeLayers, AreWrittenReadAndMergedWithTheirRanksAndAlphas) {
  const bool gpt = GetParam() == ModelFamily::gpt;
  EXPECT_EQ(tensors().size(), 4);
  const auto file = nlohmann::json::parse(slurp(peft() + "/adapter_config.json"));
  EXPECT_EQ(file["layers_to_transform"], gpt ? nlohmann::json() : nlohmann::json({1}));
  EXPECT_EQ(file["rank_pattern"], nlohmann::json({{gpt ? "attn.c_attn" : "self_attn.v_proj", 2}}));
  EXPECT_EQ(file["alpha_pattern"],
            nlohmann::json({{gpt ? "attn.c_proj" : "self_attn.q_proj", 24}}));
  const std::vector<float> one = logits(with(path_ / "eight"), {});
  EXPECT_EQ(logits(with(peft()), {}), one);
  for (const GridShape& grid : {GridShape{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {2, 2, 1, 2}})
    EXPECT_LT(relative_difference(logits(with(peft()), grid), one), kAdapterRounding);
  convert({.model = base_, .out = path_ / "merged", .adapters = peft()});
  ModelConfig whole = read_hugging_face_config(path_ / "merged");
  whole.path = path_ / "merged";
  EXPECT_LT(relative_difference(logits(whole, {}), one), kAdapterRounding);
  // A scale of all layers alike computes something else.
  ModelConfig alike = with(path_ / "eight");
  alike.lora.alpha_pattern.clear();
  EXPECT_GT(relative_difference(logits(alike, {}), one), 0.001);
}

TEST_P(AdaptersWithMagnitudes, AreWrittenReadAndMergedAsDora) {
  const bool gpt = GetParam() == ModelFamily::gpt;
  const std::string module =
      gpt ? "base_model.model.transformer.h.1.attn.c_attn"
          : concat("base_model.model.model.", GetParam() == ModelFamily::opt ? "decoder." : "",
                   "layers.1.self_attn.q_proj");
  EXPECT_THAT(tensors().at(module + ".lora_magnitude_vector").shape, ElementsAre(gpt ? 144 : 48));
  const auto file = nlohmann::json::parse(slurp(peft() + "/adapter_config.json"));
  EXPECT_EQ(file["use_dora"], true);
  const std::vector<float> one = logits(with(path_ / "eight"), {});
  EXPECT_EQ(logits(with(peft()), {}), one);
  for (const GridShape& grid : {GridShape{2, 2, 2, 1}, GridShape{1, 2, 1, 2}})
    EXPECT_LT(relative_difference(logits(with(peft()), grid), one), kAdapterRounding);
  for (const std::string& adapters : {peft(), path_ / "one"}) {
    convert({.model = base_, .out = path_ / "merged", .adapters = adapters, .overwrite = true});
    ModelConfig whole = read_hugging_face_config(path_ / "merged");
    whole.path = path_ / "merged";
    EXPECT_LT(relative_difference(logits(whole, {}), one), kAdapterRounding);
  }
}

TEST_P(AdaptersWithMagnitudes, AreNotReadAsThoseWithout) {
  auto file = nlohmann::json::parse(slurp(peft() + "/adapter_config.json"));
  file["use_dora"] = false;
  spill(peft() + "/adapter_config.json", file.dump());
  EXPECT_THAT([&] { logits(with(peft()), {}); },
              ThrowsMessage<UsageError>(HasSubstr(".lora_magnitude_vector")));
}

// PEFT writes the vector by the name of its module; its class has it as a weight.
TEST_P(AdaptersWithMagnitudes, AreReadByBothNamesOfTheirVectors) {
  const std::string file = peft() + "/adapter_model.safetensors";
  const std::vector<float> one = logits(with(peft()), {});
  const PlainTensors plain = plain_safetensors(file);
  std::vector<SafetensorsTensor> renamed;
  for (const auto& [name, tensor] : plain)
    renamed.push_back({{.name = name.ends_with("_vector") ? name + ".weight" : name,
                        .type = StoredType::f32,
                        .shape = tensor.shape},
                       std::as_bytes(std::span(tensor.bytes))});
  write_safetensors(file, renamed);
  EXPECT_EQ(logits(with(peft()), {}), one);
}

TEST_P(AdaptersBesideModules, AreWrittenMergedAndTrainedFurther) {
  const std::vector<float> one = logits(resolved(with(path_ / "eight"), 0, 0), {});
  for (const GridShape& grid : {GridShape{2, 2, 2, 1}, GridShape{1, 2, 1, 2}})
    EXPECT_LT(relative_difference(logits(resolved(with(path_ / "eight"), 0, 0), grid), one),
              kAdapterRounding);
  const auto file = nlohmann::json::parse(slurp(peft() + "/adapter_config.json"));
  EXPECT_EQ(std::ssize(file["modules_to_save"]), GetParam() == ModelFamily::llama ? 3 : 2);
  const std::string embedding = GetParam() == ModelFamily::gpt     ? "transformer.wte.weight"
                                : GetParam() == ModelFamily::llama ? "model.embed_tokens.weight"
                                                                   : "model.decoder.embed_tokens"
                                                                     ".weight";
  EXPECT_TRUE(tensors().contains("base_model.model." + embedding));
  EXPECT_TRUE(tensors().contains("base_model.model.lm_head.lora_A.weight"));
  for (const std::string& adapters : {peft(), path_ / "one"}) {
    convert({.model = base_, .out = path_ / "merged", .adapters = adapters, .overwrite = true});
    ModelConfig whole = read_hugging_face_config(path_ / "merged");
    whole.path = path_ / "merged";
    EXPECT_FALSE(whole.tied);
    EXPECT_LT(relative_difference(logits(whole, {}), one), kAdapterRounding);
  }
  Config further{.model = adapted_};
  further.model.lora = {};
  further.model.lora.path = peft();
  EXPECT_EQ(logits(resolved(with_stored_model(further, {}).model, 0, 0), {}), one);
}

TEST_P(AdaptersOfOneLayer, AFolderWithMissingOrWrongTensorsIsRejected) {
  spill(peft() + "/adapter_config.json",
        R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": "all-linear"})");
  EXPECT_THAT([&] { logits(with(peft()), {}); },
              ThrowsMessage<UsageError>(HasSubstr("wanted (2, 48)")));
  write_safetensors(peft() + "/adapter_model.safetensors", {});
  EXPECT_THAT([&] { with(peft()); },
              ThrowsMessage<UsageError>(HasSubstr("no tensors of adapters")));
  fs::remove(peft() + "/adapter_model.safetensors");
  EXPECT_THAT([&] { with(peft()); },
              ThrowsMessage<UsageError>(HasSubstr("neither adapter_model.safetensors")));
}

TEST_P(AdaptersOfOneLayer, LoadTheirBaseFromACheckpointWithoutAnF32Copy) {
  const std::string checkpoint = path_ / "base-checkpoint";
  convert({.model = base_, .out = checkpoint});
  Config config{.model = with(peft())};
  config.training = {
      .steps = 1, .seq_len = 8, .global_batch = 8, .micro_batch = 1, .dtype = DType::bf16};
  config.optimizer.lr = 1;
  config.data.synthetic = 1;  // not read
  config.parallelism.set_grid({2, 2, 2, 1});
  run_ranks(8, [&](Communicator& world) {
    const auto base_of = [&](const std::string& path) {
      Config mine = config;
      mine.model.path = path;
      Training training(prepared(mine), world, make_cpu_backend(1), {.data = false});
      const std::int64_t before = training.model.arena().stats().peak_bytes;
      EXPECT_GT(training.model.initialise().bytes, 0);
      EXPECT_EQ(training.model.arena().stats().peak_bytes, before);
      std::string bytes;
      for (const ParameterGroup* group : training.model.model().groups())
        bytes.append(static_cast<const char*>(group->piece_of_compute().data),
                     group->piece_size() * bytes_of(DType::bf16));
      return bytes;
    };
    EXPECT_EQ(base_of(checkpoint), base_of(base_));
  });
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterFolders,
                         testing::Values(ModelFamily::gpt, ModelFamily::llama, ModelFamily::opt));
INSTANTIATE_TEST_SUITE_P(Families, AdaptersOfSomeLayers,
                         testing::Values(ModelFamily::gpt, ModelFamily::llama, ModelFamily::opt));
INSTANTIATE_TEST_SUITE_P(Families, AdaptersBesideModules,
                         testing::Values(ModelFamily::gpt, ModelFamily::llama, ModelFamily::opt));
INSTANTIATE_TEST_SUITE_P(Families, AdaptersWithMagnitudes,
                         testing::Values(ModelFamily::gpt, ModelFamily::llama, ModelFamily::opt));
INSTANTIATE_TEST_SUITE_P(Families, AdaptersOfOneLayer,
                         testing::Values(ModelFamily::gpt, ModelFamily::llama));
