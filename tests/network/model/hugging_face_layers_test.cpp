// Configs read from Hugging Face's, of models whose layers differ: what transformers 5.24 computes
// with such files; see the logits of its models.
#include <array>
#include <cmath>

#include <gmock/gmock.h>

#include "tests/network/model/config_texts.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

TEST(HuggingFaceConfig, ReadsAWindowOfSomeLayers) {
  const std::string used = R"("sliding_window": 32, "use_sliding_window": true, )";
  const auto full = [&](const char* type, const std::string& more) {
    const ModelConfig model = parse(llama_file(used + more, type));
    EXPECT_EQ(model.window, 32);
    return model.full_layers;
  };
  for (const char* type : {"qwen2", "qwen3"}) {
    EXPECT_THAT(full(type, R"("max_window_layers": 2)"), testing::ElementsAre(0, 1));
    EXPECT_EQ(full(type, R"("num_hidden_layers": 30)").size(), 28u);
  }
  for (const char* type : {"qwen2", "qwen3", "mistral", "ministral", "smollm3", "olmo3"})
    EXPECT_THAT(full(type, layer_types("fsfs")), testing::ElementsAre(0, 2)) << type;
  EXPECT_THAT(full("ministral", R"("use_cache": true)"), testing::IsEmpty());
  EXPECT_EQ(parse(llama_file(R"("sliding_window": null)", "ministral")).window, 0);
  EXPECT_EQ(parse(llama_file("", "ministral")).window, 4096);
  for (const char* type : {"ministral", "smollm3", "olmo3"}) {
    EXPECT_EQ(parse(llama_file(used + layer_types("ffff"), type)).window, 0) << type;
    EXPECT_THAT(error_of(llama_file(R"("sliding_window": null, )" + layer_types("sfff"), type)),
                HasSubstr("there are layers of sliding_attention, but no sliding_window"))
        << type;
  }
  EXPECT_THAT(error_of(llama_file(used + layer_types("fs"), "qwen3")),
              HasSubstr("layer_types wants a list of num_hidden_layers = 4"));
  EXPECT_THAT(error_of(llama_file(used + layer_types("cccc"), "qwen3")),
              HasSubstr("not supported in models: layer_types with \"chunked_attention\""));
  EXPECT_THAT(error_of(llama_file(used + R"("max_window_layers": "all")", "qwen3")),
              HasSubstr("max_window_layers wants an integer, got \"all\""));
}

TEST(HuggingFaceConfig, ReadsSmollm3WithLayersWithoutRotaryPositions) {
  EXPECT_EQ(resolved(parse(R"({"model_type": "smollm3", "attention_bias": false, "mlp_bias": false,
    "architectures": ["SmolLM3ForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 11008, "max_position_embeddings": 65536,
    "max_window_layers": 28, "no_rope_layer_interval": 4, "num_attention_heads": 16,
    "num_hidden_layers": 36, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 5000000.0, "sliding_window": null,
    "use_sliding_window": false, "vocab_size": 128256})"),
                     0, 0),
            known("smollm3-3b"));
  const auto nope = [](const std::string& more) {
    return parse(llama_file(more, "smollm3")).nope_layers;
  };
  EXPECT_THAT(nope(""), testing::ElementsAre(3));
  EXPECT_THAT(nope(R"("no_rope_layer_interval": 2, "no_rope_layers": null)"),
              testing::ElementsAre(1, 3));
  EXPECT_THAT(nope(R"("no_rope_layers": [0, 1, 0, 1, 0])"), testing::ElementsAre(0, 2));
  EXPECT_THAT(nope(R"("no_rope_layers": [1, 1, 1, 1])"), testing::IsEmpty());
  EXPECT_THAT(
      error_of(llama_file(R"("no_rope_layers": [1, 1])", "smollm3")),
      HasSubstr("no_rope_layers wants one number, 0 or 1, for each of the 4 layers, got 2"));
  EXPECT_EQ(parse(llama_file("", "smollm3")).rope_theta, 2e6);
  EXPECT_TRUE(parse(llama_file("", "smollm3")).tied);
  const ModelConfig slides =
      parse(llama_file(R"("use_sliding_window": true, "sliding_window": 8)", "smollm3"));
  EXPECT_EQ(slides.window, 8);
  EXPECT_THAT(slides.full_layers, testing::ElementsAre(0, 1, 2)) << "those with rope";
  EXPECT_EQ(parse(llama_file(R"("sliding_window": 8)", "smollm3")).window, 0);
}

TEST(HuggingFaceConfig, ReadsOlmo2WithNormsAtTheOutput) {
  EXPECT_EQ(resolved(parse(R"({"model_type": "olmo2", "attention_bias": false,
    "architectures": ["Olmo2ForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
    "vocab_size": 100352})"),
                     0, 0),
            known("olmo-2-7b"));
  EXPECT_EQ(parse(llama_file("", "olmo2")).norm_eps, 1e-5);
  EXPECT_EQ(parse(llama_file("", "olmo2")).rope_theta, 10000);
}

TEST(HuggingFaceConfig, ReadsOlmo3WithScaledFrequenciesInFullLayersAlone) {
  const std::string sizes = R"({"model_type": "olmo3", "attention_bias": false,
    "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008,
    "max_position_embeddings": 65536, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "rms_norm_eps": 1e-06, "sliding_window": 4096,
    "vocab_size": 100278, )",
                    yarn = R"({"beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
    "original_max_position_embeddings": 8192, "rope_type": "yarn")";
  const ModelConfig want = known("olmo-3-7b");
  for (const std::string& ropes :
       {R"("rope_theta": 500000, "rope_scaling": )" + yarn + "}",
        R"("rope_parameters": {"full_attention": )" + yarn + R"(, "rope_theta": 500000.0},
          "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}})"})
    EXPECT_EQ(resolved(parse(sizes + ropes + "}"), 0, 0), want);
  const auto read = [](const std::string& ropes) { return parse(llama_file(ropes, "olmo3")); };
  EXPECT_EQ(read("").rope_theta, 500000);
  EXPECT_FALSE(read("").has_window_rope());
  EXPECT_THAT(read("").full_layers, testing::ElementsAre(3));
  const std::string full = R"("full_attention": {"rope_type": "default", "rope_theta": 60})";
  const ModelConfig bases =
      read(R"("rope_parameters": {)" + full + R"(, "sliding_attention": {"rope_theta": 50}})");
  EXPECT_EQ(bases.rope_theta, 60);
  EXPECT_EQ(bases.window_rope_theta, 50);
  EXPECT_EQ(read(R"("rope_parameters": {)" + full + "}").window_rope_theta, 500000);
  const auto error = [](const std::string& ropes) { return error_of(llama_file(ropes, "olmo3")); };
  EXPECT_THAT(error(R"("rope_theta": 60)"), HasSubstr("transformers 4 and 5 differ"));
  EXPECT_THAT(error(R"("rope_parameters": {"rope_theta": 60})"),
              HasSubstr("rope_parameters that are not by kind of layer"));
  EXPECT_THAT(error(R"("rope_parameters": {"sliding_attention": )" + yarn + "}}"),
              HasSubstr("a scaling of sliding_attention of its own"));
  EXPECT_THAT(error(R"("rope_parameters": {"full_attention": )" + yarn +
                    R"(}}, "rope_scaling": {"rope_type": "yarn", "factor": 4.0})"),
              HasSubstr("a rope_scaling other than rope_parameters.full_attention"));
}

TEST(HuggingFaceConfig, ReadsPhi3WithPartialRotaryPositionsAndLongrope) {
  EXPECT_EQ(resolved(parse(R"({"model_type": "phi3", "attention_bias": false,
    "architectures": ["Phi3ForCausalLM"], "embd_pdrop": 0.0, "hidden_act": "silu",
    "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 4096,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": false,
    "vocab_size": 32064})"),
                     0, 0),
            known("phi-3-mini-4k"));
  const auto read = [](const std::string& more) { return parse(llama_file(more, "phi3")); };
  EXPECT_EQ(read("").norm_eps, 1e-5);
  EXPECT_EQ(read("").window, 0);
  const auto factors = [](const char* kind) {
    return concat(R"("partial_rotary_factor": 0.25, "rope_scaling": {"type": ")", kind,
                  R"(", "short_factor": [1, 1.5], "long_factor": [2, 4.5]})");
  };
  RopeScaling want{.kind = RopeScalingKind::longrope,
                   .factor = 512.0 / 4096,
                   .original_positions = 4096,
                   .short_factors = {1, 1.5},
                   .long_factors = {2, 4.5}};
  for (const char* kind : {"longrope", "su", "yarn"}) EXPECT_EQ(read(factors(kind)).rope, want);
  EXPECT_EQ(read(factors("su")).partial_rotary_factor, 0.25);
  want.original_positions = 64;
  want.factor = 8;
  const std::string original = R"(, "original_max_position_embeddings": 64)";
  EXPECT_EQ(read(factors("longrope") + original).rope, want);
  const std::string plain = R"("partial_rotary_factor": 0.75, "rope_scaling": null)";
  EXPECT_EQ(read(plain).partial_rotary_factor, 0.75);
  const auto error = [](const std::string& more) { return error_of(llama_file(more, "phi3")); };
  EXPECT_THAT(error(R"("rope_scaling": {"type": "llama3", "factor": 2.0})"),
              HasSubstr("rope scaling 'llama3'"));
  EXPECT_THAT(error(R"("rope_scaling": {"type": "longrope", "short_factor": [1, 2]})"),
              HasSubstr("long_factor is missing"));
  EXPECT_THAT(error(R"("rope_scaling": {"type": "su", "short_factor": [1], "long_factor": [0]})"),
              HasSubstr("long_factor wants a list of numbers above 0"));
  EXPECT_THAT(error(R"("rope_scaling": {"type": "su", "short_factor": [1], "long_factor": [1]})"),
              HasSubstr("rope_short_factors has 1 numbers, but 8 pairs of columns rotate"));
  EXPECT_THAT(error(R"("partial_rotary_factor": 0.2)"), HasSubstr("columns of a head are 3"));
}

TEST(HuggingFaceConfig, ReadsTheBiasesOfEachProduct) {
  const auto biases = [](const char* type, const std::string& more) {
    const ModelConfig model = parse(llama_file(more, type));
    return std::array{model.qkv_bias, model.out_bias, model.mlp_bias};
  };
  const std::string both = R"("attention_bias": true, "mlp_bias": true)";
  for (const char* type : {"llama", "smollm3"})
    EXPECT_EQ(biases(type, both), (std::array{true, true, true})) << type;
  for (const char* type : {"qwen3", "olmo2", "olmo3"})
    EXPECT_EQ(biases(type, both), (std::array{true, true, false})) << type;
  EXPECT_EQ(biases("qwen2", both), (std::array{true, false, false}));
  EXPECT_EQ(biases("mistral", both), (std::array{false, false, false}));
  EXPECT_EQ(biases("seed_oss", ""), (std::array{true, false, false}));
  EXPECT_EQ(biases("seed_oss", R"("attention_bias": false, "attention_out_bias": true)"),
            (std::array{false, true, false}));
  EXPECT_EQ(biases("seed_oss", both), (std::array{true, false, true}));
}

TEST(HuggingFaceConfig, ReadsYarnOfEveryType) {
  const auto rope = [](const std::string& more) {
    return parse(llama_file(R"("rope_scaling": {"type": "yarn", "factor": 4.0)" + more + "}",
                            "qwen3"))
        .rope;
  };
  EXPECT_EQ(rope(""),
            (RopeScaling{.kind = RopeScalingKind::yarn, .factor = 4, .original_positions = 512}));
  EXPECT_EQ(rope(R"(, "beta_fast": 8, "beta_slow": null, "attention_factor": 1.5,
    "original_max_position_embeddings": 64, "truncate": false)"),
            (RopeScaling{.kind = RopeScalingKind::yarn,
                         .factor = 4,
                         .original_positions = 64,
                         .beta_fast = 8,
                         .attention_factor = 1.5,
                         .truncate = false}));
  EXPECT_EQ(rope(R"(, "mscale": 0.7)").attention_factor, 0) << "mscale_all_dim is missing";
  EXPECT_EQ(rope(R"(, "mscale": 1.0, "mscale_all_dim": 1.0)").attention_factor, 1);
  EXPECT_NEAR(rope(R"(, "mscale": 0.7, "mscale_all_dim": 1.0)").attention_factor,
              (0.07 * std::log(4) + 1) / (0.1 * std::log(4) + 1), 1e-15);
  EXPECT_THAT(error_of(llama_file(R"("rope_scaling": {"type": "yarn"})")),
              HasSubstr("factor is missing"));
  EXPECT_THAT(error_of(llama_file(R"("rope_scaling": {"type": "yarn", "factor": 4.0,
    "beta_fast": 1.0})")),
              HasSubstr("rope_beta_slow = 1 is not below rope_beta_fast = 1"));
}
