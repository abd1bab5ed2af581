#include "axonn/text/chat/chat_template.h"

#include <filesystem>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/json_node.h"
#include "axonn/base/utf8.h"

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
  if (path_exists(jinja)) return {jinja, read_text(jinja)};
  if (!path_exists(config)) return {};
  const TextFile file(config);
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

constexpr EncodeOptions kText{.added_tokens = false, .continues = true};

/// Like Python's strip(), which the published templates call.
std::string_view stripped(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

bool is_assistant(const Message& message) { return message.role == "assistant"; }
bool is_system(const Message& message) { return message.role == "system"; }

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

/// Appends the pieces of a conversation.
class ChatTemplate::Writer {
 public:
  explicit Writer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void sign(std::span<const std::int32_t> tokens, bool learned = false) {
    rendered_.tokens.insert(rendered_.tokens.end(), tokens.begin(), tokens.end());
    rendered_.learned.resize(rendered_.tokens.size(), learned);
  }
  void text(std::string_view characters, bool learned = false, const EncodeOptions& how = kText) {
    tokenizer_.encode_into(characters, rendered_.tokens, how);
    rendered_.learned.resize(rendered_.tokens.size(), learned);
  }
  Rendered take() { return std::move(rendered_); }

 private:
  const Tokenizer& tokenizer_;
  Rendered rendered_;
};

ChatTemplate::ChatTemplate(std::shared_ptr<const Tokenizer> tokenizer, ChatFormat format)
    : tokenizer_(std::move(tokenizer)), format_(std::move(format)) {
  switch (format_.kind) {
    case ChatKind::chatml:
      open_ = sign("<|im_start|>");
      end_of_turn_ = sign("<|im_end|>");
      if (const auto begin = tokenizer_->begin_of_text(); begin && format_.begins)
        begin_ = {*begin};
      break;
    case ChatKind::llama3:
      begin_ = sign("<|begin_of_text|>");
      open_ = sign("<|start_header_id|>");
      close_ = sign("<|end_header_id|>");
      end_of_turn_ = sign("<|eot_id|>");
      break;
    case ChatKind::llama2:
      begin_ = sign("<s>");
      end_of_turn_ = sign("</s>");
  }
}

std::vector<std::int32_t> ChatTemplate::sign(std::string_view characters) const {
  if (const auto token = tokenizer_->added_token(characters)) return {*token};
  if (format_.kind != ChatKind::chatml)
    refuse("the tokenizer ", tokenizer_->name(), " has no token ", characters,
           ", which data.chat_template needs; choose another template (", kChatTemplates,
           "), or the model's own tokenizer");
  return tokenizer_->encode(characters, kText);
}

/// Writes chatml and llama3, in which every turn has a header and an end. `prompted`: ends with the
/// header of the assistant's next turn.
void ChatTemplate::turns(std::span<const Message> messages, bool prompted, Writer& to) const {
  const bool chatml = format_.kind == ChatKind::chatml;
  const auto header = [&](const std::string& role) {
    to.sign(open_);
    to.text(role + (chatml ? "\n" : ""));
    to.sign(close_);
    if (!chatml) to.text("\n\n");
  };
  const auto turn = [&](const Message& message, std::string_view words) {
    const bool learned = is_assistant(message);
    header(message.role);
    to.text(words, learned);
    to.sign(end_of_turn_, learned);
    if (chatml) to.text("\n");
  };
  to.sign(begin_);
  const bool has_system = !messages.empty() && is_system(messages.front());
  if (!has_system && !(format_.preamble + format_.default_system).empty())
    turn({"system", {}}, format_.preamble + format_.default_system);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string_view words = chatml ? messages[i].content : stripped(messages[i].content);
    if (i == 0 && has_system)
      turn(messages[i], concat(format_.preamble, words));
    else
      turn(messages[i], words);
  }
  if (prompted) header("assistant");
}

void ChatTemplate::llama2(std::span<const Message> messages, Writer& to) const {
  std::string system;
  for (const Message& message : messages) {
    if (is_system(message)) {
      system = concat("<<SYS>>\n", message.content, "\n<</SYS>>\n\n");
    } else if (is_assistant(message)) {
      to.text(concat(' ', stripped(message.content), ' '), true);
      to.sign(end_of_turn_, true);
    } else {
      const std::string words = system + message.content;
      to.sign(begin_);
      to.text(concat("[INST] ", stripped(words), " [/INST]"), false,
              {.added_tokens = false, .continues = false});
      system.clear();
    }
  }
}

std::string ChatTemplate::fault(std::span<const Message> messages, bool prompted) const {
  bool answered = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const std::string at = concat("message ", i + 1, " has the role '", printable(role), "'; ");
    if (role != "system" && role != "user" && role != "assistant")
      return at + "roles are system, user and assistant";
    if (role == "system" && i > 0) return at + "a system message must be the first";
    const bool user_before = i > 0 && messages[i - 1].role == "user";
    if (format_.kind == ChatKind::llama2 && role != "system" &&
        (role == "assistant") != user_before)
      return at + "in Llama 2's template user and assistant alternate, and the user begins";
    answered = answered || role == "assistant";
  }
  if (messages.empty()) return "the conversation has no messages";
  if (prompted && messages.back().role != "user")
    return concat("the last message is the ", messages.back().role, "'s; it must be the user's");
  if (!prompted && !answered) return "no message is the assistant's, so there is nothing to learn";
  return {};
}

ChatTemplate::Rendered ChatTemplate::write(std::span<const Message> messages, bool prompted) const {
  if (const std::string why = fault(messages, prompted); !why.empty()) refuse(why);
  Writer to(*tokenizer_);
  if (format_.kind == ChatKind::llama2)
    llama2(messages, to);
  else
    turns(messages, prompted, to);
  return to.take();
}

std::string ChatTemplate::fingerprint() const {
  return concat(static_cast<int>(format_.kind), format_.begins, '|', format_.preamble, '|',
                format_.default_system);
}

}  // namespace axonn
