// The config of a model on disk, and messages for folders that hold something else.
#include "axonn/run/config/stored_config.h"

#include <filesystem>
#include <functional>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/peft.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/load/loaded_model.h"

#include "tests/support/model_folder.h"
#include "tests/support/temporary_path.h"
#include "tests/support/write_safetensors.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::HasSubstr;

namespace {

ModelConfig small_llama() {
  return resolved({.family = ModelFamily::llama,
                   .layers = 1,
                   .hidden = 24,
                   .heads = 4,
                   .ffn = 32,
                   .vocab = 101,
                   .positions = 8,
                   .tied = false},
                  0, 0);
}

/// A Hugging Face folder "model", a folder in PEFT's format "peft", and the checkpoints "run" of a
/// model and "lora" of adapters.
class StoredConfig : public testing::Test {
 protected:
  StoredConfig() {
    for (const char* name : {"model", "peft"}) std::filesystem::create_directory(at(name));
    write_model(at("model"), small_llama(), {});
    spill(at("model") + "/config.json", to_hugging_face_config(small_llama(), {}));
    spill(at("peft") + "/adapter_config.json",
          R"({"peft_type": "LORA", "r": 2, "base_model_name_or_path": "some/base"})");
    const std::string a = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight";
    write_safetensors(at("peft") + "/adapter_model.safetensors",
                      {{{.name = a, .type = StoredType::f32, .shape = {0, 24}}, {}}});
    save_checkpoint(at("run"), small_llama(), {});
    ModelConfig adapted = small_llama();
    adapted.path = at("model");
    adapted.lora.rank = 2;
    save_checkpoint(at("lora"), adapted, {});
  }
  std::string at(const std::string& name) const { return path_ / name; }

  static std::string refusal(const std::function<void()>& ask) {
    try {
      ask();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  }
  /// The message for a run that starts from this model.
  static std::string of_run(const std::string& model, const std::string& adapters = {}) {
    Config config;
    config.model.path = model;
    config.model.lora.path = adapters;
    return refusal([&] { with_stored_model(config, {}); });
  }
  /// The message for axonn generate and axonn eval.
  static std::string of_use(const std::string& model, const std::string& adapters = {}) {
    return refusal([&] { config_of_model(model, adapters); });
  }

  TemporaryPath path_;
};

}  // namespace

TEST_F(StoredConfig, OfAModelIsTakenFromEveryFormat) {
  for (const char* name : {"model", "run"}) {
    EXPECT_EQ(of_run(at(name)), "accepted");
    EXPECT_EQ(of_use(at(name)), "accepted");
    for (const char* adapters : {"peft", "lora"}) {
      EXPECT_EQ(of_run(at(name), at(adapters)), "accepted");
      EXPECT_EQ(of_use(at(name), at(adapters)), "accepted");
    }
  }
  EXPECT_EQ(of_use(at("lora")), "accepted");
  EXPECT_EQ(config_of_model(at("lora")).model.path, at("model"));
  EXPECT_EQ(config_of_model(at("run"), at("peft")).model.lora.targets,
            std::vector<std::string>{"up_proj"});
}

TEST_F(StoredConfig, RefusesAdaptersAsAModelAndAModelAsAdapters) {
  for (const char* name : {"peft", "lora"}) {
    const std::string base = std::string(name) == "peft" ? "some/base" : at("model");
    EXPECT_THAT(of_run(at(name)), HasSubstr(at(name) + "' holds only adapters of the model at '" +
                                            base + "'; set path to that model"));
  }
  EXPECT_THAT(of_use(at("peft")),
              HasSubstr("peft holds only adapters of the model at 'some/base'"));
  EXPECT_THAT(of_use(at("lora"), at("peft")), HasSubstr("lora holds adapters itself"));
  for (const char* name : {"model", "run"}) {
    EXPECT_EQ(of_run(at("model"), at(name)), at(name) + " holds a model, not adapters");
    EXPECT_EQ(of_use(at("run"), at(name)), at(name) + " holds a model, not adapters");
  }
}

TEST_F(StoredConfig, OfAFolderWithoutSafetensorsIsReadButItsWeightsAreRefusedByName) {
  const std::string sizes = at("model") + "/config.json";
  std::filesystem::rename(at("model") + "/model.safetensors", at("model") + "/pytorch_model.bin");
  for (const std::string& path : {at("model"), sizes}) {
    const Config config = config_of_model(path);
    EXPECT_EQ(config.model.hidden, 24);
    const std::string message = refusal([&] {
      run_ranks(1, [&](Communicator& world) {
        LoadedModel loaded(prepared_model(config), world, make_cpu_backend(1),
                           {.trainable = false});
        loaded.initialise();
      });
    });
    EXPECT_THAT(message, path == sizes ? AllOf(HasSubstr(sizes), HasSubstr("gives only sizes"))
                                       : AllOf(HasSubstr("has neither model.safetensors nor"),
                                               HasSubstr(".bin weights cannot be read")));
  }
}

TEST(StoredConfigOfFolder, SizesAndTokenizerAreUsedUnlessAnotherTokenizerIsNamed) {
  const TemporaryPath folder;
  spill(folder / "config.json",
        R"({"model_type": "llama", "hidden_size": 48, "intermediate_size": 96, "vocab_size": 101,
            "num_hidden_layers": 2, "num_attention_heads": 12, "num_key_value_heads": 4,
            "max_position_embeddings": 8, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})");
  Config config;
  config.model.path = folder.path();
  config.model.lora.rank = 3;
  EXPECT_EQ(with_stored_model(config, {}).data.tokenizer, "") << "the folder has no tokenizer";
  Origins chosen;
  chosen.set("data.tokenizer", "--data.tokenizer");
  EXPECT_EQ(with_stored_model(config, chosen).data.tokenizer, "bytes");
  spill(folder / "tokenizer.json", "{}");
  const Config found = with_stored_model(config, {});
  EXPECT_EQ(found.data.tokenizer, folder.path());
  EXPECT_EQ(found.model.path, folder.path());
  EXPECT_NE(found.model_files.model, nullptr);
  EXPECT_EQ(found.model, with_stored_model(config, {}).model) << "sizes are equal, files are not";
  EXPECT_EQ(found.model.ffn, 96);
  EXPECT_EQ(found.model.kv_heads, 4);
  EXPECT_EQ(found.model.lora.rank, 3)
      << "the adapters to train are set by the run, not by the folder";
  config.data.tokenizer = "another";
  EXPECT_EQ(with_stored_model(config, {}).data.tokenizer, "another");
}

TEST(StoredConfigOfFolder, ARunIsRefusedThatNeedsMorePositionsOrATokenizer) {
  const TemporaryPath folder;
  spill(folder / "config.json",
        R"({"model_type": "llama", "hidden_size": 48, "intermediate_size": 96, "vocab_size": 101,
            "num_hidden_layers": 2, "num_attention_heads": 12, "max_position_embeddings": 8})");
  Config config;
  config.model.path = folder.path();
  config.data.tokens = {"tokens.bin"};
  config.training.steps = config.training.global_batch = 1;
  config.training.seq_len = 8;
  config.optimizer.lr = 1;
  EXPECT_EQ(prepared(with_stored_model(config, {}))->model.positions, 8);
  const auto refusal_of = [&](const Config& asked) {
    try {
      prepared(with_stored_model(asked, {}));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  Config longer = config, text = config;
  longer.training.seq_len = 16;
  EXPECT_EQ(refusal_of(longer),
            "[training] seq_len = 16 is longer than [model] positions = 8, those "
            "of the model at " +
                std::string(folder.path()) + "; shorten seq_len");
  text.data.tokens.clear();
  text.data.text = {"book.txt"};
  EXPECT_THAT(refusal_of(text), HasSubstr("tokenizer is not set, and the one of the model"));
}
