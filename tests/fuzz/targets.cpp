#include "tests/fuzz/targets.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "axonn/foundation/base/check.h"

#include "tests/fuzz/memory.h"

namespace axonn::fuzz {

namespace {

constexpr std::int64_t kMiB = 1 << 20;
// A compressed file may ask for a window of 2 GiB, as zstd --long=31 makes.
constexpr std::int64_t kDecompression = 2100 * kMiB;

}  // namespace

std::span<const Target> targets() {
  // Tokenizers have word caches, and SentencePiece and PCRE2 tables; the last keeps six tokenizers.
  static const std::array kTargets{
      Target{.name = "safetensors_file", .run = safetensors_file, .seeds = safetensors_seeds},
      Target{.name = "safetensors_folder",
             .run = safetensors_folder,
             .seeds = safetensors_folder_seeds},
      Target{.name = "gguf_file",
             .run = gguf_file,
             .base_bytes = 8 * kMiB,
             .bytes_per_byte = 512,
             .seeds = gguf_seeds},
      Target{.name = "checkpoint_index", .run = checkpoint_index, .seeds = checkpoint_index_seeds},
      Target{.name = "model_config", .run = model_config, .seeds = model_config_seeds},
      Target{.name = "toml_config", .run = toml_config, .bytes_per_byte = 512},
      Target{.name = "llmc_tokens", .run = llmc_tokens, .seeds = llmc_seeds},
      Target{.name = "megatron_tokens", .run = megatron_tokens, .seeds = megatron_seeds},
      Target{.name = "compressed_text",
             .run = compressed_text,
             .base_bytes = kDecompression,
             .seeds = compressed_text_seeds},
      // A page may say that it has 1 GiB.
      Target{.name = "parquet_rows", .run = parquet_rows, .base_bytes = 1100 * kMiB},
      Target{.name = "csv_rows", .run = csv_rows, .base_bytes = kDecompression, .seeds = csv_seeds},
      Target{.name = "choice_questions", .run = choice_questions},
      Target{.name = "tokenizer_config", .run = tokenizer_config},
      Target{.name = "model_text", .run = model_text},
      Target{.name = "tokenizer_json",
             .run = tokenizer_json,
             .base_bytes = 8 * kMiB,
             .bytes_per_byte = 512,
             .seeds = tokenizer_json_seeds},
      Target{.name = "tokenizer_model",
             .run = tokenizer_model,
             .base_bytes = 8 * kMiB,
             .bytes_per_byte = 512,
             .seeds = tokenizer_model_seeds},
      Target{.name = "vocab_and_merges",
             .run = vocab_and_merges,
             .base_bytes = 8 * kMiB,
             .bytes_per_byte = 512,
             .seeds = vocab_and_merges_seeds},
      Target{"encode_and_decode", encode_and_decode, 64 * kMiB, 512},
      // Rendering may take 16 MiB of values, and half as much again for their nodes and copies.
      Target{.name = "chat_template",
             .run = chat_template,
             .base_bytes = 64 * kMiB,
             .bytes_per_byte = 4096,
             .seeds = chat_template_seeds},
      // A conversation is rendered, and its texts become tokens.
      Target{.name = "api_request",
             .run = api_request,
             .base_bytes = 8 * kMiB,
             .bytes_per_byte = 512,
             .seeds = api_request_seeds},
      Target{.name = "http_request", .run = http_request, .seeds = http_request_seeds}};
  return kTargets;
}

std::vector<std::string> parts_of(std::string_view input, std::size_t count) {
  std::vector<std::string> parts;
  while (parts.size() + 1 < count) {
    const std::size_t end = std::min(input.find(kSeparator), input.size());
    parts.emplace_back(input.substr(0, end));
    input.remove_prefix(std::min(end + kSeparator.size(), input.size()));
  }
  parts.emplace_back(input);
  return parts;
}

void run(const Target& target, std::string_view input) {
  most_held_bytes();
  const std::int64_t before = held_bytes();
  try {
    target.run(input);
  } catch (const UsageError&) {  // refused, as it should be
  }
  const std::int64_t took = most_held_bytes() - before,
                     allowed = target.base_bytes + target.bytes_per_byte * std::ssize(input);
  if (took > allowed)
    throw std::runtime_error(concat(target.name, ": took ", took,
                                    " bytes of memory for an input of ", input.size(), "; at most ",
                                    allowed, " are allowed"));
}

}  // namespace axonn::fuzz
