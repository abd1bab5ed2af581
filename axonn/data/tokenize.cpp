#include "axonn/data/tokenize.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>

#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/base/hash.h"
#include "axonn/base/host.h"
#include "axonn/base/random.h"

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
  struct Place {
    std::size_t file = 0;
    std::int64_t byte = 0;
  };
  Place place() const { return file_ ? Place{at_ - 1, read_} : Place{at_, 0}; }
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

/// The tokens of text files in a cache (tokenize_cached()).
class TokenParts {
 public:
  explicit TokenParts(std::string path) : path_(std::move(path)) {}

  std::shared_ptr<const TokenSource> open() {
    read_list();
    if (!whole_) refuse(path_, ": not all text is tokenised");
    std::vector<std::shared_ptr<const TokenSource>> sources;
    for (std::size_t i = 0; i < parts_.size(); ++i) sources.push_back(open_part(i));
    return std::make_shared<JoinedTokens>(std::move(sources));
  }

  /// Makes the parts that are missing, and those after a damaged one.
  void make(const std::vector<std::string>& files, const Tokenizer& tokenizer, double part_seconds,
            const TokenizeReport& report) {
    Pieces source(files, tokenizer);
    TokenizeProgress progress{.bytes = 0, .total_bytes = total_bytes_of(files), .tokens = 0};
    keep_good_parts(files);
    if (!parts_.empty()) {
      const auto [file, byte] = parts_.back().end;
      source.go_to(parts_.back().end);
      progress.bytes = total_bytes_of(std::span(files).first(file)) + byte;
      for (const Part& part : parts_) progress.tokens += part.tokens;
    }
    while (parts_.empty() || !source.at_end()) {
      TokenWriter writer(part_path(parts_.size()), tokenizer.vocab_size());
      const std::int64_t before = progress.tokens;
      encode_for(part_seconds, source, sink_of(writer), {.report = report}, progress);
      writer.finish();
      parts_.push_back({source.place(), progress.tokens - before});
      write_list("");
    }
    write_list("whole\n");
  }

 private:
  struct Part {
    Pieces::Place end;
    std::int64_t tokens;
  };

  std::string part_path(std::size_t part) const { return concat(path_, '-', part); }

  std::shared_ptr<const TokenSource> open_part(std::size_t part) const {
    auto source = std::make_shared<TokenFile>(part_path(part));
    if (source->size() != parts_[part].tokens)
      refuse(source->name(), " has ", source->size(), " tokens, but ", path_, " counts ",
             parts_[part].tokens);
    return source;
  }

  void read_list() {
    std::istringstream list(read_text(path_));
    parts_.clear();
    for (Part part{}; list >> part.end.file >> part.end.byte >> part.tokens;)
      parts_.push_back(part);
    list.clear();
    std::string last;
    whole_ = list >> last && last == "whole" && !parts_.empty();
  }

  void keep_good_parts(std::span<const std::string> files) {
    std::size_t good = 0;
    try {
      read_list();
      for (; good < parts_.size(); ++good) {
        open_part(good);
        const auto [file, byte] = parts_[good].end;
        if (file > files.size() || byte < 0) break;
        if (byte > 0 && (file == files.size() || byte >= InputFile(files[file]).bytes())) break;
      }
    } catch (const UsageError&) {  // missing or damaged
    }
    parts_.resize(good);
  }

  void write_list(const char* last) const {
    std::string list;
    for (const auto& [end, tokens] : parts_)
      list += concat(end.file, ' ', end.byte, ' ', tokens, '\n');
    write_file_atomically(path_, list + last);
  }

  std::string path_;
  std::vector<Part> parts_;
  bool whole_ = false;
};

}  // namespace

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
  TokenParts parts(path);
  return open_cached(
      path, cache, [&] { return parts.open(); },
      [&] { parts.make(files, tokenizer, cache.part_seconds, report); });
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

std::string cache_path(const TokenCache& cache, const std::string& kind,
                       const std::vector<std::string>& files, const std::string& how) {
  if (cache.makes) {
    make_folders(cache.folder);
    remove_abandoned(cache.folder);
  }
  std::error_code error;  // ignored: opening a missing file gives a better message
  std::string key = how;
  for (const std::string& file : files)
    key +=
        concat('\n', fs::weakly_canonical(file, error).string(), '\n', fs::file_size(file, error),
               '\n', fs::last_write_time(file, error).time_since_epoch().count());
  return concat(cache.folder, '/', kind, '-', hex_of(hash_text(key)));
}

double wait_for_cached(const std::string& path, const TokenCache& cache, double waited,
                       const std::string& fault) {
  if (waited >= cache.patience_seconds)
    refuse("after ", waited, " seconds this rank still cannot read ", path,
           ", which the run's first rank made: ", fault,
           "; output.dir must be on a file system that all ranks share, and the data files must "
           "have the same paths and times on all of them");
  const double seconds = std::clamp(waited, 0.05, 2.0);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  // Listing the folder makes an NFS client ask its server for the names.
  std::error_code error;
  for (fs::directory_iterator at(cache.folder, error), end; !error && at != end;)
    at.increment(error);
  return waited + seconds;
}

}  // namespace axonn
