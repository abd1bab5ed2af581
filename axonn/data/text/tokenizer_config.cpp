#include "axonn/data/text/tokenizer_config.h"

#include <array>
#include <filesystem>
#include <string_view>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/json_node.h"

namespace axonn {

namespace {

/// Keys that change no tokens here, besides the names of special tokens.
constexpr std::array<std::string_view, 42> kHarmlessTokenizerKeys = {
    // Who wrote the file, with what, and from which files.
    "_name_or_path", "auto_map", "backend", "from_slow", "is_local", "local_files_only",
    "merges_file", "name_or_path", "processor_class", "special_tokens_map_file", "tokenizer_file",
    "transformers_version", "unsloth_fixed", "use_fast", "vocab_file",
    // Tokens, which tokenizer.json or tokenizer.model has, and names for them.
    "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens",
    "model_specific_special_tokens", "legacy",
    // Batches: how long they are, and how short texts are filled up.
    "max_len", "max_length", "model_input_names", "model_max_length", "pad_to_multiple_of",
    "pad_token_type_id", "padding", "padding_side", "return_token_type_ids", "stride",
    "trim_offsets", "truncation", "truncation_side", "truncation_strategy",
    // Changes to the text of decoded tokens.
    "clean_up_tokenization_spaces", "errors", "spaces_between_special_tokens",
    // Chats: chat_template.h reads the first, and what it does not read are its arguments.
    "chat_template", "response_schema", "use_default_system_prompt",
    // A token after each text, which trainings put between documents, and no prompt has.
    "add_eos_token",
    // Again what tokenizer.json has.
    "tokenizer_type"};

/// Keys that change tokens, and are not supported unless they are false or empty.
constexpr std::array<std::string_view, 3> kUnsupportedTokenizerKeys = {
    "do_lower_case", "sp_model_kwargs", "split_special_tokens"};

/// The characters of a token, which is a string or an object with the string in "content".
std::string token_at(const JsonNode& node) {
  if (!node.is_object()) return node.text_or("");
  // tokenizer.json has these, too.
  node.pass_over({"__type", "id", "lstrip", "normalized", "rstrip", "single_word", "special"});
  return node["content"].text();
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  const std::string path = std::filesystem::path(folder) / "tokenizer_config.json";
  TokenizerConfig result;
  if (!path_exists(path)) return result;
  const TextFile file(path);
  const JsonNode config = JsonNode::parse(file.text(), path);
  result.tokenizer_class = config["tokenizer_class"].text_or("");
  const auto flag = [&](const char* key) {
    const JsonNode node = config[key];
    return node.is_null() ? std::nullopt : std::optional(node.flag_or(false));
  };
  result.adds_begin = flag("add_bos_token");
  result.prefix_space = flag("add_prefix_space");
  result.begin_of_text = token_at(config["bos_token"]);
  result.end_of_text = token_at(config["eos_token"]);
  result.unknown = token_at(config["unk_token"]);
  result.padding = token_at(config["pad_token"]);
  for (const auto& [name, value] : config.members())
    if (name.ends_with("_token")) config.pass_over({name.c_str()});  // a name for a token
  std::string unread = config.unread(kHarmlessTokenizerKeys);
  for (const std::string_view key : kUnsupportedTokenizerKeys)
    if (unread.find(key) != unread.npos)
      refuse(path, ": ", key, " is not supported; remove it if it changes no tokens, or give the ",
             "model a tokenizer.json that does the same");
  if (!unread.empty()) result.notes.push_back(concat(path, ": not followed: ", unread));
  return result;
}

}  // namespace axonn
