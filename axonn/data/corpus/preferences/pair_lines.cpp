#include "axonn/data/corpus/preferences/pair_lines.h"

#include <algorithm>

#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/files/line_keys.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using jinja::List;
using jinja::Value;

constexpr const char* kPairLine =
    "a line of preferences has \"chosen\" and \"rejected\", and a \"prompt\" unless both begin "
    "with it";

[[noreturn]] void refuse_equal_answers(const std::string& location) {
  refuse(location,
         ": \"chosen\" and \"rejected\" are the same, so there is no preference; leave the ",
         "line out");
}

TextPair text_pair(Members& line, const std::string& location) {
  TextPair pair{.prompt = string_in_answers(line, "prompt", location),
                .chosen = string_in_answers(line, "chosen", location),
                .rejected = string_in_answers(line, "rejected", location)};
  if (pair.chosen == pair.rejected) refuse_equal_answers(location);
  if (line.peek("prompt")) return pair;
  const std::size_t shared = shared_prompt(pair.chosen, pair.rejected);
  pair.prompt = pair.chosen.substr(0, shared);
  pair.chosen.erase(0, shared);
  pair.rejected.erase(0, shared);
  return pair;
}

bool same_message(const Value& a, const Value& b) {
  return jinja::to_json(a, {}).bytes() == jinja::to_json(b, {}).bytes();
}

/// Whether a message's content is this text.
bool has_content(const Value& message, std::string_view text) {
  const Value* content = message.dict() ? message.dict()->find("content") : nullptr;
  return content && content->text() && content->text()->bytes() == text;
}

/// How many messages both answers begin with; each keeps one of its own.
std::ptrdiff_t shared_messages(const List& chosen, const List& rejected) {
  const auto differ = std::ranges::mismatch(chosen.items, rejected.items, same_message);
  return std::min({differ.in1 - chosen.items.begin(), std::ssize(chosen.items) - 1,
                   std::ssize(rejected.items) - 1});
}

MessagePair message_pair(Members& line, std::size_t bytes, const std::string& location,
                         std::vector<std::string>& unread) {
  const Value* text = line.find("prompt");  // beside messages that begin with it
  if (text && !text->text()) text = nullptr;
  List prompt = text ? List{} : messages_in_answers(line, "prompt", location);
  List chosen = messages_in_answers(line, "chosen", location),
       rejected = messages_in_answers(line, "rejected", location);
  if (chosen.items.empty() || rejected.items.empty())
    refuse(location, ": an answer has no messages; leave the line out");
  if (std::ranges::equal(chosen.items, rejected.items, same_message))
    refuse_equal_answers(location);
  if (prompt.items.empty()) {
    const std::ptrdiff_t shared = shared_messages(chosen, rejected);
    prompt.items.assign(chosen.items.begin(), chosen.items.begin() + shared);
    for (List* answer : {&chosen, &rejected})
      answer->items.erase(answer->items.begin(), answer->items.begin() + shared);
  }
  if (prompt.items.empty())
    refuse(location,
           ": \"chosen\" and \"rejected\" begin with no message that both have, and there ",
           "is no \"prompt\"; ", kPairLine);
  if (text && !has_content(prompt.items.back(), text->text()->bytes()))
    refuse(location, ": \"prompt\" is a string, but not the content of the last message that both ",
           "answers begin with; give the prompt as a list of messages");
  return {.chosen = join_answer(line, prompt, chosen, {"chosen", bytes, location}, unread),
          .rejected = join_answer(line, prompt, rejected, {"rejected", bytes, location}, unread)};
}

/// Throws UsageError if a line lacks an answer.
void want_answers(const Members& line, const std::string& location) {
  for (const char* key : {"chosen", "rejected"}) {
    if (line.peek(key)) continue;
    if (line.peek("completion") && line.peek("label"))
      refuse(location,
             ": this is an answer with a \"label\", of which the loss of pairs has no use; ",
             "set preference.loss = \"kto\", or give lines with \"chosen\" and \"rejected\"");
    refuse(location, ": there is no \"", key, "\"; ", kPairLine);
  }
}

}  // namespace

std::size_t shared_prompt(std::string_view chosen, std::string_view rejected) {
  std::size_t shared = std::ranges::mismatch(chosen, rejected).in1 - chosen.begin();
  const std::size_t shorter = std::min(chosen.size(), rejected.size());
  if (shared == shorter && shared > 0) --shared;  // the shorter one has an answer, too
  // A character of several bytes is not cut.
  const auto inside = [&](std::size_t at) {
    return at < chosen.size() && (static_cast<unsigned char>(chosen[at]) & 0xC0) == 0x80;
  };
  while (shared > 0 && inside(shared)) --shared;
  if (shared > 0 && chosen[shared - 1] == ' ') --shared;
  return shared;
}

AnswerPair parse_pair(std::string_view line, const std::string& location) {
  const Value value = parse_line(line, location);
  Members members(*value.dict());
  want_answers(members, location);
  refuse_pair_keys(members, location);
  AnswerPair pair;
  if (members.peek("chosen")->list() && members.peek("rejected")->list()) {
    pair.answers = message_pair(members, line.size(), location, pair.message_keys);
  } else {
    pair.answers = text_pair(members, location);
  }
  for (const std::string& name : members.unread())
    if (!is_harmless_key(name)) pair.line_keys.push_back(name);
  return pair;
}

std::array<Answer, 2> answers_of(const AnswerPair& pair) {
  if (const TextPair* texts = std::get_if<TextPair>(&pair.answers))
    return {TextAnswer{texts->prompt, texts->chosen}, TextAnswer{texts->prompt, texts->rejected}};
  const auto& [chosen, rejected] = std::get<MessagePair>(pair.answers);
  return {chosen, rejected};
}

CodedPair encode_pair(const AnswerFormat& format, const AnswerPair& pair,
                      const std::string& location) {
  const auto [chosen, rejected] = answers_of(pair);
  CodedPair coded{.chosen = encode_answer(format, chosen, location),
                  .rejected = encode_answer(format, rejected, location)};
  if (!std::holds_alternative<TextPair>(pair.answers)) return coded;
  // A prompt's last token may be another one in but one of the texts: both answers begin there.
  const std::size_t border = std::min(prompt_size(coded.chosen), prompt_size(coded.rejected));
  for (auto* one : {&coded.chosen, &coded.rejected})
    for (std::size_t i = prompt_size(*one); i > border; --i) (*one)[i - 1] = ~(*one)[i - 1];
  return coded;
}

}  // namespace axonn
