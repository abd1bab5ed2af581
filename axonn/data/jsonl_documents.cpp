#include "axonn/data/jsonl_documents.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/mapped_file.h"
#include "axonn/data/token_cache.h"

namespace axonn {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBatchBytes = std::size_t{8} << 20;  // of text, per core
constexpr int kDocumentsVersion = 1;  // raise it when the same lines give other documents

/// A line, and its tokens or the error in it.
struct Line {
  std::string_view text;
  std::string place;
  std::vector<std::int32_t> coded = {};
  std::exception_ptr error = nullptr;
};

/// Reads the lines of a file.
class LineReader {
 public:
  explicit LineReader(const std::string& path) : file_(path), rest_(file_.text()) {}

  /// The lines that are not blank among the next `bytes` bytes, rounded up to whole lines.
  std::vector<Line> next(std::size_t bytes) {
    std::vector<Line> lines;
    for (std::size_t taken = 0; taken < bytes && !rest_.empty();) {
      const std::size_t end = rest_.find('\n');
      const std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
      taken += line.size() + 1;
      ++number_;
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      lines.push_back({line, concat(file_.path(), ':', number_)});
    }
    return lines;
  }
  std::int64_t bytes_left() const { return std::ssize(rest_); }
  std::int64_t bytes() const { return std::ssize(file_.text()); }

 private:
  MappedFile file_;
  std::string_view rest_;
  std::int64_t number_ = 0;
};

void encode(Line& line, const ExampleEncoder& encoder, Example::Kind kind) {
  try {
    const Example example = parse_example(line.text, line.place);
    if (example.kind != kind)
      refuse(line.place, ": this line has ", name_of(example.kind), ", the first one ",
             name_of(kind), "; put each kind into separate files and runs");
    const ChatTemplate::Rendered rendered = encoder.encode(example, line.place);
    line.coded = rendered.tokens;
    for (std::size_t i = 0; i < line.coded.size(); ++i)
      if (!rendered.learned[i]) line.coded[i] = ~line.coded[i];
  } catch (...) {
    line.error = std::current_exception();  // of several, the first line's error is thrown
  }
}

void encode_all(std::vector<Line>& lines, const ExampleEncoder& encoder, Example::Kind kind,
                unsigned threads) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < lines.size(); i = next++) encode(lines[i], encoder, kind);
  };
  std::vector<std::jthread> helpers;
  for (unsigned i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
}

/// Encodes lines of one kind, and writes their documents in order.
class Documenter {
 public:
  Documenter(const ExampleEncoder& encoder, DocumentWriter& writer, Example::Kind kind)
      : encoder_(encoder), writer_(writer), kind_(kind) {}

  void add(std::vector<Line> lines) {
    encode_all(lines, encoder_, kind_, threads_);
    for (Line& line : lines) {
      if (line.error) std::rethrow_exception(line.error);
      writer_.append(line.coded);
      tokens_ += std::ssize(line.coded);
    }
  }
  std::int64_t tokens() const { return tokens_; }
  std::size_t batch() const { return kBatchBytes * threads_; }

 private:
  const ExampleEncoder& encoder_;
  DocumentWriter& writer_;
  Example::Kind kind_;
  unsigned threads_ = std::max(1u, std::thread::hardware_concurrency());
  std::int64_t tokens_ = 0;
};

}  // namespace

Example::Kind kind_of_examples(const std::string& file) {
  LineReader reader(file);
  while (reader.bytes_left() > 0)
    for (const Line& line : reader.next(1)) return parse_example(line.text, line.place).kind;
  refuse(file, " has no line with an example");
}

std::shared_ptr<const Documents> encode_examples(const std::vector<std::string>& files,
                                                 const ExampleEncoder& encoder,
                                                 const std::string& cache_folder,
                                                 const TokenizeReport& report) {
  std::string path;
  if (!cache_folder.empty()) {
    path = concat(cache_folder, "/documents-",
                  cache_key(files, concat(kDocumentsVersion, ' ', encoder.fingerprint())), ".bin");
    make_folders(cache_folder);
    if (path_exists(path)) {
      try {
        return Documents::open(path);
      } catch (const UsageError&) {
        std::error_code ignored;
        fs::remove(path, ignored);  // damaged: it is made again below
      }
    }
  }
  const auto writer = make_document_writer(path, files.front());
  Documenter documenter(encoder, *writer, kind_of_examples(files.front()));
  TokenizeProgress progress{};
  for (const std::string& file : files) progress.total_bytes += LineReader(file).bytes();
  for (const std::string& file : files) {
    LineReader reader(file);
    while (reader.bytes_left() > 0) {
      const std::int64_t before = reader.bytes_left();
      documenter.add(reader.next(documenter.batch()));
      progress.bytes += before - reader.bytes_left();
      progress.tokens = documenter.tokens();
      if (report) report(progress);
    }
  }
  return writer->finish();
}

}  // namespace axonn
