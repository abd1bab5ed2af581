#include "axonn/text/chat/chat_format.h"

#include <filesystem>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/json_node.h"
#include "axonn/base/mapped_file.h"

namespace axonn {

namespace fs = std::filesystem;

namespace {

// The default dates of the published templates of Llama 3.1 and 3.2.
constexpr const char* kDates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

/// A template and the file that holds it; the text is empty if there is none.
struct TemplateFile {
  std::string path, text;
};

/// The template in a JSON value: a string, or in a list of {"name", "template"} the one named
/// "default".
std::string template_in(const JsonNode& node) {
  if (!node.is_array()) return node.text();
  for (const JsonNode& each : node.items())
    if (each["name"].text_or("") == "default") return each["template"].text();
  node.reject("wanted a string, or a list with an entry named \"default\"");
}

TemplateFile read_template(const std::string& folder) {
  const std::string jinja = folder + "/chat_template.jinja",
                    config = folder + "/tokenizer_config.json";
  if (path_exists(jinja)) return {jinja, std::string(MappedFile(jinja).text())};
  if (!path_exists(config)) return {};
  const MappedFile file(config);
  const JsonNode found = JsonNode::parse(file.text(), config)["chat_template"];
  if (found.is_null()) return {};
  return {config, template_in(found)};
}

/// The default system message of a ChatML template such as Qwen's: the words that it writes between
/// the markers as one string.
std::string default_system_in(const std::string& text) {
  const std::string before = "<|im_start|>system\\n";
  for (std::size_t at = text.find(before); at != text.npos; at = text.find(before, at + 1)) {
    const std::size_t begin = at + before.size(), end = text.find("<|im_end|>", begin);
    if (end == text.npos) break;
    const std::string words = text.substr(begin, end - begin);
    if (!words.empty() && words.find_first_of("'\"{}\\") == words.npos) return words;
  }
  return {};
}

ChatFormat recognise(const TemplateFile& file) {
  const auto has = [&](const char* sign) { return file.text.find(sign) != file.text.npos; };
  if (has("<|start_header_id|>") && has("<|end_header_id|>") && has("<|eot_id|>"))
    return {.kind = ChatKind::llama3, .preamble = has("Cutting Knowledge Date") ? kDates : ""};
  if (has("<|im_start|>") && has("<|im_end|>"))
    return {.kind = ChatKind::chatml,
            .begins = has("bos_token"),
            .default_system = default_system_in(file.text)};
  if (has("[INST]") && has("<<SYS>>")) return {.kind = ChatKind::llama2};
  refuse(file.path, " has a chat template that is not recognised; if the model also reads one of ",
         kChatTemplates, ", name it in data.chat_template");
}

}  // namespace

ChatFormat find_chat_format(const std::string& name, const std::string& tokenizer) {
  if (name == "chatml") return {.kind = ChatKind::chatml, .begins = false};
  if (name == "llama3") return {.kind = ChatKind::llama3};
  if (name == "llama3.1") return {.kind = ChatKind::llama3, .preamble = kDates};
  if (name == "llama2") return {.kind = ChatKind::llama2};
  if (name != "auto")
    refuse("data.chat_template = \"", name, "\" is unknown; use auto, or one of ", kChatTemplates);
  if (tokenizer == "bytes") return {.kind = ChatKind::chatml, .begins = false};
  const std::string folder =
      is_folder(tokenizer) ? tokenizer : fs::path(tokenizer).parent_path().string();
  const TemplateFile file = read_template(folder.empty() ? "." : folder);
  if (file.text.empty())
    refuse(tokenizer, " has no chat template (chat_template.jinja, or chat_template in ",
           "tokenizer_config.json); name one in data.chat_template: ", kChatTemplates);
  return recognise(file);
}

}  // namespace axonn
