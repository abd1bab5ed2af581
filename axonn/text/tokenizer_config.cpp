#include "axonn/text/tokenizer_config.h"

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/mapped_file.h"

namespace axonn {

namespace {

using nlohmann::json;

/// The characters of a token, which is a string or an object with the string in "content".
std::string token_at(const json& config, const char* key, const std::string& path) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string())
    return (*found)["content"].get<std::string>();
  refuse(path, ": ", key, ": wanted a string, or an object with \"content\"");
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  const std::string path =
      folder.empty() ? "tokenizer_config.json" : folder + "/tokenizer_config.json";
  TokenizerConfig result;
  if (!path_exists(path)) return result;
  const MappedFile file(path);
  const auto config = json::parse(file.text(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) refuse(path, ": this is not a JSON object; is the file whole?");
  if (const auto found = config.find("tokenizer_class");
      found != config.end() && found->is_string())
    result.tokenizer_class = found->get<std::string>();
  if (const auto found = config.find("add_bos_token"); found != config.end() && !found->is_null()) {
    if (!found->is_boolean()) refuse(path, ": add_bos_token: wanted true or false");
    result.adds_begin = found->get<bool>();
  }
  result.begin_of_text = token_at(config, "bos_token", path);
  result.end_of_text = token_at(config, "eos_token", path);
  return result;
}

}  // namespace axonn
