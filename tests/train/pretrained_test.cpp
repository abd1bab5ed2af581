// Models read from Hugging Face folders that the test writes, on grids.
#include "axonn/train/pretrained.h"

#include <cstring>

#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/base/random.h"
#include "axonn/comm/self.h"
#include "axonn/comm/threads.h"
#include "axonn/io/stored_values.h"
#include "axonn/model/stored_names.h"
#include "axonn/train/stored_model.h"

#include "tests/io/temporary_path.h"

using namespace axonn;
using namespace axonn::test;
using testing::HasSubstr;

namespace {

ModelConfig small(ModelFamily family) {
  return {.family = family,
          .layers = 2,
          .hidden = 48,
          .heads = 12,
          .kv_heads = family == ModelFamily::llama ? 4 : 12,
          .head_dim = 4,
          .ffn = 96,
          .vocab = 101,
          .positions = 8,
          .tied = family == ModelFamily::gpt,
          .qkv_bias = family == ModelFamily::llama};
}

/// What element `index` of a parameter is: a number that BF16 and F16 can hold.
float value_of(const std::string& name, std::int64_t index) {
  return static_cast<float>(Random(1, name).below(index, 255)) / 64 - 2;
}

/// Every parameter's spec, as one rank has it.
std::vector<ParameterSpec> parameters_of(const ModelConfig& config) {
  const auto world = make_self();
  const Grid grid(*world, {});
  const auto model = make_model(config, grid);
  std::vector<ParameterSpec> all;
  for (const ParameterGroup* group : model->groups())
    for (const auto& parameter : group->parameters()) all.push_back(parameter->spec());
  return all;
}

struct FolderOptions {
  StoredType type = StoredType::bf16;
  std::string prefix = {};  // before every name
  bool shards = false;
  std::string without = {}, and_also = {};  // names
};

/// Writes a model in Hugging Face's form.
void write_model(const TemporaryPath& folder, const ModelConfig& config,
                 const FolderOptions& options) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<SafetensorsTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape,
                       const std::vector<float>& values) {
    bytes.emplace_back(values.size() * static_cast<std::size_t>(bytes_of(options.type)));
    from_floats(options.type, values, bytes.back());
    tensors.push_back({{.name = name, .type = options.type, .shape = std::move(shape)}, {}});
  };
  for (const ParameterSpec& spec : parameters_of(config)) {
    if (spec.name == options.without) continue;
    const std::int64_t rows = spec.layout.rows, cols = spec.layout.cols;
    const bool transposed = stored_name(config.family, spec.name).transposed;
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows * cols; ++i)
      values.push_back(value_of(spec.name, transposed ? i % rows * cols + i / rows : i));
    std::vector<std::int64_t> shape{transposed ? cols : rows};
    if (cols > 1) shape.push_back(transposed ? rows : cols);
    add(options.prefix + spec.name, shape, values);
  }
  if (!options.and_also.empty()) add(options.and_also, {3}, {1, 2, 3});
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].data = bytes[i];
  if (!options.shards) return write_safetensors(folder / "model.safetensors", tensors);
  std::string map;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string file = concat("part-", i % 3, ".safetensors");
    map += concat(map.empty() ? "" : ",", '"', tensors[i].entry.name, "\":\"", file, '"');
  }
  for (std::size_t part = 0; part < 3; ++part) {
    std::vector<SafetensorsTensor> some;
    for (std::size_t i = part; i < tensors.size(); i += 3) some.push_back(tensors[i]);
    write_safetensors(folder / concat("part-", part, ".safetensors"), some);
  }
  spill(folder / "model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
}

/// Loads the folder on a grid and compares every element of every rank's compute copy.
void expect_loaded(const ModelConfig& config, const std::string& path, const GridShape& shape,
                   DType dtype) {
  run_ranks(shape.ranks(), [&](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, shape);
    const auto model = make_model(config, grid);
    const Context ctx{.backend = *backend, .arena = arena, .grid = grid, .dtype = dtype};
    std::vector<ParameterGroup*> base;
    for (ParameterGroup* group : model->groups()) {
      group->allocate(ctx);
      if (config.lora.rank == 0 || group->frozen()) base.push_back(group);
    }
    load_pretrained(ctx, config, base, SafetensorsFolder(path));
    for (const ParameterGroup* group : base)
      for (const auto& [spec, slice] : group->piece_slices())
        for (std::int64_t e = slice.begin; e < slice.end; ++e) {
          const std::int64_t row = slice.row + e / slice.cols, col = slice.col + e % slice.cols,
                             at = slice.offset + e - slice.begin;
          const View piece = group->piece_of_compute();
          const float got =
              dtype == DType::bf16 ? get(piece.as<bf16>()[at]) : piece.as<float>()[at];
          ASSERT_EQ(got, value_of(spec->name, row * spec->layout.cols + col))
              << spec->name << " (" << row << ", " << col << ") on " << grid.describe();
        }
  });
}

std::string refusal(const ModelConfig& config, const FolderOptions& options) {
  const TemporaryPath folder;
  write_model(folder, config, options);
  try {
    expect_loaded(config, folder.path(), {}, DType::f32);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Pretrained, EveryElementArrivesOnEveryGridInEveryTypeAndForm) {
  for (const ModelFamily family : {ModelFamily::gpt, ModelFamily::llama}) {
    const bool gpt = family == ModelFamily::gpt;
    for (const FolderOptions& options :
         {FolderOptions{}, FolderOptions{.type = StoredType::f16, .shards = true},
          FolderOptions{.type = StoredType::f32,
          .prefix = gpt ? "transformer." : "",
          .and_also = gpt ? "h.0.attn.bias" : "model.rotary_emb.inv_freq"}}) {
      const TemporaryPath folder;
      write_model(folder, small(family), options);
      for (const GridShape& shape : {GridShape{1, 1, 1, 1}, GridShape{2, 2, 2, 1},
                                     GridShape{1, 2, 1, 2}, GridShape{6, 1, 1, 1}})
        expect_loaded(small(family), folder.path(), shape, DType::f32);
    }
  }
}

TEST(Pretrained, FrozenWeightsAreReadIntoTheirComputeCopies) {
  ModelConfig config = small(ModelFamily::llama);
  const TemporaryPath folder;
  write_model(folder, config, {});
  config.lora.rank = 2;
  for (DType dtype : {DType::f32, DType::bf16})
    expect_loaded(config, folder.path(), {2, 1, 2, 1}, dtype);
}

TEST(Pretrained, AFolderThatDoesNotFitIsRefusedWithEveryMisfit) {
  const ModelConfig llama = small(ModelFamily::llama);
  EXPECT_THAT(refusal(llama, {.without = "model.norm.weight", .and_also = "model.extra"}),
              testing::AllOf(HasSubstr("there is no model.norm.weight"),
                             HasSubstr("model.extra (3) is not known")));
  const TemporaryPath folder;
  write_model(folder, llama, {});
  ModelConfig wider = llama;
  wider.ffn = 192;
  try {
    expect_loaded(wider, folder.path(), {}, DType::f32);
    FAIL() << "a folder of another width was read";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("model.layers.0.mlp.gate_proj.weight is (96, 48), wanted (192, 48)"));
  }
}

TEST(Pretrained, AFoldersSizesAndTokenizerAreTheRunsUnlessAnotherTokenizerIsNamed) {
  const TemporaryPath folder;
  spill(folder / "config.json",
        R"({"model_type": "llama", "hidden_size": 48, "intermediate_size": 96, "vocab_size": 101,
            "num_hidden_layers": 2, "num_attention_heads": 12, "num_key_value_heads": 4,
            "max_position_embeddings": 8, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})");
  Config config;
  config.model.path = folder.path();
  config.model.lora.rank = 3;
  EXPECT_EQ(with_stored_model(config).data.tokenizer, "bytes") << "the folder has none";
  spill(folder / "tokenizer.json", "{}");
  const Config found = with_stored_model(config);
  EXPECT_EQ(found.data.tokenizer, folder.path());
  EXPECT_EQ(found.model.path, folder.path());
  EXPECT_EQ(found.model.ffn, 96);
  EXPECT_EQ(found.model.kv_heads, 4);
  EXPECT_EQ(found.model.lora.rank, 3) << "what is trained is the run's matter";
  config.data.tokenizer = "another";
  EXPECT_EQ(with_stored_model(config).data.tokenizer, "another");
}
