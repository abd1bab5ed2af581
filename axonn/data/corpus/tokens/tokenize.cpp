#include "axonn/data/corpus/tokens/tokenize.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/host.h"

namespace axonn {

namespace fs = std::filesystem;

namespace {

// Part of every cache file's name: raise it when tokenize() gives other tokens for the same files.
constexpr int kTokenCacheVersion = 3;

constexpr std::size_t kTextBytes = std::size_t{4} << 20;

// Tokenizer::cut() depends on no text further beyond its position.
constexpr std::size_t kSeenBeyondACut = std::size_t{64} << 10;

/// A piece of a file's text and, once encoded, its tokens.
struct Piece {
  std::string text = {};
  std::string lines_of = {};       ///< the file, if the text is lines of JSON; else ""
  std::int64_t line = 0;           ///< lines of the file before them
  bool first = true, last = true;  ///< of the one document that the file is
  std::int64_t bytes = 0;          ///< of all files, up to the piece's end
  std::vector<std::int32_t> tokens = {};
  std::vector<std::size_t> ends = {};  ///< in tokens, of the documents that end here
};

/// Cuts files into pieces, in order.
class Pieces {
 public:
  /// `field`: of rows, the documents.
  Pieces(const std::vector<std::string>& files, const Tokenizer& tokenizer, std::string field)
      : files_(files, [field = std::move(field)](
                          std::string_view name) { return decides_text(name, field); }),
        tokenizer_(tokenizer) {}

  const Tokenizer& tokenizer() const { return tokenizer_; }
  /// Up to which pieces were returned.
  TextFiles& files() { return files_; }
  /// Pieces from here on are returned, up to there.
  void restrict_to(const TextPosition& begin, const TextPosition& end) {
    files_.go_to(begin);
    end_ = end;
  }
  bool at_end() const {
    const TextPosition& at = files_.position();
    return files_.at_end() || (at.file == end_.file && at.byte == end_.byte);
  }

  /// The next pieces, about `bytes` bytes together; empty after the last one.
  std::vector<Piece> next(std::size_t bytes) {
    std::vector<Piece> pieces;
    for (std::size_t taken = 0; taken < bytes && !at_end();) {
      const Piece& piece = pieces.emplace_back(take());
      // Whole lines are a little shorter than what was asked for.
      taken +=
          piece.last ? piece.text.size() + sizeof(Piece) : std::max(piece.text.size(), kTextBytes);
    }
    return pieces;
  }

 private:
  Piece take() {
    TextReader& reader = files_.reader();
    Piece piece{.line = reader.line(), .first = reader.position() == 0};
    if (is_json_lines(files_.file())) {
      piece.lines_of = files_.file();
      piece.text = reader.lines(kTextBytes, left());
    } else {
      piece.text = take_text(reader);
    }
    piece.last = files_.advance();
    piece.bytes = files_.bytes();
    return piece;
  }

  /// Bytes that may be taken of the file, of which a part may have only the beginning.
  std::size_t left() const {
    return files_.position().file == end_.file
               ? static_cast<std::size_t>(end_.byte - files_.position().byte)
               : std::string_view::npos;
  }

  std::string take_text(TextReader& reader) const {
    if (left() <= kTextBytes) {
      std::string piece(reader.peek(left()));
      reader.skip(piece.size());
      return piece;
    }
    for (std::size_t wanted = kTextBytes + kSeenBeyondACut;; wanted *= 2) {
      const std::string_view text = reader.peek(wanted);
      const std::size_t at = std::min(tokenizer_.cut(text, kTextBytes), left());
      if (text.size() == wanted && at != left() && at + kSeenBeyondACut > wanted) continue;
      std::string piece(text.substr(0, at));
      reader.skip(at);
      return piece;
    }
  }

  TextFiles files_;
  const Tokenizer& tokenizer_;
  TextPosition end_{.file = std::numeric_limits<std::size_t>::max()};
};

/// The first position in a file, at or after a byte, where a line begins; the file's size if none
/// does.
std::int64_t line_after(TextReader& reader, std::int64_t byte) {
  reader.go_to(byte - 1, 0);
  for (std::size_t wanted = kSeenBeyondACut;; wanted *= 2) {
    const std::string_view text = reader.peek(wanted);
    const std::size_t end = text.find('\n');
    if (end != text.npos) return byte + static_cast<std::int64_t>(end);
    if (text.size() < wanted) return reader.file_bytes();
  }
}

/// The same where the tokenizer can cut. It sees as much on both sides as in Pieces.
std::int64_t cut_after(TextReader& reader, std::int64_t byte, const Tokenizer& tokenizer) {
  const auto before = std::min(byte, static_cast<std::int64_t>(kSeenBeyondACut));
  if (before < byte) reader.go_to(byte - before, 0);
  for (std::size_t wanted = 4 * kSeenBeyondACut;; wanted *= 2) {
    const std::string_view text = reader.peek(wanted);
    const std::size_t at = tokenizer.cut(text, static_cast<std::size_t>(before));
    if (text.size() == wanted && at + kSeenBeyondACut > wanted) continue;
    return byte - before + static_cast<std::int64_t>(at);
  }
}

/// The first position in the files, at or after a byte of them all, where a part of them may begin.
TextPosition border_after(std::int64_t byte, const std::vector<std::string>& files,
                          const Tokenizer& tokenizer) {
  for (std::size_t i = 0; i < files.size() && byte > 0; ++i) {
    const std::int64_t size = InputFile(files[i]).bytes();
    if (byte < size) {
      TextReader reader(files[i]);
      if (!reader.is_plain()) {
        const std::int64_t row = reader.row_after(byte);
        if (row < reader.rows()) return {.file = i, .byte = row, .line = row};
      } else {
        const std::int64_t at =
            is_json_lines(files[i]) ? line_after(reader, byte) : cut_after(reader, byte, tokenizer);
        if (at < size) return {.file = i, .byte = at};
      }
    }
    if (byte <= size) return {.file = i + 1};
    byte -= size;
  }
  return {.file = byte > 0 ? files.size() : 0};
}

/// The lines of a file before a byte.
std::int64_t lines_before(const std::string& file, std::int64_t byte) {
  TextReader reader(file);
  while (reader.position() < byte)
    reader.lines(kTextBytes, static_cast<std::size_t>(byte - reader.position()));
  return reader.line();
}

/// Appends the tokens of a document, or of its first or last piece.
void encode_document(std::string_view text, Piece& piece, const Tokenizer& tokenizer, bool ends) {
  std::vector<std::int32_t>& tokens = piece.tokens;
  const std::size_t start = tokens.size();
  tokenizer.encode_into(text, tokens, {.continues = !piece.first});
  if (piece.first) tokenizer.add_begin(tokens, start);
  if (!piece.last) return;
  if (const auto end = tokenizer.end_of_text();
      ends && end && (tokens.size() == start || tokens.back() != end))
    tokens.push_back(*end);
  piece.ends.push_back(tokens.size());
}

void encode(Piece& piece, const Tokenizer& tokenizer, const TokenizeOptions& options) {
  if (piece.lines_of.empty()) return encode_document(piece.text, piece, tokenizer, options.ends);
  piece.first = piece.last = true;
  for (const Line& line : lines_of(piece.text, piece.lines_of, piece.line))
    encode_document(text_of_line(line, options.field), piece, tokenizer, options.ends);
}

/// Encodes the pieces that are left for about so many seconds. Adds to `progress` and reports it.
void encode_for(double seconds, Pieces& source, const TokenSink& sink,
                const TokenizeOptions& options, TokenizeProgress& progress) {
  const int threads = options.threads > 0 ? options.threads : usable_core_count();
  const double begin = now_seconds();
  do {
    std::vector<Piece> pieces = source.next(threads * kTextBytes);
    parallel_for(pieces.size(), threads,
                 [&](std::size_t i) { encode(pieces[i], source.tokenizer(), options); });
    for (const Piece& piece : pieces) {
      std::span<const std::int32_t> tokens = piece.tokens;
      std::size_t ended = 0;
      for (const std::size_t end : piece.ends) {
        sink.append(tokens.subspan(ended, end - ended));
        sink.end_document();
        ended = end;
      }
      if (ended < tokens.size()) sink.append(tokens.subspan(ended));
      progress.bytes = piece.bytes;
      progress.tokens += std::ssize(tokens);
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

std::shared_ptr<const TokenSource> open_parts(const CachedParts& parts,
                                              const std::vector<std::string>& files) {
  std::vector<std::shared_ptr<const TokenSource>> sources;
  std::vector<bool> continued;
  bool inside = false;  // whether the part before ends inside a document
  for (const CachedParts::Part& part : parts.whole()) {
    continued.push_back(inside);
    const auto& [file, byte, line] = part.end;
    inside = byte > 0 && file < files.size() && !is_json_lines(files[file]);
    auto source = std::make_shared<TokenFile>(part.path);
    if (source->size() != part.tokens)
      refuse(source->name(), " has ", source->size(), " tokens, not ", part.tokens);
    sources.push_back(std::move(source));
  }
  return std::make_shared<JoinedTokens>(std::move(sources), std::move(continued));
}

}  // namespace

TokenizeReport report_to(ProgressLine& line) {
  return [&line](const TokenizeProgress& made) { line(made.bytes, made.total_bytes); };
}

TokenizeProgress tokenize(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          const TokenSink& sink, const TokenizeOptions& options) {
  refuse_token_files(files);
  TokenizeProgress progress{.bytes = 0, .total_bytes = total_bytes_of(files), .tokens = 0};
  constexpr double kAll = std::numeric_limits<double>::infinity();
  const auto border = [&](std::int64_t part) {
    return border_after(progress.total_bytes / options.parts * part +
                            progress.total_bytes % options.parts * part / options.parts,
                        files, tokenizer);
  };
  TextPosition begin, end{.file = files.size()};
  if (options.part > 0) begin = border(options.part);
  if (options.part + 1 < options.parts) end = border(options.part + 1);
  const auto encode_part = [&](const TokenSink& to) {
    Pieces source(files, tokenizer, options.field);
    source.restrict_to(begin, end);
    if (!source.at_end()) encode_for(kAll, source, to, options, progress);
  };
  try {
    encode_part(sink);
  } catch (const UsageError&) {
    if (begin.byte == 0 || !is_json_lines(files[begin.file])) throw;
    begin.line = lines_before(files[begin.file], begin.byte);  // for the message
    encode_part({.append = [](std::span<const std::int32_t>) {}});
    throw;
  }
  return progress;
}

std::shared_ptr<const TokenSource> tokenize_in_memory(const std::vector<std::string>& files,
                                                      const Tokenizer& tokenizer,
                                                      const TokenizeOptions& options) {
  std::vector<std::int32_t> all;
  std::vector<std::int64_t> begins{0};
  const TokenSink sink{.append =
                           [&](std::span<const std::int32_t> tokens) {
                             all.insert(all.end(), tokens.begin(), tokens.end());
                           },
                       .end_document =
                           [&] {
                             if (begins.back() < std::ssize(all)) begins.push_back(std::ssize(all));
                           }};
  tokenize(files, tokenizer, sink, options);
  const std::string more = files.size() > 1 ? concat(" and ", files.size() - 1, " more") : "";
  return std::make_shared<MemoryTokens>(files.front() + more, std::move(all), std::move(begins));
}

std::shared_ptr<const TokenSource> tokenize_cached(const std::vector<std::string>& files,
                                                   const Tokenizer& tokenizer,
                                                   const TokenCache& cache,
                                                   const TokenizeOptions& options) {
  refuse_token_files(files);
  std::string how = concat(kTokenCacheVersion, ' ', tokenizer.fingerprint(), ' ', options.ends);
  if (std::ranges::any_of(files, is_json_lines)) how += ' ' + options.field;
  const std::string path = cache_path(cache, "tokens", files, how);
  const CachedParts parts(path);
  Pieces source(files, tokenizer,
                options.field);  // goes on where a part ends, without reading again
  const auto make_part = [&](const TextPosition& from, const std::string& part,
                             TokenizeProgress& progress) {
    source.files().go_to(from);
    TokenWriter writer(part, tokenizer.vocab_size());
    encode_for(cache.part_seconds, source, sink_of(writer), options, progress);
    writer.finish();
    return source.files().position();
  };
  return open_cached(
      path, cache, [&] { return open_parts(parts, files); },
      [&] {
        parts.make(
            files, [](const std::string& part) { return TokenFile(part).size(); }, make_part);
      },
      [&] { return tokenize_in_memory(files, tokenizer, options); });
}

TokenizeInput tokenize_input(const std::string& tokenizer, const std::vector<std::string>& text,
                             const std::string& output) {
  if (text.empty()) refuse("data tokenize needs --text FILE or a folder");
  if (output.empty()) refuse("data tokenize needs --out FILE.bin");
  TokenizeInput input{make_tokenizer(tokenizer), text_files(text)};
  for (const std::string& file : input.files)
    for (const char* ending : {"", ".bin", ".idx"})  // Megatron's files have the endings
      if (std::error_code error; fs::equivalent(file, output + ending, error))
        refuse("the output ", output, ending, " is one of the text files");
  return input;
}

void need_text(const TokenizeInput& input, std::int64_t tokens, std::int64_t documents, bool ends) {
  const Tokenizer& tokenizer = *input.tokenizer;
  const std::int64_t of_empty =
      std::ssize(tokenizer.begin_of_text()) + (ends && tokenizer.end_of_text() ? 1 : 0);
  if (tokens > documents * of_empty) return;
  const std::string more =
      input.files.size() == 1 ? "" : concat(" and ", input.files.size() - 1, " more files");
  if (documents > 0)
    refuse(input.files.front(), more, ": no text to tokenize; all documents are empty");
  refuse(input.files.front(), more,
         ": no text to tokenize; a file of text needs at least a byte, and one of JSON lines a "
         "line like {\"text\": ...}");
}

TokenizeProgress tokenize_files(const std::string& tokenizer, const std::vector<std::string>& text,
                                const std::string& output, const TokenizeOptions& options) {
  const TokenizeInput input = tokenize_input(tokenizer, text, output);
  TokenWriter writer(output, input.tokenizer->vocab_size());
  std::int64_t documents = 0;
  const TokenSink to = sink_of(writer), sink{to.append, [&] {
                                               to.end_document();
                                               ++documents;
                                             }};
  const TokenizeProgress result = tokenize(input.files, *input.tokenizer, sink, options);
  need_text(input, result.tokens, documents, options.ends);
  writer.finish();
  return result;
}

}  // namespace axonn
