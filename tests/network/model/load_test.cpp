// Reads models from Hugging Face folders that the test writes, on grids.
#include <array>
#include <cstring>
#include <filesystem>
#include <map>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/model_files.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/support/model_folder.h"
#include "tests/support/temporary_path.h"
#include "tests/support/write_safetensors.h"

using namespace axonn;
using namespace axonn::test;
using testing::HasSubstr;

namespace {

ModelConfig model_to_load(ModelFamily family) {
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

/// Loads the folder on a grid and compares every element of every rank's compute copy.
void expect_loaded(const ModelConfig& config, const std::string& path, const GridShape& shape,
                   DType dtype) {
  run_ranks(shape.ranks(), [&](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, shape);
    const auto model = make_model(config, grid);
    const Context ctx(*backend, arena, grid, dtype);
    std::vector<ParameterGroup*> base;
    for (ParameterGroup* group : model->groups()) {
      group->allocate(ctx);
      if (config.lora.rank == 0 || group->frozen()) base.push_back(group);
    }
    SafetensorsSource source(SafetensorsFolder(path), stored_parameters(base), base_names(config));
    std::vector<Destination> to;
    for (ParameterGroup* group : base) to.push_back({.group = group});
    std::int64_t done = 0, total = 0;
    load(ctx, to, source, [&](std::int64_t now, std::int64_t all) {
      EXPECT_GT(now, done);
      done = now;
      total = all;
    });
    EXPECT_EQ(done, total);
    for (const ParameterGroup* group : base)
      for (const auto& [spec, slice] : group->piece_slices())
        for (std::int64_t e = slice.begin; e < slice.end; ++e) {
          const std::int64_t row = slice.row + e / slice.cols, col = slice.col + e % slice.cols,
                             at = slice.offset + e - slice.begin;
          const View piece = group->piece_of_compute();
          ASSERT_EQ(float_at(piece.data, piece.dtype, at),
                    value_of(spec->name, row * spec->layout.cols + col))
              << spec->name << " (" << row << ", " << col << ") on " << grid.describe();
        }
  });
}

std::string refusal(const ModelConfig& config, const FolderOptions& options) {
  const TemporaryPath folder;
  write_model(folder.path(), config, options);
  try {
    expect_loaded(config, folder.path(), {}, DType::f32);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Load, EveryElementArrivesOnEveryGridInEveryTypeAndForm) {
  for (const ModelFamily family : {ModelFamily::gpt, ModelFamily::llama, ModelFamily::opt}) {
    const bool gpt = family == ModelFamily::gpt;
    for (const FolderOptions& options :
         {FolderOptions{}, FolderOptions{.type = StoredType::f16, .shards = true},
          FolderOptions{.type = StoredType::f32,
          .prefix = gpt ? "transformer." : "",
          .and_also = gpt ? "h.0.attn.bias" : "model.rotary_emb.inv_freq"}}) {
      const TemporaryPath folder;
      write_model(folder.path(), model_to_load(family), options);
      for (const GridShape& shape :
           {GridShape{1, 1, 1, 1}, GridShape{2, 2, 2, 1}, GridShape{1, 2, 1, 2},
            GridShape{6, 1, 1, 1}, GridShape{5, 1, 1, 1}, GridShape{8, 1, 2, 1}})
        expect_loaded(model_to_load(family), folder.path(), shape, DType::f32);
    }
  }
}

TEST(Load, FrozenWeightsAreReadIntoTheirComputeCopies) {
  ModelConfig config = model_to_load(ModelFamily::llama);
  const TemporaryPath folder;
  write_model(folder.path(), config, {});
  config.lora.rank = 2;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    expect_loaded(config, folder.path(), {2, 1, 2, 1}, dtype);
}

TEST(Load, ApertusArrivesAndItsConstantsAreChecked) {
  ModelConfig config = model_to_load(ModelFamily::llama);
  config.qkv_bias = false;
  config.qk_norm = QkNormKind::head;
  config.activation = MlpKind::xielu;
  for (const StoredType type : {StoredType::bf16, StoredType::f16, StoredType::f32}) {
    const TemporaryPath folder;
    write_model(folder.path(), config, {.type = type});
    for (const GridShape& shape : {GridShape{1, 1, 1, 1}, GridShape{2, 2, 2, 1}})
      expect_loaded(config, folder.path(), shape, DType::f32);
  }
  // and_also writes (1, 2, 3) in place of one number.
  EXPECT_THAT(refusal(config, {.without = "model.layers.1.mlp.act_fn.eps",
                               .and_also = "model.layers.1.mlp.act_fn.eps"}),
              HasSubstr("model.layers.1.mlp.act_fn.eps is (3) BF16, wanted one number"));
  EXPECT_THAT(refusal(config, {.without = "model.layers.1.mlp.act_fn.alpha_n"}),
              HasSubstr("there is no model.layers.1.mlp.act_fn.alpha_n"));
  const TemporaryPath folder;
  const std::vector<float> values(1, 0.75f);
  write_safetensors(folder.path() + "/model.safetensors",
                    {{{.name = "layers.0.mlp.act_fn.beta", .type = StoredType::f32, .shape = {1}},
                      std::as_bytes(std::span(values))}});
  try {
    SafetensorsSource(SafetensorsFolder(folder.path()), {}, base_names(config));
    FAIL() << "another beta was accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("layers.0.mlp.act_fn.beta is 0.75, but models here have"));
  }
}

TEST(Load, AFolderThatDoesNotFitIsRejectedWithEveryMismatch) {
  const ModelConfig llama = model_to_load(ModelFamily::llama);
  EXPECT_THAT(refusal(llama, {.without = "model.norm.weight", .and_also = "model.extra"}),
              testing::AllOf(HasSubstr("there is no model.norm.weight"),
                             HasSubstr("model.extra (3) is not known")));
  const TemporaryPath folder;
  write_model(folder.path(), llama, {});
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

namespace {

using Values = std::map<std::string, std::vector<float>>;

/// Writes tensors (2, 3) in f32.
void write_pairs(const std::string& file, const Values& values) {
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, of] : values)
    tensors.push_back(
        {{.name = name, .type = StoredType::f32, .shape = {2, 3}}, std::as_bytes(std::span(of))});
  write_safetensors(file, tensors);
}

/// The files of a model whose config.json ties it, with these tensors.
ModelFiles tied_files(const std::string& folder, ModelFamily family, const Values& values) {
  std::filesystem::create_directories(folder);
  spill(folder + "/config.json",
        family == ModelFamily::llama
            ? R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 16,
                  "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 10,
                  "max_position_embeddings": 8, "tie_word_embeddings": true})"
        : family == ModelFamily::opt
            ? R"({"model_type": "opt", "hidden_size": 8, "ffn_dim": 16, "num_hidden_layers": 1,
                  "num_attention_heads": 2, "vocab_size": 10, "max_position_embeddings": 8})"
            : R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 8,
                  "vocab_size": 10})");
  write_pairs(folder + "/model.safetensors", values);
  return ModelFiles(folder);
}

}  // namespace

TEST(Load, AHeadWithOtherValuesThanTheEmbeddingIsNotTied) {
  const TemporaryPath path;
  const std::vector<float> table{1, 2, 3, 4, 5, 6}, other{1, 2, 3, 4, 5, 7};
  for (const auto& [family, name] : {std::pair{ModelFamily::llama, "model.embed_tokens.weight"},
                                     {ModelFamily::llama, "embed_tokens.weight"},
                                     {ModelFamily::opt, "model.decoder.embed_tokens.weight"},
                                     {ModelFamily::opt, "decoder.embed_tokens.weight"},
                                     {ModelFamily::gpt, "transformer.wte.weight"},
                                     {ModelFamily::gpt, "wte.weight"}}) {
    const ModelFiles own =
        tied_files(path / "own", family, {{name, table}, {"lm_head.weight", other}});
    EXPECT_FALSE(own.config().tied) << name;
    EXPECT_THAT(own.notes(),
                testing::ElementsAre(HasSubstr("an lm_head.weight with other values")));
    const ModelFiles same =
        tied_files(path / "same", family, {{name, table}, {"lm_head.weight", table}});
    EXPECT_TRUE(same.config().tied) << name;
    EXPECT_THAT(same.notes(), testing::IsEmpty());
    EXPECT_TRUE(tied_files(path / "none", family, {{name, table}}).config().tied) << name;
  }
}

TEST(Load, ATiedModelMayHaveItsEmbeddingAsTheHeadAlone) {
  for (const ModelFamily family : {ModelFamily::llama, ModelFamily::gpt}) {
    ModelConfig untied = model_to_load(family), tied = untied;
    untied.tied = false;
    tied.tied = true;
    const std::string embedding =
        family == ModelFamily::llama ? "model.embed_tokens.weight" : "wte.weight";
    const TemporaryPath folder;
    write_model(folder.path(), untied, {.without = embedding});
    std::vector<StoredParameter> parameters;
    for (const ParameterSpec& spec : parameters_of(tied))
      parameters.push_back({spec.name, spec.layout.rows, spec.layout.cols});
    SafetensorsSource source(SafetensorsFolder(folder.path()), parameters, base_names(tied));
    std::array<float, 3> first{};
    source.read_slice(embedding, {.rows = 101, .cols = 48, .end = 3}, first);
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_EQ(first[i], value_of("lm_head.weight", static_cast<std::int64_t>(i)));
  }
}

TEST(Load, AWholeFileIsTakenBeforeAnIndexThatIsLeftOverAndShardsAreReadWhole) {
  const TemporaryPath path;
  const std::vector<float> whole{1, 1, 1, 1, 1, 1}, shard{2, 2, 2, 2, 2, 2};
  const std::string index = R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})";
  const ModelFiles files = tied_files(path / "both", ModelFamily::llama, {{"a", whole}});
  write_pairs(path / "both/model-00001-of-00001.safetensors", {{"a", shard}, {"b", shard}});
  spill(path / "both/model.safetensors.index.json", index);
  const SafetensorsFolder both(path / "both");
  EXPECT_EQ(both.tensors().size(), 1u);
  EXPECT_EQ(both.find("a").file->path(), path / "both/model.safetensors");
  EXPECT_THAT(ModelFiles(path / "both").notes(),
              testing::ElementsAre(HasSubstr("model.safetensors.index.json is not read")));
  std::filesystem::remove(path / "both/model.safetensors");
  EXPECT_EQ(SafetensorsFolder(path / "both").tensors().size(), 2u) << "the index lists one";
}
