#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Readers of files that others wrote, given arbitrary bytes. A reader may refuse them
/// (UsageError); it may not crash, hang, fail in another way, or take more memory than they
/// justify.
namespace axonn::fuzz {

struct Target {
  std::string_view name;
  void (*run)(std::string_view input);
  /// The most memory that a run may hold at once: so much, and so much for each byte of the input.
  std::int64_t base_bytes = 1 << 20, bytes_per_byte = 64;
  /// What the fuzzer begins with, beside the corpus.
  std::vector<std::string> (*seeds)() = [] { return std::vector<std::string>(); };
};

std::span<const Target> targets();

/// What stands between the files that one input is made of.
inline constexpr std::string_view kSeparator = "\n%%%%\n";

/// The parts of an input; missing ones are empty, and the last one is all that is left.
std::vector<std::string> parts_of(std::string_view input, std::size_t count);

/// Runs the target. Errors: std::runtime_error if it took too much memory; whatever it throws
/// beside UsageError.
void run(const Target& target, std::string_view input);

// targets_*.cpp
void safetensors_file(std::string_view input);
void safetensors_folder(std::string_view input);
void checkpoint_index(std::string_view input);
void model_config(std::string_view input);
void toml_config(std::string_view input);
void llmc_tokens(std::string_view input);
void megatron_tokens(std::string_view input);
void choice_questions(std::string_view input);
void tokenizer_config(std::string_view input);
void tokenizer_json(std::string_view input);
void tokenizer_model(std::string_view input);
void vocab_and_merges(std::string_view input);
void encode_and_decode(std::string_view input);

std::vector<std::string> safetensors_seeds();
std::vector<std::string> safetensors_folder_seeds();
std::vector<std::string> checkpoint_index_seeds();
std::vector<std::string> model_config_seeds();
std::vector<std::string> llmc_seeds();
std::vector<std::string> megatron_seeds();
std::vector<std::string> tokenizer_json_seeds();
std::vector<std::string> tokenizer_model_seeds();
std::vector<std::string> vocab_and_merges_seeds();

}  // namespace axonn::fuzz
