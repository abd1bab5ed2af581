#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>

namespace axonn {

/// Reads the lines of a file that another process writes: each call reads what was added since.
///
/// The file need not exist yet. A last line without its end waits until it has one. A file that was
/// replaced, shortened or rewritten (a run that resumed) is read again from its beginning. Lines of
/// more than kMostLine bytes are skipped.
class LineTail {
 public:
  static constexpr std::size_t kMostLine = std::size_t{1} << 20;
  /// A line without its end, and the byte of the file at which it begins.
  using Take = std::function<void(std::string_view line, std::int64_t offset)>;

  explicit LineTail(std::string path) : path_(std::move(path)) {}

  /// Passes new lines to `take` for about `seconds`. Calls `begin_anew` first if lines
  /// that were passed earlier no longer count. Returns whether there are more. Never throws: a file
  /// that cannot be read has no lines.
  bool read(const std::function<void()>& begin_anew, const Take& take, double seconds);

  const std::string& path() const { return path_; }
  /// When the file was last written, in seconds since 1970; 0 if there is none.
  std::time_t written() const { return written_; }

 private:
  bool is_same(int file, std::uint64_t id, std::int64_t bytes) const;

  std::string path_;
  std::int64_t offset_ = 0;  // of the first line that was not passed
  std::uint64_t id_ = 0;     // the file's number in its file system
  std::string before_;       // the bytes just before offset_, to notice that the file was rewritten
  std::time_t written_ = 0;
  bool within_long_ = false;  // whether offset_ is within a line that is skipped
};

/// Passes the whole lines from one byte of a file to another to `take`. Never throws.
void read_lines(const std::string& path, std::int64_t from, std::int64_t to,
                const LineTail::Take& take);

}  // namespace axonn
