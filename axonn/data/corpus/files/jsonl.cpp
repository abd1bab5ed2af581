#include "axonn/data/corpus/files/jsonl.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>

#include <nlohmann/json.hpp>

#include "axonn/data/corpus/files/conversation_lines.h"
#include "axonn/data/corpus/files/line_keys.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

constexpr const char* kKinds =
    "a line must have one of: \"messages\"; \"conversations\" (ShareGPT); \"instruction\" and "
    "\"output\" (alpaca); \"prompt\" and \"completion\", both strings or both lists of messages; "
    "\"text\"";

void check_utf8(std::string_view line, const std::string& location) {
  if (const std::size_t valid = valid_utf8_prefix(line); valid < line.size())
    refuse(location, ": byte ", valid + 1, " of the line is not UTF-8");
}

/// Why a text is no JSON, in the words of the library; "" if it is some.
std::string fault_of_json(std::string_view text) {
  try {
    return nlohmann::json::parse(text).is_discarded() ? "it is empty" : "";
  } catch (const nlohmann::json::exception& error) {
    std::string_view why = error.what();  // "[json.exception...] parse error at line 1, column 9: "
    for (const std::string_view before : {"] ", "line 1, "})
      if (const std::size_t at = why.find(before); at != why.npos)
        why.remove_prefix(at + before.size());
    return std::string(why);
  }
}

[[noreturn]] void refuse_no_object(std::string_view line, const std::string& location) {
  if (const std::string fault = fault_of_json(line); !fault.empty())
    refuse(location, ": this is not JSON: ", shortened(printable(fault), 160),
           fault.find("invalid literal") == fault.npos
               ? ""
               : "; JSON has no NaN or Infinity, and its quotes are \"");
  const char* const remedy =
      line.starts_with('[')
          ? "; an array of objects becomes lines by: jq -c '.[]' FILE.json > FILE.jsonl"
          : "";
  refuse(location, ": this is not a JSON object: ", printable(line.substr(0, 60)), remedy);
}

nlohmann::json object_of_line(const Line& line) {
  check_utf8(line.text, line.location);
  auto object = nlohmann::json::parse(line.text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) refuse_no_object(line.text, line.location);
  return object;
}

std::string text_at(Members& object, const char* key, const std::string& location) {
  const jinja::Value* found = object.find(key);
  if (!found) refuse(location, ": \"", key, "\" is missing; ", kKinds);
  if (!found->text()) refuse(location, ": \"", key, "\" is not a string");
  return found->text()->bytes();
}

/// The names of the object's members, for messages.
std::string keys_of(const jinja::Dict& object) {
  std::string keys;
  for (const auto& [name, value] : object.items())
    keys += concat(keys.empty() ? "\"" : ", \"", name.text()->bytes(), '"',
                   value.is_none() ? " (null)" : "");
  return keys.empty() ? "nothing" : shortened(printable(keys), 120);
}

bool is_blank(std::string_view text) { return text.find_first_not_of(kWhiteSpace) == text.npos; }

constexpr std::size_t kBatchBytes = std::size_t{8} << 20;  // of text, per core
constexpr int kDocumentsVersion = 5;  // raise it when the same lines give other documents

/// The lines that are not blank among the next `bytes` bytes of a file, or the next line if it is
/// longer. Their texts are valid until advance().
std::vector<Line> next_lines(TextFiles& files, std::size_t bytes) {
  TextReader& reader = files.reader();
  const std::int64_t before = reader.line();
  return lines_of(reader.lines(bytes), files.file(), before);
}

/// Encodes lines of files, all of one kind, as documents.
class LineEncoder {
 public:
  LineEncoder(const std::vector<std::string>& files, const ExampleEncoder& encoder,
              const TokenizeReport& report)
      : files_(files), encoder_(encoder), report_(report), kind_(kind_of_examples(files.front())) {}

  /// Encodes the lines from `from` on for about so many seconds. Adds to `progress` and reports it.
  /// Returns the place of the next line.
  TextPosition encode(const TextPosition& from, double seconds, DocumentWriter& writer,
                      TokenizeProgress& progress) {
    const int threads = usable_core_count();
    const double begin = now_seconds();
    files_.go_to(from);
    while (!files_.at_end()) {
      const std::vector<Line> lines = next_lines(files_, kBatchBytes * threads);
      std::vector<std::vector<std::int32_t>> coded(lines.size());
      parallel_for(lines.size(), threads, [&](std::size_t i) { coded[i] = encode_line(lines[i]); });
      for (const std::vector<std::int32_t>& document : coded) {
        writer.append(document);
        progress.tokens += std::ssize(document);
      }
      files_.advance();
      progress.bytes = files_.bytes();
      if (report_) report_(progress);
      if (now_seconds() - begin >= seconds) break;
    }
    return files_.position();
  }

 private:
  std::vector<std::int32_t> encode_line(const Line& line) const {
    const Example example = parse_example(line.text, line.location);
    if (example.kind != kind_)
      refuse(line.location, ": this line has ", name_of(example.kind), ", the first one ",
             name_of(kind_), "; put each kind into separate files and runs");
    if (example.lacks_answer()) return {};
    const ChatTemplate::Rendered rendered = encoder_.encode(example, line.location);
    std::vector<std::int32_t> coded = rendered.tokens;
    for (std::size_t i = 0; i < coded.size(); ++i)
      if (!rendered.learned[i]) coded[i] = ~coded[i];
    return coded;
  }

  TextFiles files_;
  const ExampleEncoder& encoder_;
  const TokenizeReport& report_;
  Example::Kind kind_;
};

std::shared_ptr<const Documents> encode_in_memory(const std::vector<std::string>& files,
                                                  const ExampleEncoder& encoder,
                                                  const TokenizeReport& report) {
  DocumentWriter writer("", files.front());
  TokenizeProgress progress{};
  for (const std::string& file : files) progress.total_bytes += InputFile(file).bytes();
  constexpr double kAll = std::numeric_limits<double>::infinity();
  LineEncoder(files, encoder, report).encode({}, kAll, writer, progress);
  return writer.finish();
}

std::shared_ptr<const Documents> open_document_parts(const CachedParts& parts) {
  std::vector<std::string> paths;
  std::int64_t tokens = 0;
  for (const CachedParts::Part& part : parts.whole()) {
    paths.push_back(part.path);
    tokens += part.tokens;
  }
  auto documents = std::make_shared<const Documents>(paths);
  if (documents->tokens() != tokens)
    refuse(documents->name(), " and its further parts have ", documents->tokens(), " tokens, not ",
           tokens);
  return documents;
}

}  // namespace

std::string_view name_of(Example::Kind kind) {
  if (kind == Example::Kind::text) return "text";
  return kind == Example::Kind::completion ? "prompt and completion" : "messages";
}

std::vector<Line> lines_of(std::string_view text, const std::string& file, std::int64_t before) {
  std::vector<Line> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    ++before;
    if (is_blank(line)) continue;
    lines.push_back({line, concat(file, ':', before)});
  }
  return lines;
}

std::string text_of_line(const Line& line, const std::string& field) {
  nlohmann::json object = object_of_line(line);
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string())
    refuse(line.location, ": ",
           found == object.end() ? "there is no \"" : "there is no string in \"", field,
           "\"; each line is a document, and data.text_field (--field) names where its text is");
  if (!is_preference_key(field))
    for (const auto& [name, value] : object.items())
      if (!value.is_null() && (is_preference_key(name) || (name == "label" && value.is_boolean())))
        refuse_preference_key(line.location, name);
  return std::move(found->get_ref<std::string&>());
}

bool decides_text(std::string_view name, std::string_view field) {
  return name == field || name == "label" || is_preference_key(name);
}

std::vector<std::string> other_keys_of_line(const Line& line, const std::string& field) {
  const nlohmann::json object = object_of_line(line);
  std::vector<std::string> keys;
  for (const auto& [name, value] : object.items())
    if (name != field && !value.is_null() && !is_harmless_key(name))
      keys.push_back(concat('"', name, '"'));
  return keys;
}

jinja::Value parse_line(std::string_view line, const std::string& location) {
  check_utf8(line, location);
  std::optional<jinja::Value> value = parse_chat_json(line);
  if (!value || !value->dict()) refuse_no_object(line, location);
  return *std::move(value);
}

namespace {

enum class LineFormat { text, completion, messages, prompt_messages, sharegpt, alpaca };

bool is_list(const jinja::Value* value) { return value && value->list(); }

/// "text" beside "instruction", and "prompt" beside messages, are further keys.
LineFormat format_of(const Members& line, const std::string& location) {
  const auto has = [&](const char* name) { return line.peek(name) != nullptr; };
  const bool messages = has("messages"), sharegpt = has("conversations"),
             alpaca = has("instruction"), text = has("text") && !alpaca,
             prompt = has("prompt") && !messages && !sharegpt && !alpaca,
             completion = has("completion") || prompt;
  const int kinds = messages + sharegpt + alpaca + completion + text;
  if (kinds != 1)
    refuse(location, ": ", kKinds, "; this one has ",
           kinds == 0 ? concat("none of them, but: ", keys_of(line.object()))
                      : "more than one of them");
  if (text) return LineFormat::text;
  if (completion)
    return is_list(line.peek("prompt")) || is_list(line.peek("completion"))
               ? LineFormat::prompt_messages
               : LineFormat::completion;
  if (sharegpt) return LineFormat::sharegpt;
  return alpaca ? LineFormat::alpaca : LineFormat::messages;
}

Example::Kind kind_of(LineFormat format) {
  if (format == LineFormat::text) return Example::Kind::text;
  return format == LineFormat::completion ? Example::Kind::completion : Example::Kind::messages;
}

/// The names of a list, each once.
void add_names(const std::vector<std::string>& names, std::vector<std::string>& to) {
  for (const std::string& name : names)
    if (std::ranges::find(to, name) == to.end()) to.push_back(name);
}

Conversation conversation_in(Members& line, LineFormat format, const std::string& location) {
  if (format == LineFormat::messages) return Conversation::parse(line, location);
  return Conversation::parse(format == LineFormat::sharegpt ? from_sharegpt(line, location)
                             : format == LineFormat::alpaca ? from_alpaca(line, location)
                                                            : from_prompt_messages(line, location),
                             location);
}

}  // namespace

Example parse_example(std::string_view line, const std::string& location) {
  const jinja::Value value = parse_line(line, location);
  Members object(*value.dict());
  refuse_line_keys(object, location);
  const LineFormat format = format_of(object, location);
  Example example;
  example.kind = kind_of(format);
  if (format == LineFormat::text) {
    example.text = text_at(object, "text", location);
  } else if (format == LineFormat::completion) {
    example.prompt = text_at(object, "prompt", location);
    example.text = text_at(object, "completion", location);
  } else {
    example.conversation = conversation_in(object, format, location);
    example.conversation.bytes = line.size();
    add_names(read_message_keys(example.conversation, location), example.message_keys);
    example.conversation.normalize();
    if (format == LineFormat::alpaca) object.find("text");  // the same once more
  }
  for (const std::string& name : object.unread())
    if (!is_harmless_key(name)) example.line_keys.push_back(name);
  return example;
}

bool Example::lacks_answer() const {
  if (kind != Kind::messages) return is_blank(text);
  const std::vector<std::size_t>& not_learned = conversation.not_learned;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    if (conversation.text(i, "role") != "assistant" || std::ranges::count(not_learned, i) > 0)
      continue;
    const auto is_empty = [](const jinja::Dict::Item& item) {
      const auto& [name, value] = item;
      return !is_answer_key(name.text()->bytes()) || !value.truth() ||
             (value.text() && is_blank(value.text()->bytes()));
    };
    if (std::ranges::all_of(conversation.messages[i].dict()->items(), is_empty)) return true;
  }
  return false;
}

// Here and not in the header, where g++ 12 warns of an uninitialised template if it is empty.
ExampleEncoder::ExampleEncoder(std::shared_ptr<const Tokenizer> tokenizer,
                               std::optional<ChatTemplate> chat, bool learns_all)
    : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)), learns_all_(learns_all) {}

ChatTemplate::Rendered ExampleEncoder::encode(const Example& example,
                                              const std::string& location) const {
  ChatTemplate::Rendered out = answer(example, location);
  if (!learns_all_) return out;
  if (!example.conversation.not_learned.empty())
    refuse(location,
           ": a message says that it is not learned (\"weight\" 0 or \"train\" false), but ",
           "data.train_on_prompt = true learns all tokens; leave one of them out");
  out.learned.assign(out.tokens.size(), true);
  return out;
}

/// The example with its answers learned.
ChatTemplate::Rendered ExampleEncoder::answer(const Example& example,
                                              const std::string& location) const {
  if (example.kind == Example::Kind::messages) {
    AXONN_CHECK(chat_, location, ": messages without a chat template");
    if (std::ranges::count(example.message_keys, "function_call") > 0 &&
        !chat_->mentions("function_call"))
      refuse(location, ": \"function_call\" of a message, which the chat template does not write; ",
             "give the call in \"tool_calls\": [{\"type\": \"function\", \"function\": {...}}]");
    return chat_->render(example.conversation, location);
  }
  const bool completes = example.kind == Example::Kind::completion;
  ChatTemplate::Rendered out;
  out.tokens = tokenizer_->encode_prompt(example.prompt);
  out.learned.resize(out.tokens.size(), false);
  const std::size_t before = out.tokens.size();
  tokenizer_->encode_into(example.text, out.tokens, {.continues = completes});
  // Without a prompt, the text's own begin is the one that encode_prompt() put there.
  const std::vector<std::int32_t>& begin = tokenizer_->begin_of_text();
  const std::span<const std::int32_t> prompt(out.tokens.data(), before),
      text(out.tokens.data() + before, out.tokens.size() - before);
  if (std::ranges::equal(prompt, begin) && text.size() >= begin.size() &&
      std::ranges::equal(text.first(begin.size()), begin))
    out.tokens.erase(out.tokens.begin(), out.tokens.begin() + std::ssize(begin));
  if (const auto end = tokenizer_->end_of_text();
      end && (out.tokens.empty() || out.tokens.back() != *end))
    out.tokens.push_back(*end);
  out.learned.resize(out.tokens.size(), true);
  return out;
}

std::string ExampleEncoder::fingerprint() const {
  return concat(tokenizer_->fingerprint(), chat_ ? chat_->fingerprint() : "",
                learns_all_ ? "|all" : "");
}

std::vector<std::string> unread_names(const std::vector<std::string>& line_keys,
                                      const std::vector<std::string>& message_keys,
                                      const std::optional<ChatTemplate>& chat) {
  std::vector<std::string> names;
  for (const std::string& name : line_keys) names.push_back(concat('"', name, '"'));
  for (const std::string& name : message_keys)
    if (!chat || !chat->mentions(name)) names.push_back(concat('"', name, "\" of messages"));
  return names;
}

std::vector<std::string> ExampleEncoder::unread_keys(const Example& example) const {
  return unread_names(example.line_keys, example.message_keys, chat_);
}

std::string ExampleEncoder::warning() const {
  return !chat_ || learns_all_ || chat_->teaches_end()
             ? ""
             : "the chat template ends an answer with no token that is learned, so the model will "
               "not learn to stop; end the assistant's turn with a token, such as eos_token, "
               "inside "
               "of {% generation %} if the template has it";
}

std::vector<std::string> example_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths)
    for (const std::string& found : expand_pattern(path)) {
      if (!is_folder(found)) {
        files.push_back(found);
        continue;
      }
      const std::size_t before = files.size();
      std::ranges::copy_if(text_files({found}), std::back_inserter(files), is_json_lines);
      if (files.size() == before)
        refuse("data.jsonl: the folder ", found, " has no .jsonl, .parquet or .csv file");
    }
  return files;
}

Example::Kind kind_of_examples(const std::string& file) {
  const std::vector<std::string> files{file};
  for (TextFiles reader(files); !reader.at_end(); reader.advance())
    for (const Line& line : next_lines(reader, 1)) {
      const jinja::Value value = parse_line(line.text, line.location);
      return kind_of(format_of(Members(*value.dict()), line.location));
    }
  refuse(file, " has no line with an example");
}

std::vector<std::string> unread_keys(
    const std::string& file,
    const std::function<std::vector<std::string>(const Line&)>& keys_of_line) {
  constexpr std::size_t kHead = std::size_t{4} << 20;  // columns rarely begin later
  const std::vector<std::string> files{file};
  TextFiles reader(files);
  std::vector<std::string> keys;
  for (const Line& line : next_lines(reader, kHead)) add_names(keys_of_line(line), keys);
  return keys;
}

bool holds_answers(const std::string& file) {
  try {
    return is_json_lines(file) && kind_of_examples(file) != Example::Kind::text;
  } catch (const UsageError&) {  // lines of another kind
    return false;
  }
}

std::shared_ptr<const Documents> encode_examples(const std::vector<std::string>& files,
                                                 const ExampleEncoder& encoder,
                                                 const TokenCache& cache,
                                                 const TokenizeReport& report) {
  const auto in_memory = [&] { return encode_in_memory(files, encoder, report); };
  if (cache.folder.empty()) return in_memory();
  const std::string path =
      cache_path(cache, "documents", files, concat(kDocumentsVersion, ' ', encoder.fingerprint()));
  const CachedParts parts(path);
  const auto make = [&] {
    LineEncoder lines(files, encoder, report);  // goes on where a part ends
    parts.make(
        files, [](const std::string& part) { return Documents(part).tokens(); },
        [&](const TextPosition& from, const std::string& part, TokenizeProgress& progress) {
          DocumentWriter writer(part, files.front());
          const TextPosition end = lines.encode(from, cache.part_seconds, writer, progress);
          writer.finish();
          return end;
        });
  };
  return open_cached(
      path, cache, [&] { return open_document_parts(parts); }, make, in_memory);
}

}  // namespace axonn
