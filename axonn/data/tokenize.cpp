#include "axonn/data/tokenize.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/base/host.h"

namespace axonn {

namespace fs = std::filesystem;

namespace {

// Part of every cache file's name: raise it when tokenize() gives other tokens for the same text.
constexpr int kTokenCacheVersion = 2;

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

  const Tokenizer& tokenizer() const { return tokenizer_; }

  /// The place in the files up to which pieces were returned.
  using Place = CachedParts::Place;
  Place place() const { return file_ ? Place{.file = at_ - 1, .byte = read_} : Place{.file = at_}; }
  bool at_end() const { return !file_ && at_ == files_.size(); }
  void go_to(const Place& place) {
    at_ = place.file;
    file_.reset();
    if (place.byte == 0) return;
    file_.emplace(files_.at(at_++));
    read_ = place.byte;
  }

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

/// Encodes the pieces that are left for about so many seconds. Adds to `progress` and reports it.
void encode_for(double seconds, Pieces& source, const TokenSink& sink,
                const TokenizeOptions& options, TokenizeProgress& progress) {
  const int threads = options.threads > 0 ? options.threads : usable_core_count();
  const double begin = now_seconds();
  do {
    std::vector<Piece> pieces = source.next(threads * kTextBytes);
    parallel_for(pieces.size(), threads,
                 [&](std::size_t i) { encode(pieces[i], source.tokenizer(), options.ends); });
    for (const Piece& piece : pieces) {
      sink.append(piece.tokens);
      if (piece.last) sink.end_document();
      progress.bytes += static_cast<std::int64_t>(piece.text.size());
      progress.tokens += std::ssize(piece.tokens);
      if (options.report) options.report(progress);
    }
  } while (!source.at_end() && now_seconds() - begin < seconds);
}

void refuse_token_files(const std::vector<std::string>& files) {
  for (const std::string& file : files)
    if (TokenFile::recognises(file))
      refuse(file, " is a token file, not text; give it as data.tokens");
}

TokenSink sink_of(TokenWriter& writer) {
  return {[&](std::span<const std::int32_t> tokens) { writer.append(tokens); },
          [&] { writer.end_document(); }};
}

std::int64_t total_bytes_of(std::span<const std::string> files) {
  std::int64_t bytes = 0;
  for (const std::string& file : files) bytes += InputFile(file).bytes();
  return bytes;
}

std::shared_ptr<const TokenSource> open_parts(const CachedParts& parts) {
  std::vector<std::shared_ptr<const TokenSource>> sources;
  for (const CachedParts::Part& part : parts.whole()) {
    auto source = std::make_shared<TokenFile>(part.path);
    if (source->size() != part.tokens)
      refuse(source->name(), " has ", source->size(), " tokens, not ", part.tokens);
    sources.push_back(std::move(source));
  }
  return std::make_shared<JoinedTokens>(std::move(sources));
}

}  // namespace

TokenizeReport report_to(ProgressLine& line) {
  return [&line](const TokenizeProgress& made) { line(made.bytes, made.total_bytes); };
}

TokenizeProgress tokenize(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          const TokenSink& sink, const TokenizeOptions& options) {
  refuse_token_files(files);
  TokenizeProgress progress{.bytes = 0, .total_bytes = total_bytes_of(files), .tokens = 0};
  Pieces source(files, tokenizer);
  constexpr double kAll = std::numeric_limits<double>::infinity();
  encode_for(kAll, source, sink, options, progress);
  return progress;
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
                                                   const TokenCache& cache,
                                                   const TokenizeReport& report) {
  refuse_token_files(files);
  const std::string path =
      cache_path(cache, "tokens", files, concat(kTokenCacheVersion, ' ', tokenizer.fingerprint()));
  const CachedParts parts(path);
  const TokenizeOptions options{.report = report};
  const auto make_part = [&](const CachedParts::Place& from, const std::string& part,
                             TokenizeProgress& progress) {
    Pieces source(files, tokenizer);
    source.go_to(from);
    TokenWriter writer(part, tokenizer.vocab_size());
    encode_for(cache.part_seconds, source, sink_of(writer), options, progress);
    writer.finish();
    return source.place();
  };
  return open_cached(
      path, cache, [&] { return open_parts(parts); },
      [&] {
        parts.make(
            files, [](const std::string& part) { return TokenFile(part).size(); }, make_part);
      },
      [&] { return tokenize_in_memory(files, tokenizer, options); });
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
  TokenWriter writer(output, encoder->vocab_size());
  const TokenizeProgress result = tokenize(files, *encoder, sink_of(writer), options);
  writer.finish();
  return result;
}

}  // namespace axonn
