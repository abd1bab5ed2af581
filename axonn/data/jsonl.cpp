#include "axonn/data/jsonl.h"

#include <algorithm>
#include <limits>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/base/host.h"
#include "axonn/base/utf8.h"

namespace axonn {

namespace {

constexpr const char* kKinds =
    "a line must have \"text\", or \"prompt\" and \"completion\", or \"messages\"";

std::string text_at(const jinja::Dict& object, const char* key, const std::string& place) {
  const jinja::Value* found = object.find(key);
  if (!found) refuse(place, ": \"", key, "\" is missing; ", kKinds);
  if (!found->text()) refuse(place, ": \"", key, "\" is not a string");
  return found->text()->bytes();
}

constexpr std::size_t kBatchBytes = std::size_t{8} << 20;  // of text, per core
constexpr int kDocumentsVersion = 2;  // raise it when the same lines give other documents

/// A line and, once encoded, its tokens.
struct Line {
  std::string_view text;
  std::string place;
  std::vector<std::int32_t> coded = {};
};

/// Reads the lines of files.
class LineReader {
 public:
  using Place = CachedParts::Place;

  LineReader(const std::vector<std::string>& files, const Place& from)
      : files_(files), place_(from) {
    find_text();
  }

  /// The place up to which lines were returned.
  const Place& place() const { return place_; }
  bool at_end() const { return place_.file == files_.size(); }
  /// The bytes that the last next() has read.
  std::int64_t bytes() const { return std::ssize(text_); }

  /// The lines that are not blank among the next `bytes` bytes of a file, or the next line if it is
  /// longer. Their texts are valid until the next call.
  std::vector<Line> next(std::int64_t bytes) {
    fill(bytes);
    std::vector<Line> lines;
    for (std::string_view rest = text_; !rest.empty();) {
      const std::size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
      ++place_.line;
      if (line.find_first_not_of(kWhiteSpace) == line.npos) continue;
      lines.push_back({line, concat(files_[place_.file], ':', place_.line)});
    }
    find_text();
    return lines;
  }

 private:
  std::int64_t bytes_left() const { return file_->bytes() - place_.byte; }

  /// Opens the next file that has text left.
  void find_text() {
    for (; !at_end(); place_ = {.file = place_.file + 1}) {
      if (!file_) file_.emplace(files_[place_.file]);
      if (bytes_left() > 0) return;
      file_.reset();
    }
  }

  /// Makes text_ the next whole lines.
  void fill(std::int64_t wanted) {
    text_.clear();
    for (wanted = std::max(wanted, kLeast);; wanted *= 2) {
      const std::int64_t had = std::ssize(text_), left = bytes_left();
      text_.resize(std::min(wanted, left));
      file_->read(place_.byte + had, std::as_writable_bytes(std::span(text_).subspan(had)));
      const std::size_t end = text_.rfind('\n');
      if (wanted < left && end == text_.npos) {
        if (wanted > kMostBytesALine)
          refuse(file_->path(), ':', place_.line + 1, ": the line has more than ", kMostBytesALine,
                 " bytes");
        continue;
      }
      if (wanted < left) text_.resize(end + 1);
      place_.byte += std::ssize(text_);
      return;
    }
  }

  static constexpr std::int64_t kLeast = 64 << 10, kMostBytesALine = 1 << 30;

  const std::vector<std::string>& files_;
  Place place_;
  std::optional<InputFile> file_;
  std::string text_;
};

/// Encodes lines of files, all of one kind, as documents.
class LineEncoder {
 public:
  LineEncoder(const std::vector<std::string>& files, const ExampleEncoder& encoder,
              const TokenizeReport& report)
      : files_(files), encoder_(encoder), report_(report), kind_(kind_of_examples(files.front())) {}

  /// Encodes the lines from `from` on for about so many seconds. Adds to `progress` and reports it.
  /// Returns the place of the next line.
  CachedParts::Place encode(const CachedParts::Place& from, double seconds, DocumentWriter& writer,
                            TokenizeProgress& progress) const {
    const int threads = usable_core_count();
    const double begin = now_seconds();
    LineReader reader(files_, from);
    while (!reader.at_end()) {
      std::vector<Line> lines = reader.next(kBatchBytes * threads);
      parallel_for(lines.size(), threads, [&](std::size_t i) { encode_line(lines[i]); });
      for (const Line& line : lines) {
        writer.append(line.coded);
        progress.tokens += std::ssize(line.coded);
      }
      progress.bytes += reader.bytes();
      if (report_) report_(progress);
      if (now_seconds() - begin >= seconds) break;
    }
    return reader.place();
  }

 private:
  void encode_line(Line& line) const {
    const Example example = parse_example(line.text, line.place);
    if (example.kind != kind_)
      refuse(line.place, ": this line has ", name_of(example.kind), ", the first one ",
             name_of(kind_), "; put each kind into separate files and runs");
    const ChatTemplate::Rendered rendered = encoder_.encode(example, line.place);
    line.coded = rendered.tokens;
    for (std::size_t i = 0; i < line.coded.size(); ++i)
      if (!rendered.learned[i]) line.coded[i] = ~line.coded[i];
  }

  const std::vector<std::string>& files_;
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

Example parse_example(std::string_view line, const std::string& place) {
  if (const std::size_t valid = valid_utf8_prefix(line); valid < line.size())
    refuse(place, ": byte ", valid + 1, " of the line is not UTF-8");
  const std::optional<jinja::Value> value = parse_chat_json(line);
  if (!value || !value->dict())
    refuse(place, ": this is not a JSON object: ", printable(line.substr(0, 60)));
  const jinja::Dict& object = *value->dict();
  const bool text = object.find("text"), messages = object.find("messages"),
             completion = object.find("prompt") || object.find("completion");
  if (text + messages + completion != 1)
    refuse(place, ": ", kKinds,
           text + messages + completion == 0 ? "; this one has none of them"
                                             : "; this one has more than one of them");
  Example example;
  if (text) {
    example.text = text_at(object, "text", place);
  } else if (completion) {
    example.kind = Example::Kind::completion;
    example.prompt = text_at(object, "prompt", place);
    example.text = text_at(object, "completion", place);
  } else {
    example.kind = Example::Kind::messages;
    example.conversation = Conversation::parse(object, place);
    example.conversation.bytes = line.size();
  }
  return example;
}

// Here and not in the header, where g++ 12 warns of an uninitialised template if it is empty.
ExampleEncoder::ExampleEncoder(std::shared_ptr<const Tokenizer> tokenizer,
                               std::optional<ChatTemplate> chat)
    : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)) {}

ChatTemplate::Rendered ExampleEncoder::encode(const Example& example,
                                              const std::string& place) const {
  if (example.kind == Example::Kind::messages) {
    AXONN_CHECK(chat_, place, ": messages without a chat template");
    return chat_->render(example.conversation, place);
  }
  const bool completes = example.kind == Example::Kind::completion;
  ChatTemplate::Rendered out;
  out.tokens = tokenizer_->encode_prompt(example.prompt);
  out.learned.resize(out.tokens.size(), false);
  tokenizer_->encode_into(example.text, out.tokens, {.continues = completes});
  if (const auto end = tokenizer_->end_of_text();
      end && (out.tokens.empty() || out.tokens.back() != *end))
    out.tokens.push_back(*end);
  out.learned.resize(out.tokens.size(), true);
  return out;
}

std::string ExampleEncoder::fingerprint() const {
  return concat(tokenizer_->fingerprint(), chat_ ? chat_->fingerprint() : "");
}

Example::Kind kind_of_examples(const std::string& file) {
  const std::vector<std::string> files{file};
  LineReader reader(files, {});
  while (!reader.at_end())
    for (const Line& line : reader.next(1)) return parse_example(line.text, line.place).kind;
  refuse(file, " has no line with an example");
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
    const LineEncoder lines(files, encoder, report);
    parts.make(
        files, [](const std::string& part) { return Documents(part).tokens(); },
        [&](const CachedParts::Place& from, const std::string& part, TokenizeProgress& progress) {
          DocumentWriter writer(part, files.front());
          const CachedParts::Place end = lines.encode(from, cache.part_seconds, writer, progress);
          writer.finish();
          return end;
        });
  };
  return open_cached(
      path, cache, [&] { return open_document_parts(parts); }, make, in_memory);
}

}  // namespace axonn
