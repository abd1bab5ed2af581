// Adapters of products that files join or name otherwise, in PEFT's format and back.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/convert/convert.h"

#include "tests/data/storage/plain_safetensors.h"
#include "tests/support/model_folder.h"
#include "tests/support/write_safetensors.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kWidth = 48;

ModelConfig joined_model(const std::string& type) {
  ModelConfig config{.family = ModelFamily::llama,
                     .layers = 2,
                     .hidden = kWidth,
                     .heads = 12,
                     .kv_heads = 4,
                     .ffn = 96,
                     .vocab = 101,
                     .positions = 8,
                     .tied = false};
  config.type = type;
  if (type == "phi3") return resolved(config, 0, 0);
  config.head_dim = 4;
  config.qk_norm = QkNormKind::head;
  config.norm_plus_one = true;
  config.attention_gate = true;
  config.delta_layers = {0};
  config.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 5, .value_dim = 3, .taps = 3};
  if (type == "qwen3_5_text") return resolved(config, 0, 0);
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_ffn = 8;
  config.shared_ffn = 12;
  config.shared_gate = true;
  return resolved(config, 0, 0);
}

/// The first rows of a product's heads in its module's tensor.
struct PartRows {
  std::string product;
  std::int64_t first, rows, next;  ///< of the first head group, of each, from one to the next
  std::int64_t rank;
};

struct JoinedCase {
  std::string type;
  LoraConfig lora;
  std::string module;
  std::int64_t rows = 0, groups = 1;
  std::vector<PartRows> parts;
};

/// A model's folder, a checkpoint of adapters for it, and these in PEFT's format.
class JoinedAdapters : public testing::TestWithParam<JoinedCase> {
 protected:
  JoinedAdapters() : base_(path_ / "base"), peft_(path_ / "peft"), run_(path_ / "run") {
    fs::create_directory(base_);
    write_model(base_, joined_model(GetParam().type), {.type = StoredType::f32});
    spill(base_ + "/config.json", to_hugging_face_config(joined_model(GetParam().type), {}));
    ModelConfig adapted = read_hugging_face_config(base_);
    adapted.path = base_;
    adapted.lora = GetParam().lora;
    save_checkpoint(run_, adapted, {2, 1, 2, 1});
    convert({.model = run_, .out = peft_});
  }

  std::vector<float> floats(const std::string& tensor) const {
    const std::string bytes =
        plain_safetensors(peft_ + "/adapter_model.safetensors").at(tensor).bytes;
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  TemporaryPath path_;
  std::string base_, peft_, run_;
};

std::vector<JoinedCase> joined_cases() {
  const LoraConfig some{.rank = 3, .alpha = 6, .targets = {"q_proj", "v_proj", "o_proj"}};
  LoraConfig ranks = some;
  ranks.targets.emplace_back("k_proj");
  ranks.rank_pattern = {"k_proj 2"};
  const std::string delta = "model.layers.0.linear_attn.";
  return {{.type = "phi3",
           .lora = ranks,
           .module = "model.layers.1.self_attn.qkv_proj",
           .rows = 80,
           .parts = {{"model.layers.1.self_attn.q_proj", 0, 48, 0, 3},
                     {"model.layers.1.self_attn.k_proj", 48, 16, 0, 2},
                     {"model.layers.1.self_attn.v_proj", 64, 16, 0, 3}}},
          {.type = "qwen3_5_text",
           .lora = some,
           .module = delta + "in_proj_qkv",
           .rows = 32,
           .parts = {{delta + "q_proj", 0, 10, 0, 3}, {delta + "v_proj", 20, 12, 0, 3}}},
          {.type = "qwen3_next",
           .lora = ranks,
           .module = delta + "in_proj_qkvz",
           .rows = 44,
           .groups = 2,
           .parts = {{delta + "q_proj", 0, 5, 22, 3},
                     {delta + "k_proj", 5, 5, 22, 2},
                     {delta + "v_proj", 10, 6, 22, 3}}}};
}

double most_difference(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0, most = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference = std::max(difference, std::abs(double{got[i]} - want[i]));
    most = std::max(most, std::abs(double{want[i]}));
  }
  return difference / most;
}

// At most 14 consecutive products of a layer, each a sum of at most 96 terms in f32.
constexpr double kRoundingOfJoined = 14 * 96 * 0x1p-24;

}  // namespace

TEST_P(JoinedAdapters, AModuleHasItsProductsBelowOneAnotherInAAndInTheirRowsOfB) {
  const JoinedCase& want = GetParam();
  std::int64_t rank = 0;
  for (const PartRows& part : want.parts) rank += part.rank;
  std::vector<float> a, b(want.rows * rank);
  std::int64_t col = 0;
  for (const PartRows& part : want.parts) {
    for (std::int64_t i = 0; i < part.rank * kWidth; ++i)
      a.push_back(value_of(part.product + ".lora_A.weight", i) / 16);
    // Each product's alpha is 6: the scale of the module is that of its first.
    const float scale = 3 / static_cast<float>(part.rank);
    std::int64_t row = 0;
    for (std::int64_t group = 0; group < want.groups; ++group)
      for (std::int64_t i = 0; i < part.rows; ++i, ++row)
        for (std::int64_t r = 0; r < part.rank; ++r)
          b[(part.first + group * part.next + i) * rank + col + r] =
              scale * value_of(part.product + ".lora_B.weight", row * part.rank + r) / 16;
    col += part.rank;
  }
  EXPECT_EQ(floats("base_model.model." + want.module + ".lora_A.weight"), a);
  EXPECT_EQ(floats("base_model.model." + want.module + ".lora_B.weight"), b);
}

TEST_P(JoinedAdapters, FromPeftsFormatComputeTheSameOnEveryGridAndMerged) {
  const std::vector<float> without = logits(config_of_model(base_), {}),
                           want = logits(config_of_model(run_), {});
  EXPECT_GT(most_difference(want, without), 0.01) << "the adapters have no effect";
  for (const GridShape& grid : {GridShape{}, GridShape{2, 2, 2, 1}})
    EXPECT_LT(most_difference(logits(config_of_model(base_, peft_), grid), want),
              kRoundingOfJoined);
  convert({.model = base_, .out = path_ / "merged", .adapters = peft_});
  EXPECT_LT(most_difference(logits(config_of_model(path_ / "merged"), {}), want),
            kRoundingOfJoined);
}

INSTANTIATE_TEST_SUITE_P(Types, JoinedAdapters, testing::ValuesIn(joined_cases()),
                         [](const auto& one) { return one.param.type; });
