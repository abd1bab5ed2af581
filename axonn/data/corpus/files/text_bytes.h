#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "axonn/foundation/base/files.h"

namespace axonn {

/// The text of a file, front to back: its bytes, or what is made of them. A position in it is a
/// number of bytes of the text, or of rows, if rows() has a value.
class TextBytes {
 public:
  explicit TextBytes(InputFile file) : file_(std::move(file)) {}
  virtual ~TextBytes() = default;
  TextBytes(const TextBytes&) = delete;
  TextBytes& operator=(const TextBytes&) = delete;

  /// Fills `out` with the next bytes. Returns their number: less than asked only at the end.
  virtual std::size_t read(std::span<char> out) {
    const std::size_t count = std::min<std::size_t>(out.size(), file_.bytes() - at_);
    file_.read(at_, std::as_writable_bytes(out.first(count)));
    at_ += static_cast<std::int64_t>(count);
    return count;
  }
  /// Moves from the beginning to a position. Returns false if the text ends before.
  virtual bool go_to(std::int64_t position) {
    at_ = position;
    return at_ <= file_.bytes();
  }
  /// Whether the text is the file's bytes.
  virtual bool is_plain() const { return true; }
  /// The number of rows, if a position is a number of rows.
  virtual std::optional<std::int64_t> rows() const { return {}; }
  /// The first row, at or after a byte of the file, to which go_to() moves without reading those
  /// before; rows() if there is none.
  virtual std::int64_t row_after(std::int64_t) const { return 0; }

  const InputFile& file() const { return file_; }
  /// The bytes of the file that were used.
  virtual std::int64_t position() const { return at_; }

 protected:
  InputFile file_;
  std::int64_t at_ = 0;
};

/// Text that is made of a file's bytes, which has to be made again to come to a position in it.
class MadeBytes : public TextBytes {
 public:
  using TextBytes::TextBytes;

  bool is_plain() const final { return false; }
  bool go_to(std::int64_t position) override {
    std::array<char, 1 << 14> passed;
    while (position > 0) {
      const auto wanted = static_cast<std::size_t>(std::min<std::int64_t>(passed.size(), position));
      if (read(std::span(passed).first(wanted)) < wanted) return false;
      position -= static_cast<std::int64_t>(wanted);
    }
    return true;
  }
};

/// Text that is made of a file's rows, a line for each.
class RowLines : public MadeBytes {
 public:
  using MadeBytes::MadeBytes;

  std::size_t read(std::span<char> out) final {
    std::size_t made = 0;
    while (made < out.size()) {
      if (given_ == line_.size()) {
        line_.clear();
        given_ = 0;
        if (!next_line(line_)) break;
      }
      const std::string_view left = std::string_view(line_).substr(given_, out.size() - made);
      std::ranges::copy(left, out.begin() + static_cast<std::ptrdiff_t>(made));
      made += left.size();
      given_ += left.size();
    }
    return made;
  }

 private:
  /// Appends the next row and the end of its line. Returns false, and appends nothing, at the end.
  virtual bool next_line(std::string& to) = 0;

  std::string line_;
  std::size_t given_ = 0;  // of line_
};

}  // namespace axonn
