#include "axonn/text/chat/chat_template.h"

#include "axonn/base/check.h"
#include "axonn/base/utf8.h"

namespace axonn {

namespace {

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

/// Writes chatml and llama3, in which every turn has a header and an end.
void ChatTemplate::turns(std::span<const Message> messages, Writer& to) const {
  const bool chatml = format_.kind == ChatKind::chatml;
  const auto turn = [&](const Message& message, std::string_view words) {
    const bool learned = is_assistant(message);
    to.sign(open_);
    to.text(message.role + (chatml ? "\n" : ""));
    to.sign(close_);
    if (!chatml) to.text("\n\n");
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

ChatTemplate::Rendered ChatTemplate::render(std::span<const Message> messages) const {
  if (const std::string why = fault(messages, false); !why.empty()) refuse(why);
  Writer to(*tokenizer_);
  if (format_.kind == ChatKind::llama2)
    llama2(messages, to);
  else
    turns(messages, to);
  return to.take();
}

std::vector<std::int32_t> ChatTemplate::prompt(std::span<const Message> messages) const {
  if (const std::string why = fault(messages, true); !why.empty()) refuse(why);
  Writer to(*tokenizer_);
  if (format_.kind == ChatKind::llama2) {
    llama2(messages, to);
    return to.take().tokens;
  }
  turns(messages, to);
  const bool chatml = format_.kind == ChatKind::chatml;
  to.sign(open_);
  to.text(chatml ? "assistant\n" : "assistant");
  to.sign(close_);
  if (!chatml) to.text("\n\n");
  return to.take().tokens;
}

std::string ChatTemplate::fingerprint() const {
  return concat(static_cast<int>(format_.kind), format_.begins, '|', format_.preamble, '|',
                format_.default_system);
}

}  // namespace axonn
