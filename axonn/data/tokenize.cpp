#include "axonn/data/tokenize.h"

#include <filesystem>
#include <memory>
#include <optional>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/host.h"
#include "axonn/data/token_file.h"

namespace axonn {

namespace {

constexpr std::size_t kTextBytes = std::size_t{4} << 20;

void refuse_token_files(const std::vector<std::string>& files) {
  for (const std::string& file : files)
    if (TokenFile::recognises(file))
      refuse(file, " is a token file, not text; give it as data.tokens");
}

/// A piece of a file's text and, once encoded, its tokens.
struct Piece {
  std::shared_ptr<const MappedFile> file;
  std::string_view text;
  bool first, last;  ///< of its file
  std::vector<std::int32_t> tokens = {};
};

/// Cuts files into pieces, in order.
class Pieces {
 public:
  Pieces(const std::vector<std::string>& files, const Tokenizer& tokenizer)
      : files_(files), tokenizer_(tokenizer) {}

  /// The next pieces, about `bytes` bytes together; empty after the last one.
  std::vector<Piece> next(std::size_t bytes) {
    std::vector<Piece> pieces;
    for (std::size_t taken = 0; taken < bytes && pieces.size() < kMostPieces;) {
      if (!file_) {
        if (at_ == files_.size()) break;
        file_ = std::make_shared<const MappedFile>(files_[at_++]);
        rest_ = file_->text();
        first_ = true;
      }
      const std::string_view text = rest_.substr(0, tokenizer_.cut(rest_, kTextBytes));
      rest_.remove_prefix(text.size());
      pieces.push_back({.file = file_, .text = text, .first = first_, .last = rest_.empty()});
      first_ = false;
      if (rest_.empty()) file_.reset();
      taken += text.size();
    }
    return pieces;
  }

 private:
  static constexpr std::size_t kMostPieces =
      512;  // limits the number of open files if files are small

  const std::vector<std::string>& files_;
  const Tokenizer& tokenizer_;
  std::size_t at_ = 0;
  std::shared_ptr<const MappedFile> file_;
  std::string_view rest_;
  bool first_ = false;
};

void encode(Piece& piece, const Tokenizer& tokenizer, bool ends) {
  tokenizer.encode_into(piece.text, piece.tokens, {.continues = !piece.first});
  if (const auto begin = tokenizer.begin_of_text();
      piece.first && begin && (piece.tokens.empty() || piece.tokens.front() != begin))
    piece.tokens.insert(piece.tokens.begin(), *begin);
  if (const auto end = tokenizer.end_of_text();
      ends && piece.last && end && (piece.tokens.empty() || piece.tokens.back() != end))
    piece.tokens.push_back(*end);
}

}  // namespace

TokenSink sink_of(TokenWriter& writer) {
  return {[&](std::span<const std::int32_t> tokens) { writer.append(tokens); },
          [&] { writer.end_document(); }};
}

TokenizeProgress tokenize(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          const TokenSink& sink, const TokenizeOptions& options) {
  refuse_token_files(files);
  TokenizeProgress progress{};
  for (const std::string& path : files)
    progress.total_bytes += static_cast<std::int64_t>(MappedFile(path).text().size());
  const int threads = options.threads > 0 ? options.threads : usable_core_count();
  Pieces source(files, tokenizer);
  while (true) {
    std::vector<Piece> pieces = source.next(threads * kTextBytes);
    if (pieces.empty()) return progress;
    parallel_for(pieces.size(), threads,
                 [&](std::size_t i) { encode(pieces[i], tokenizer, options.ends); });
    for (const Piece& piece : pieces) {
      sink.append(piece.tokens);
      if (piece.last) sink.end_document();
      progress.bytes += static_cast<std::int64_t>(piece.text.size());
      progress.tokens += std::ssize(piece.tokens);
      if (options.report) options.report(progress);
    }
  }
}

TokenizeProgress tokenize_files(const TokenizeJob& job, const TokenizeOptions& options) {
  if (job.text.empty()) refuse("data tokenize needs --text FILE or a folder");
  if (job.output.empty()) refuse("data tokenize needs --output FILE.bin");
  const auto tokenizer = make_tokenizer(job.tokenizer);
  const auto files = text_files(job.text);
  for (const std::string& file : files)
    for (const char* ending : {"", ".bin", ".idx"})  // Megatron's files have the endings
      if (std::error_code error; std::filesystem::equivalent(file, job.output + ending, error))
        refuse("the output ", job.output, ending, " is one of the text files");
  const auto writer = make_token_writer(job.output, tokenizer->vocab_size());
  const TokenizeProgress result = tokenize(files, *tokenizer, sink_of(*writer), options);
  writer->finish();
  return result;
}

}  // namespace axonn
