#include "axonn/data/corpus/preferences/answer_lines.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "axonn/data/corpus/files/line_keys.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

constexpr std::array<const char*, 3> kOfConversations{"tools", "documents", "chat_template_kwargs"};

/// Marks the first tokens as not learned.
void mark_prompt(std::size_t count, std::vector<std::int32_t>& coded) {
  for (std::size_t i = 0; i < count; ++i) coded[i] = ~coded[i];
}

std::vector<std::int32_t> encode_text(const Tokenizer& tokenizer, const TextAnswer& text) {
  const std::vector<std::int32_t> prompt = tokenizer.encode_prompt(text.prompt);
  std::vector<std::int32_t> coded = tokenizer.encode_prompt(text.prompt + text.answer);
  const auto end = tokenizer.end_of_text();
  if (end && (coded.empty() || coded.back() != *end)) coded.push_back(*end);
  mark_prompt(std::ranges::mismatch(prompt, coded).in1 - prompt.begin(), coded);
  return coded;
}

std::vector<std::int32_t> encode_messages(const ChatTemplate& chat, const MessageAnswer& answer,
                                          const std::string& location) {
  Conversation talk = answer.talk;
  if (talk.text(answer.prompt, "role") != "assistant")
    refuse(location, ": message ", answer.prompt + 1, ", with which an answer begins, is not the ",
           "assistant's");
  for (std::size_t i = 0; i < answer.prompt; ++i)
    if (talk.text(i, "role") == "assistant") talk.not_learned.push_back(i);
  ChatTemplate::Rendered rendered = chat.render(talk, location);
  mark_prompt(std::ranges::find(rendered.learned, true) - rendered.learned.begin(),
              rendered.tokens);
  return std::move(rendered.tokens);
}

/// The conversation of the prompt's messages and an answer's, as if a line had them.
Conversation joined_messages(Members& line, const List& prompt, const List& answer,
                             const std::string& location) {
  List all = prompt;
  all.items.insert(all.items.end(), answer.items.begin(), answer.items.end());
  Dict object;
  object.set("messages", std::move(all));
  for (const char* key : kOfConversations)
    if (const Value* found = line.find(key)) object.set(key, *found);
  // Parsed again, so that every text has its message as its origin.
  const Value parsed = *parse_chat_json(jinja::to_json(object, {}).bytes());
  return Conversation::parse(*parsed.dict(), location);
}

}  // namespace

std::vector<std::int32_t> encode_answer(const AnswerFormat& format, const Answer& answer,
                                        const std::string& location) {
  if (const TextAnswer* text = std::get_if<TextAnswer>(&answer))
    return encode_text(*format.tokenizer, *text);
  AXONN_CHECK(format.chat, location, ": messages without a chat template");
  return encode_messages(*format.chat, std::get<MessageAnswer>(answer), location);
}

std::size_t prompt_size(const std::vector<std::int32_t>& coded) {
  return std::ranges::find_if(coded, [](std::int32_t token) { return token >= 0; }) - coded.begin();
}

std::string string_in_answers(Members& line, const char* key, const std::string& location) {
  const Value* found = line.find(key);
  if (found && found->list())
    refuse(location, ": \"", key,
           "\" is a list, and not all others are; all must be strings, or all ",
           "lists of messages");
  if (found && !found->text()) refuse(location, ": \"", key, "\" is not a string");
  return found ? found->text()->bytes() : "";
}

List messages_in_answers(Members& line, const char* key, const std::string& location) {
  const Value* found = line.find(key);
  if (found && !found->list())
    refuse(location, ": \"", key, "\" is not a list of messages, as the others are; all must be ",
           "lists, or strings");
  return found ? *found->list() : List{};
}

MessageAnswer join_answer(Members& line, const List& prompt, const List& answer,
                          const AnswerLocation& at, std::vector<std::string>& unread) {
  const std::string location = concat(at.location, ": prompt and \"", at.key, '"');
  Conversation talk = joined_messages(line, prompt, answer, location);
  talk.bytes = at.bytes;
  std::ranges::copy(read_message_keys(talk, location), std::back_inserter(unread));
  if (!talk.not_learned.empty())
    refuse(location,
           ": a message says that it is not learned (\"weight\" 0 or \"train\" false); of ",
           "pairs and labelled answers, all that follows the prompt is, so leave the key out");
  talk.normalize();
  return {.talk = std::move(talk), .prompt = prompt.items.size()};
}

}  // namespace axonn
