#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace axonn {

class TextBytes;

/// Whether a column of a table is to be read; an empty one: all are.
using ColumnChoice = std::function<bool(std::string_view name)>;

/// Whether a file is read as a JSON object on each line, judged by its name: .jsonl, .ndjson,
/// .json, .csv and .tsv, also with .gz, .zst, .bz2 or .xz behind it, .parquet and .pq, in letters
/// of either case.
bool is_json_lines(std::string_view path);

/// Whether a file's bytes are its text, so neither compressed nor a table. Throws UsageError if it
/// cannot be opened.
bool is_stored_as_text(const std::string& path);

/// Reads the text of a file front to back. Compressed files are decompressed on the way
/// (compressed_bytes.h), and rows of tables become JSON lines (tables.h). Memory: what is asked for
/// at a time, and what these need. A position in a file is a byte of its text, or for Parquet a
/// row.
///
/// Throws UsageError that names the file and the byte in it if it cannot be read, is cut short or
/// is damaged, if its name says that it is compressed and it does not begin so, or if it begins as
/// another format than text does (file_formats.h).
class TextReader {
 public:
  /// `columns` of tables are read.
  explicit TextReader(const std::string& path, const ColumnChoice& columns = {});
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  /// The text from position() on: `bytes` of it, or all that is left if that is less. Valid until
  /// the next call.
  std::string_view peek(std::size_t bytes);
  /// Moves on by `bytes` that peek() has returned.
  void skip(std::size_t bytes);
  /// Moves a new reader to a position where an earlier one was, with so many lines before it.
  /// Decompresses what is before. Throws UsageError if the text ends there or earlier.
  void go_to(std::int64_t position, std::int64_t line);

  /// Takes the next whole lines of about `bytes` bytes, or the next line if it is longer, but none
  /// after the position that is `most` further on, where a line ends. Valid until the next call.
  /// Throws UsageError for a line of more than 1 GiB.
  std::string_view lines(std::size_t bytes, std::size_t most = std::string_view::npos);

  bool at_end() { return peek(1).empty(); }
  const std::string& path() const;
  std::int64_t position() const { return position_; }  ///< the position
  std::int64_t line() const { return line_; }          ///< lines that were taken
  bool is_plain() const;                               ///< whether the text is the file's bytes
  std::int64_t rows() const;                           ///< of Parquet; else 0
  /// Of Parquet, the first row at or after a byte of the file with which a row group begins, or
  /// rows(); else 0.
  std::int64_t row_after(std::int64_t byte) const;
  /// The bytes of the file that were read.
  std::int64_t file_position() const;
  std::int64_t file_bytes() const;

 private:
  std::unique_ptr<TextBytes> bytes_;
  std::string buffer_;     // the text from position_ - begin_ on
  std::size_t begin_ = 0;  // of what was not skipped
  bool whole_ = false;     // whether the buffer has all that is left
  std::int64_t position_ = 0, line_ = 0;
};

/// A position in files that are read one after the other.
struct TextPosition {
  std::size_t file = 0;
  std::int64_t byte = 0;  ///< of its text, as made; for Parquet a row
  std::int64_t line = 0;  ///< lines before it, if they are counted

  bool operator==(const TextPosition&) const = default;
};

/// Reads the texts of files one after the other. The list must outlive it.
class TextFiles {
 public:
  explicit TextFiles(const std::vector<std::string>& files, ColumnChoice columns = {})
      : files_(files), columns_(std::move(columns)) {}

  /// The position up to which text was taken; {number of files} at the end.
  const TextPosition& position() const { return position_; }
  bool at_end() const { return position_.file == files_.size(); }
  void go_to(const TextPosition& position);

  /// The file at position(), to take text from. Call advance() after that.
  TextReader& reader();
  const std::string& file() const { return files_[position_.file]; }
  /// Notes that text was taken. Returns whether it was the last of its file.
  bool advance();
  /// The bytes of the files that were read, up to position().
  std::int64_t bytes() const { return bytes_; }

 private:
  const std::vector<std::string>& files_;
  ColumnChoice columns_;
  TextPosition position_;
  std::optional<TextReader> reader_;     // of the file at position_, once it was asked for
  std::int64_t before_ = 0, bytes_ = 0;  // of the files before it; up to position_
};

}  // namespace axonn
