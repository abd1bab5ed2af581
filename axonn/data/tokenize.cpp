#include "axonn/data/tokenize.h"

#include <algorithm>
#include <optional>

#include "axonn/base/files.h"
#include "axonn/base/hash.h"
#include "axonn/base/host.h"
#include "axonn/base/random.h"

namespace axonn {

namespace fs = std::filesystem;

namespace {

// Part of every cache file's name: raise it when tokenize() gives other tokens for the same text.
constexpr int kTokenCacheVersion = 1;

constexpr std::size_t kTextBytes = std::size_t{4} << 20;

// Tokenizer::cut() depends on no text further beyond its place.
constexpr std::size_t kSeenBeyondACut = std::size_t{64} << 10;

/// A piece of a file's text and, once encoded, its tokens.
struct Piece {
  std::string text = {};
  bool first = true, last = true;  ///< of its file
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
    for (std::size_t taken = 0; taken < bytes;) {
      if (!file_) {
        if (at_ == files_.size()) break;
        file_.emplace(files_[at_++]);
        read_ = 0;
      }
      Piece& piece = pieces.emplace_back();
      piece.first = read_ == 0;
      piece.text = take();
      piece.last = read_ == file_->bytes();
      if (piece.last) file_.reset();
      taken += piece.text.size() + sizeof piece;
    }
    return pieces;
  }

 private:
  /// The next piece of the open file.
  std::string take() {
    std::string text;
    for (std::int64_t wanted = kTextBytes + kSeenBeyondACut;; wanted *= 2) {
      const std::int64_t had = std::ssize(text), left = file_->bytes() - read_;
      text.resize(std::min(wanted, left));
      file_->read(read_ + had, std::as_writable_bytes(std::span(text).subspan(had)));
      const std::size_t at = tokenizer_.cut(text, kTextBytes);
      if (wanted < left && at + kSeenBeyondACut > text.size()) continue;
      text.resize(at);
      read_ += std::ssize(text);
      return text;
    }
  }

  const std::vector<std::string>& files_;
  const Tokenizer& tokenizer_;
  std::size_t at_ = 0;
  std::optional<InputFile> file_;
  std::int64_t read_ = 0;  // bytes of file_ that were taken
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

/// Tokenises files into a token file (TokenWriter).
TokenizeProgress tokenize_to(const std::string& output, const std::vector<std::string>& files,
                             const Tokenizer& tokenizer, const TokenizeOptions& options) {
  TokenWriter writer(output, tokenizer.vocab_size());
  const TokenSink sink{[&](std::span<const std::int32_t> tokens) { writer.append(tokens); },
                       [&] { writer.end_document(); }};
  const TokenizeProgress result = tokenize(files, tokenizer, sink, options);
  writer.finish();
  return result;
}

}  // namespace

TokenizeProgress tokenize(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          const TokenSink& sink, const TokenizeOptions& options) {
  for (const std::string& file : files)
    if (TokenFile::recognises(file))
      refuse(file, " is a token file, not text; give it as data.tokens");
  TokenizeProgress progress{};
  for (const std::string& path : files) progress.total_bytes += InputFile(path).bytes();
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

std::shared_ptr<const TokenSource> tokenize_in_memory(const std::vector<std::string>& files,
                                                      const Tokenizer& tokenizer,
                                                      const TokenizeOptions& options) {
  std::vector<std::int32_t> all;
  const TokenSink sink{[&](std::span<const std::int32_t> tokens) {
    all.insert(all.end(), tokens.begin(), tokens.end());
  }};
  tokenize(files, tokenizer, sink, options);
  const std::string more = files.size() > 1 ? concat(" and ", files.size() - 1, " more") : "";
  return std::make_shared<MemoryTokens>(files.front() + more, std::move(all));
}

std::shared_ptr<const TokenSource> tokenize_cached(const std::vector<std::string>& files,
                                                   const Tokenizer& tokenizer,
                                                   const std::string& folder,
                                                   const TokenizeReport& report) {
  // Megatron's format, because it has no limit on the tokens.
  const std::string prefix =
      cache_path(folder, "tokens", files, concat(kTokenCacheVersion, ' ', tokenizer.fingerprint()));
  return open_cached(
      prefix + ".idx", [&] { return std::make_shared<TokenFile>(prefix); },
      [&] { tokenize_to(prefix, files, tokenizer, {.report = report}); });
}

TokenizeProgress tokenize_files(const std::string& tokenizer, const std::vector<std::string>& text,
                                const std::string& output, const TokenizeOptions& options) {
  if (text.empty()) refuse("data tokenize needs --text FILE or a folder");
  if (output.empty()) refuse("data tokenize needs --output FILE.bin");
  const auto encoder = make_tokenizer(tokenizer);
  const auto files = text_files(text);
  for (const std::string& file : files)
    for (const char* ending : {"", ".bin", ".idx"})  // Megatron's files have the endings
      if (std::error_code error; fs::equivalent(file, output + ending, error))
        refuse("the output ", output, ending, " is one of the text files");
  return tokenize_to(output, files, *encoder, options);
}

std::string cache_path(const std::string& folder, const std::string& kind,
                       const std::vector<std::string>& files, const std::string& how) {
  make_folders(folder);
  std::error_code error;  // ignored: opening a missing file gives a better message
  std::string key = how;
  for (const std::string& file : files)
    key +=
        concat('\n', fs::weakly_canonical(file, error).string(), '\n', fs::file_size(file, error),
               '\n', fs::last_write_time(file, error).time_since_epoch().count());
  return concat(folder, '/', kind, '-', hex_of(hash_text(key)));
}

}  // namespace axonn
