#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Fuzzing of the readers of foreign files and requests with arbitrary bytes. A reader may refuse
/// the bytes (UsageError). It must not crash, hang, fail in another way, or use more memory than
/// the target allows.
namespace axonn::fuzz {

struct Target {
  std::string_view name;
  void (*run)(std::string_view input);
  /// A run may hold at most base_bytes + bytes_per_byte * (size of the input) bytes at once.
  std::int64_t base_bytes = 1 << 20, bytes_per_byte = 64;
  /// The fuzzer's first inputs, in addition to the corpus.
  std::vector<std::string> (*seeds)() = [] { return std::vector<std::string>(); };
};

std::span<const Target> targets();

/// Separates the files in one input.
inline constexpr std::string_view kSeparator = "\n%%%%\n";

/// Splits an input into `count` parts; missing ones are empty, and the last one is the whole rest.
std::vector<std::string> parts_of(std::string_view input, std::size_t count);

/// Runs the target. Throws std::runtime_error if it used too much memory, and every exception of
/// the target except UsageError.
void run(const Target& target, std::string_view input);

// targets_*.cpp
void safetensors_file(std::string_view input);
void safetensors_folder(std::string_view input);
void gguf_file(std::string_view input);
void checkpoint_index(std::string_view input);
void model_config(std::string_view input);
void toml_config(std::string_view input);
void llmc_tokens(std::string_view input);
void megatron_tokens(std::string_view input);
void compressed_text(std::string_view input);
void csv_rows(std::string_view input);
void parquet_rows(std::string_view input);
void choice_questions(std::string_view input);
void tokenizer_config(std::string_view input);
void model_text(std::string_view input);
void tokenizer_json(std::string_view input);
void tokenizer_model(std::string_view input);
void vocab_and_merges(std::string_view input);
void encode_and_decode(std::string_view input);
void chat_template(std::string_view input);
void api_request(std::string_view input);
void http_request(std::string_view input);

std::vector<std::string> safetensors_seeds();
std::vector<std::string> safetensors_folder_seeds();
std::vector<std::string> gguf_seeds();
std::vector<std::string> checkpoint_index_seeds();
std::vector<std::string> model_config_seeds();
std::vector<std::string> llmc_seeds();
std::vector<std::string> megatron_seeds();
std::vector<std::string> compressed_text_seeds();
std::vector<std::string> csv_seeds();
std::vector<std::string> tokenizer_json_seeds();
std::vector<std::string> tokenizer_model_seeds();
std::vector<std::string> vocab_and_merges_seeds();
std::vector<std::string> chat_template_seeds();
std::vector<std::string> api_request_seeds();
std::vector<std::string> http_request_seeds();

}  // namespace axonn::fuzz
