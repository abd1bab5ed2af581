#include "axonn/text/tokenizer_config.h"

#include <filesystem>

#include "axonn/base/files.h"
#include "axonn/base/json_node.h"

namespace axonn {

namespace {

/// The characters of a token, which is a string or an object with the string in "content".
std::string token_at(const JsonNode& node) {
  return node.is_object() ? node["content"].text() : node.text_or("");
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  const std::string path = std::filesystem::path(folder) / "tokenizer_config.json";
  TokenizerConfig result;
  if (!path_exists(path)) return result;
  const TextFile file(path);
  const JsonNode config = JsonNode::parse(file.text(), path);
  result.tokenizer_class = config["tokenizer_class"].text_or("");
  if (const JsonNode adds = config["add_bos_token"]; !adds.is_null())
    result.adds_begin = adds.flag_or(false);
  result.begin_of_text = token_at(config["bos_token"]);
  result.end_of_text = token_at(config["eos_token"]);
  return result;
}

}  // namespace axonn
