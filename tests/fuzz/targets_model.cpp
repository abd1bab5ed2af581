// Readers of models: safetensors, checkpoints and configs.
#include <array>
#include <cstring>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/data/storage/safetensors/safetensors.h"
#include "axonn/data/text/gguf_text.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/gguf_file.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/validate.h"

#include "tests/fuzz/targets.h"
#include "tests/support/data_files.h"

namespace axonn::fuzz {

namespace {

void read_everything(const SafetensorsFile& file) {
  std::array<std::byte, 64> some;
  for (const SafetensorsEntry& entry : file.header().entries) {
    AXONN_CHECK(entry.bytes() >= 0, entry.name, " has ", entry.bytes(), " bytes");
    const auto count = std::min<std::int64_t>(entry.bytes(), std::ssize(some));
    file.read(entry, entry.bytes() - count, std::span(some).first(count));
  }
}

/// A safetensors file with this header and data.
std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

}  // namespace

void gguf_file(std::string_view input) {
  const test::TempFolder folder;
  const GgufFile file(folder.file("a.gguf", std::string(input)));
  read_gguf_text(file);
  if (has_tokenizer(file)) read_gguf_vocab(file);
}

std::vector<std::string> gguf_seeds() {
  const auto word = [](std::uint64_t value, std::size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&value), bytes);
  };
  const auto text = [&](const std::string& of) { return word(of.size(), 8) + of; };
  const auto list = [&](std::uint32_t type, std::uint64_t count) {
    return word(9, 4) + word(type, 4) + word(count, 8);
  };
  const std::string begin = "GGUF" + word(3, 4),
                    tokens = text("tokenizer.ggml.tokens") + list(8, 2) + text("a") + text("b"),
                    model = text("tokenizer.ggml.model") + word(8, 4) + text("gpt2"),
                    words = text("tokenizer.ggml.pre") + word(8, 4) + text("gpt-2"),
                    end = text("tokenizer.ggml.eos_token_id") + word(4, 4) + word(1, 4),
                    tensor = text("w") + word(1, 4) + word(32, 8) + word(8, 4) + word(0, 8);
  const std::string whole =
      begin + word(1, 8) + word(4, 8) + tokens + model + words + end + tensor + std::string(64, 0);
  return {whole,
          begin + word(0, 8) + word(0, 8),
          begin + word(~0ULL, 8) + word(1, 8),
          begin + word(0, 8) + word(1, 8) + text("k") + list(8, ~0ULL),
          begin + word(0, 8) + word(1, 8) + text("k") + list(9, 1) + word(9, 4),
          "GGUF" + word(1, 4),
          "GG"};
}

void safetensors_file(std::string_view input) {
  const test::TempFolder folder;
  read_everything(SafetensorsFile(folder.file("a.safetensors", std::string(input))));
}

std::vector<std::string> safetensors_seeds() {
  const std::string one = R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";
  return {file_of(one, "12345678"), file_of("{}", ""),
          file_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[],)"
                  R"("data_offsets":[0,2]},"b":{"dtype":"I64","shape":[0,3],)"
                  R"("data_offsets":[2,2]}}  )",
                  "12"),
          // A truncated file, a header longer than the file, overlaps, huge and negative shapes.
          file_of(one, "1234"), file_of(one, "12345678").substr(0, 30),
          file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                  R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                  "123"),
          file_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],)"
                  R"("data_offsets":[0,0]}})",
                  ""),
          file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234")};
}

/// Input: the index and two shards; with an empty index, only the first shard.
void safetensors_folder(std::string_view input) {
  const test::TempFolder folder;
  const auto parts = parts_of(input, 3);
  if (!parts[0].empty()) folder.file("model.safetensors.index.json", parts[0]);
  folder.file(parts[0].empty() ? "model.safetensors" : "a.safetensors", parts[1]);
  folder.file("b.safetensors", parts[2]);
  const SafetensorsFolder opened(folder.path());
  AXONN_CHECK(!opened.find("no such tensor").entry, "a folder is wrong");
}

std::vector<std::string> safetensors_folder_seeds() {
  const auto shard = [](const std::string& name) {
    return file_of(R"({")" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1");
  };
  const std::string separator(kSeparator);
  return {
      R"({"metadata":{"total_size":2},"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})" +
          separator + shard("a") + separator + shard("b"),
      separator + shard("a"),
      R"({"weight_map":{"a":"a.safetensors","a":"b.safetensors"}})" + separator + shard("a"),
      R"({"weight_map":{"a":"../a.safetensors"}})", R"({"weight_map":[[[["a"]]]]})"};
}

/// Adds a right checksum to the input, so that the checks after the checksum are reached.
void checkpoint_index(std::string_view input) {
  const std::string body(input);
  const CheckpointIndex index =
      parse_index(body + ",\n\"xxh3\": \"" + hex_of(xxh3(body)) + "\"}\n", "index.json");
  AXONN_CHECK(parse_index(to_text(index), "index.json") == index,
              "an index changes when it is written and read");
  parse_index(input, "index.json");
}

std::vector<std::string> checkpoint_index_seeds() {
  CheckpointIndex index{.step = 2,
                        .ranks = 1,
                        .kinds = {"master"},
                        .parameters = {{"a", 3, 2}},
                        .texts = {{"state.json", {5, 7}}},
                        .files = {{"r", 24, {1}, {{{{0, {0, 3, 0, 2, 0, 6}}}, {{"master", 0}}}}}}};
  const std::string text = to_text(index);
  return {text.substr(0, text.rfind(",\n\"xxh3\"")), text};
}

void model_config(std::string_view input) { parse_hugging_face_config(input, "config.json"); }

std::vector<std::string> model_config_seeds() {
  return {R"({"model_type":"gpt2","n_layer":2,"n_embd":8,"n_head":2,"vocab_size":9,)"
          R"("n_positions":4})",
          R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":8,"num_attention_heads":2,)"
          R"("num_key_value_heads":1,"intermediate_size":16,"vocab_size":9,)"
          R"("max_position_embeddings":4,"rope_scaling":{"rope_type":"llama3","factor":8.0,)"
          R"("low_freq_factor":1.0,"high_freq_factor":4.0,)"
          R"("original_max_position_embeddings":2}})",
          R"({"model_type":"qwen3","num_hidden_layers":2,"hidden_size":8,"num_attention_heads":2,)"
          R"("intermediate_size":16,"vocab_size":9,"max_position_embeddings":4,"head_dim":4,)"
          R"("rope_parameters":{"rope_theta":1e6,"rope_type":"default"},"sliding_window":null,)"
          R"("layer_types":["full_attention","full_attention"],"use_sliding_window":false})"};
}

void toml_config(std::string_view input) {
  Config config;
  OptionList list;
  list_options(config, list);
  Origins origins;
  read_toml_text(list, input, "train.toml", origins);
  validate(config);
  warnings(config, origins);
  const std::string written = config_toml(resolved(config), origins);
  Config again;
  OptionList again_list;
  list_options(again, again_list);
  Origins again_origins;
  read_toml_text(again_list, written, "config.toml", again_origins);
}

}  // namespace axonn::fuzz
