#include "axonn/data/corpus/files/text_reader.h"

#include <algorithm>
#include <array>
#include <span>

#include "axonn/data/corpus/files/compressed_bytes.h"
#include "axonn/data/corpus/files/file_formats.h"
#include "axonn/data/corpus/files/tables.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

namespace axonn {

namespace {

constexpr std::size_t kLeastRead = std::size_t{64} << 10;  // of text, made at a time
constexpr std::size_t kMostBytesALine = std::size_t{1} << 30;

struct CompressionName {
  std::string_view ending;  // in lower case
  Compression compression;
  const char* name;
};
constexpr std::array<CompressionName, 4> kCompressions{
    {{".gz", Compression::gzip, "gzip"},
     {".zst", Compression::zstandard, "Zstandard"},
     {".bz2", Compression::bzip2, "bzip2"},
     {".xz", Compression::xz, "xz"}}};

bool is_parquet(std::string_view path) { return ends_in(path, ".parquet") || ends_in(path, ".pq"); }

/// The character between values of a table with such a name; 0 if it is none.
char separator_of(std::string_view path) {
  path = without_compression(path);
  return ends_in(path, ".csv") ? ',' : ends_in(path, ".tsv") ? '\t' : '\0';
}

/// Throws if the name says that a file is compressed otherwise than its first bytes do.
void check_compression(const InputFile& file, Compression found) {
  for (const auto& [ending, compression, name] : kCompressions)
    if (ends_in(file.path(), ending) && found != compression)
      refuse(file.path(), file.bytes() == 0 ? " is empty" : " is damaged at byte 0",
             ": it does not begin as ", name, " data do; copy or download it again, or rename it");
}

/// Also refuses what is text neither as it is nor decompressed, such as an archive.
std::unique_ptr<TextBytes> open_bytes(const std::string& path, const ColumnChoice& columns) {
  InputFile file(path);
  if (is_parquet(path)) return parquet_lines(std::move(file), columns);
  const Compression found = compression_of(file);
  check_compression(file, found);
  std::array<char, kFormatBytes> begin{};
  refuse_format(path, {begin.data(), decompressed(InputFile(path), found)->read(begin)});
  auto text = decompressed(std::move(file), found);
  const char separator = separator_of(path);
  return separator ? csv_lines(std::move(text), separator, columns) : std::move(text);
}

/// The first `most` of some lines.
std::string_view first_lines(std::string_view text, std::size_t most) {
  std::size_t end = 0;
  for (; most > 0 && end < text.size(); --most)
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  return text.substr(0, end);
}

}  // namespace

bool is_json_lines(std::string_view path) {
  if (is_parquet(path) || separator_of(path)) return true;
  path = without_compression(path);
  return ends_in(path, ".jsonl") || ends_in(path, ".ndjson") || ends_in(path, ".json");
}

bool is_stored_as_text(const std::string& path) {
  return !is_parquet(path) && !separator_of(path) &&
         compression_of(InputFile(path)) == Compression::none;
}

TextReader::TextReader(const std::string& path, const ColumnChoice& columns)
    : bytes_(open_bytes(path, columns)) {}
TextReader::~TextReader() = default;

std::string_view TextReader::peek(std::size_t bytes) {
  if (!whole_ && buffer_.size() - begin_ < bytes) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    const std::size_t had = buffer_.size(), wanted = std::max(bytes - had, kLeastRead);
    buffer_.resize(had + wanted);
    const std::size_t got = bytes_->read(std::span(buffer_).subspan(had));
    buffer_.resize(had + got);
    whole_ = got < wanted;
  }
  return std::string_view(buffer_).substr(begin_, bytes);
}

void TextReader::skip(std::size_t bytes) {
  begin_ += bytes;
  position_ += static_cast<std::int64_t>(bytes);
}

void TextReader::go_to(std::int64_t position, std::int64_t line) {
  const bool there = bytes_->go_to(position);
  position_ = position;
  line_ = line;
  if (!there || at_end())
    refuse(path(), " ends at or before ", bytes_->rows() ? "row " : "byte ", position,
           " of its text, where a run had come; it is not ", "the file that it was");
}

std::string_view TextReader::lines(std::size_t bytes, std::size_t most) {
  const bool rows = bytes_->rows().has_value();
  const std::size_t most_bytes = rows ? std::string_view::npos : most;
  for (std::size_t wanted = std::max(bytes, kLeastRead);; wanted *= 2) {
    std::string_view text = peek(std::min(wanted, most_bytes));
    const bool rest = text.size() < wanted || wanted >= most_bytes;
    const std::size_t end = text.rfind('\n');
    if (!rest && end == text.npos) {
      if (wanted > kMostBytesALine)
        refuse(path(), ':', line_ + 1, ": the line has more than ", kMostBytesALine, " bytes");
      continue;
    }
    if (!rest) text = text.substr(0, end + 1);
    if (rows) text = first_lines(text, most);
    begin_ += text.size();
    const std::int64_t count =
        std::ranges::count(text, '\n') + (text.ends_with('\n') || text.empty() ? 0 : 1);
    line_ += count;
    position_ += rows ? count : std::ssize(text);
    return text;
  }
}

bool TextReader::is_plain() const { return bytes_->is_plain(); }

std::int64_t TextReader::rows() const { return bytes_->rows().value_or(0); }

std::int64_t TextReader::row_after(std::int64_t byte) const { return bytes_->row_after(byte); }

const std::string& TextReader::path() const { return bytes_->file().path(); }

std::int64_t TextReader::file_bytes() const { return bytes_->file().bytes(); }

std::int64_t TextReader::file_position() const {
  return bytes_->is_plain() ? position_ : bytes_->position();
}

void TextFiles::go_to(const TextPosition& position) {
  if (position == position_) return;
  reader_.reset();
  position_ = position;
  before_ = 0;
  for (std::size_t i = 0; i < position.file; ++i) before_ += InputFile(files_[i]).bytes();
  bytes_ = before_;
}

TextReader& TextFiles::reader() {
  if (!reader_) {
    reader_.emplace(file(), columns_);
    if (position_.byte > 0) reader_->go_to(position_.byte, position_.line);
  }
  return *reader_;
}

bool TextFiles::advance() {
  const bool last = reader().at_end();
  if (last) {
    before_ += reader_->file_bytes();
    bytes_ = before_;
    position_ = {.file = position_.file + 1};
    reader_.reset();
  } else {
    bytes_ = before_ + reader_->file_position();
    position_ = {.file = position_.file, .byte = reader_->position(), .line = reader_->line()};
  }
  return last;
}

}  // namespace axonn
