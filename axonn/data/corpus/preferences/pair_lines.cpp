#include "axonn/data/corpus/preferences/pair_lines.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "axonn/data/corpus/jsonl.h"
#include "axonn/data/corpus/line_keys.h"
#include "axonn/data/corpus/text_reader.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"

namespace axonn {

namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

constexpr const char* kPairLine =
    "a line of preferences has \"chosen\" and \"rejected\", and a \"prompt\" unless both begin "
    "with it";
constexpr std::array<const char*, 3> kOfConversations{"tools", "documents", "chat_template_kwargs"};

/// The string under a key; "" if it is missing.
std::string string_in_pair(Members& line, const char* key, const std::string& place) {
  const Value* found = line.find(key);
  if (found && found->list())
    refuse(place, ": \"", key, "\" is a list, and not all others are; all must be strings, or all ",
           "lists of messages");
  if (found && !found->text()) refuse(place, ": \"", key, "\" is not a string");
  return found ? found->text()->bytes() : "";
}

/// The messages under a key; none if it is missing.
List messages_in_pair(Members& line, const char* key, const std::string& place) {
  const Value* found = line.find(key);
  if (found && !found->list())
    refuse(place, ": \"", key, "\" is not a list of messages, as the others are; all must be ",
           "lists, or strings");
  return found ? *found->list() : List{};
}

[[noreturn]] void refuse_equal_answers(const std::string& place) {
  refuse(place, ": \"chosen\" and \"rejected\" are the same, so there is no preference; leave the ",
         "line out");
}

TextPair text_pair(Members& line, const std::string& place) {
  TextPair pair{.prompt = string_in_pair(line, "prompt", place),
                .chosen = string_in_pair(line, "chosen", place),
                .rejected = string_in_pair(line, "rejected", place)};
  if (pair.chosen == pair.rejected) refuse_equal_answers(place);
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

/// The place of a fault in one of a line's conversations.
std::string place_of(const std::string& place, const char* answer) {
  return concat(place, ": prompt and \"", answer, '"');
}

/// The conversation of the prompt's messages and an answer's, as if a line had them.
Conversation joined_messages(const Members& line, const List& prompt, const List& answer,
                             const std::string& place) {
  List all = prompt;
  all.items.insert(all.items.end(), answer.items.begin(), answer.items.end());
  Dict object;
  object.set("messages", std::move(all));
  for (const char* key : kOfConversations)
    if (const Value* found = line.peek(key)) object.set(key, *found);
  // Parsed again, so that every text has its message as its origin.
  const Value parsed = *parse_chat_json(jinja::to_json(object, {}).bytes());
  return Conversation::parse(*parsed.dict(), place);
}

/// Reads what a message says of itself. Refuses answers that are not learned as a whole.
std::vector<std::string> finish(Conversation& talk, std::size_t bytes, const std::string& place) {
  talk.bytes = bytes;
  std::vector<std::string> others = read_message_keys(talk, place);
  if (!talk.not_learned.empty())
    refuse(place, ": a message says that it is not learned (\"weight\" 0 or \"train\" false); of ",
           "pairs, all that follows the prompt is, so leave the key out");
  talk.normalize();
  return others;
}

MessagePair message_pair(Members& line, const std::string& place) {
  const Value* text = line.find("prompt");  // beside messages that begin with it
  if (text && !text->text()) text = nullptr;
  List prompt = text ? List{} : messages_in_pair(line, "prompt", place);
  List chosen = messages_in_pair(line, "chosen", place),
       rejected = messages_in_pair(line, "rejected", place);
  if (chosen.items.empty() || rejected.items.empty())
    refuse(place, ": an answer has no messages; leave the line out");
  if (std::ranges::equal(chosen.items, rejected.items, same_message)) refuse_equal_answers(place);
  if (prompt.items.empty()) {
    const std::ptrdiff_t shared = shared_messages(chosen, rejected);
    prompt.items.assign(chosen.items.begin(), chosen.items.begin() + shared);
    for (List* answer : {&chosen, &rejected})
      answer->items.erase(answer->items.begin(), answer->items.begin() + shared);
  }
  if (prompt.items.empty())
    refuse(place, ": \"chosen\" and \"rejected\" begin with no message that both have, and there ",
           "is no \"prompt\"; ", kPairLine);
  if (text && !has_content(prompt.items.back(), text->text()->bytes()))
    refuse(place, ": \"prompt\" is a string, but not the content of the last message that both ",
           "answers begin with; give the prompt as a list of messages");
  for (const char* key : kOfConversations) line.find(key);
  return {.chosen = joined_messages(line, prompt, chosen, place_of(place, "chosen")),
          .rejected = joined_messages(line, prompt, rejected, place_of(place, "rejected")),
          .prompt = prompt.items.size()};
}

/// Appends the end-of-text token unless the tokens end with it.
void add_end(const Tokenizer& tokenizer, std::vector<std::int32_t>& tokens) {
  const auto end = tokenizer.end_of_text();
  if (end && (tokens.empty() || tokens.back() != *end)) tokens.push_back(*end);
}

std::size_t shared_tokens(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

/// Marks the first tokens as not learned.
void mark_prompt(std::size_t count, std::vector<std::int32_t>& coded) {
  for (std::size_t i = 0; i < count; ++i) coded[i] = ~coded[i];
}

CodedPair encode_texts(const Tokenizer& tokenizer, const TextPair& pair) {
  const std::vector<std::int32_t> prompt = tokenizer.encode_prompt(pair.prompt);
  CodedPair coded{.chosen = tokenizer.encode_prompt(pair.prompt + pair.chosen),
                  .rejected = tokenizer.encode_prompt(pair.prompt + pair.rejected)};
  add_end(tokenizer, coded.chosen);
  add_end(tokenizer, coded.rejected);
  const std::size_t border =
      std::min(shared_tokens(prompt, coded.chosen), shared_tokens(prompt, coded.rejected));
  mark_prompt(border, coded.chosen);
  mark_prompt(border, coded.rejected);
  return coded;
}

/// The tokens of a conversation of which only what follows the first `prompt` messages is learned.
std::vector<std::int32_t> encode_answer(const ChatTemplate& chat, Conversation talk,
                                        std::size_t prompt, const std::string& place) {
  if (talk.text(prompt, "role") != "assistant")
    refuse(place, ": message ", prompt + 1, ", with which an answer begins, is not the ",
           "assistant's");
  for (std::size_t i = 0; i < prompt; ++i)
    if (talk.text(i, "role") == "assistant") talk.not_learned.push_back(i);
  ChatTemplate::Rendered rendered = chat.render(talk, place);
  mark_prompt(std::ranges::find(rendered.learned, true) - rendered.learned.begin(),
              rendered.tokens);
  return std::move(rendered.tokens);
}

/// Encodes the pair of a line, which must be of the kind that the format is for.
CodedPair encode_line(const PairFormat& format, const Line& line) {
  const AnswerPair pair = parse_pair(line.text, line.place);
  if (std::holds_alternative<MessagePair>(pair.answers) != format.chat.has_value())
    refuse(line.place, ": the answers of this line are ",
           format.chat ? "strings, those of the first one lists of messages"
                       : "lists of messages, those of the first one strings",
           "; put each kind into separate files and runs");
  return encode_pair(format, pair, line.place);
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

AnswerPair parse_pair(std::string_view line, const std::string& place) {
  const Value value = parse_line(line, place);
  Members members(*value.dict());
  for (const char* key : {"chosen", "rejected"})
    if (!members.peek(key)) refuse(place, ": there is no \"", key, "\"; ", kPairLine);
  refuse_pair_keys(members, place);
  AnswerPair pair;
  if (members.peek("chosen")->list() && members.peek("rejected")->list()) {
    MessagePair talks = message_pair(members, place);
    pair.message_keys = finish(talks.chosen, line.size(), place_of(place, "chosen"));
    std::ranges::copy(finish(talks.rejected, line.size(), place_of(place, "rejected")),
                      std::back_inserter(pair.message_keys));
    pair.answers = std::move(talks);
  } else {
    pair.answers = text_pair(members, place);
  }
  for (const std::string& name : members.unread())
    if (!is_harmless_key(name)) pair.line_keys.push_back(name);
  return pair;
}

CodedPair encode_pair(const PairFormat& format, const AnswerPair& pair, const std::string& place) {
  if (const TextPair* texts = std::get_if<TextPair>(&pair.answers))
    return encode_texts(*format.tokenizer, *texts);
  const auto& [chosen, rejected, prompt] = std::get<MessagePair>(pair.answers);
  AXONN_CHECK(format.chat, place, ": messages without a chat template");
  return {.chosen = encode_answer(*format.chat, chosen, prompt, place),
          .rejected = encode_answer(*format.chat, rejected, prompt, place)};
}

bool holds_message_pairs(const std::string& file) {
  const std::vector<std::string> files{file};
  for (TextFiles reader(files); !reader.at_end(); reader.advance())
    for (const Line& line : lines_of(reader.reader().lines(1), file, 0))
      return std::holds_alternative<MessagePair>(parse_pair(line.text, line.place).answers);
  refuse(file, " has no line with a pair of answers");
}

std::shared_ptr<const Documents> encode_pairs(const std::vector<std::string>& files,
                                              const PairFormat& format) {
  constexpr std::size_t kBytesOfCore = std::size_t{1} << 20;
  const int threads = usable_core_count();
  DocumentWriter writer("", files.front());
  for (TextFiles reader(files); !reader.at_end(); reader.advance()) {
    const std::int64_t before = reader.reader().line();
    const std::vector<Line> lines =
        lines_of(reader.reader().lines(kBytesOfCore * threads), reader.file(), before);
    std::vector<CodedPair> pairs(lines.size());
    parallel_for(lines.size(), threads,
                 [&](std::size_t i) { pairs[i] = encode_line(format, lines[i]); });
    for (const CodedPair& pair : pairs) {
      writer.append(pair.chosen);
      writer.append(pair.rejected);
    }
  }
  return writer.finish();
}

}  // namespace axonn
