#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/text/unicode/properties.h"

namespace axonn::jinja {

/// Where a piece of text comes from.
struct Origin {
  /// The template itself, or data that belongs to no message (tools, documents). From 0 on: the
  /// message with this index.
  static constexpr std::int32_t kTemplate = -1, kData = -2;

  std::int32_t source = kTemplate;
  bool marked = false;  ///< written within {% generation %}

  bool operator==(const Origin&) const = default;
};

/// A text whose pieces know their origin. Every operation on texts keeps the origin of each
/// character: the parts of a concatenation, what strip(), split() and slices leave, each character
/// that tojson, replace() or upper() rewrites. What replace() inserts has the origin of the
/// inserted text. An empty piece of a message is kept too, as the position where an empty message
/// stands.
class Text {
 public:
  Text() = default;
  explicit Text(std::string_view bytes, Origin origin = {}) : bytes_(bytes), first_(origin) {}

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  /// The memory that it takes.
  std::size_t cost() const { return bytes_.size() + runs_.size() * sizeof(Run); }
  /// The most memory that a text may take, so that no template makes more at once.
  static constexpr std::size_t kMostCost = std::size_t{64} << 20;

  /// Throws UsageError if the text then takes more than kMostCost.
  void append(std::string_view bytes, Origin origin);
  void append(const Text& other);
  /// Removes the bytes from `size` on.
  void cut(std::size_t size);
  /// Marks everything as written within {% generation %}.
  void mark();

  /// The bytes [begin, end).
  Text slice(std::size_t begin, std::size_t end) const;
  Text slice(std::string_view part) const {  // of bytes()
    const auto begin = static_cast<std::size_t>(part.data() - bytes_.data());
    return slice(begin, begin + part.size());
  }
  Origin origin() const { return runs_.empty() ? first_ : runs_.front().origin; }

  /// Calls f(bytes, origin) for each piece, in order.
  template <typename F>
  void for_pieces(const F& f) const {
    if (runs_.empty()) return f(std::string_view(bytes_), first_);
    std::size_t begin = 0;
    for (const Run& run : runs_) {
      f(std::string_view(bytes_).substr(begin, run.end - begin), run.origin);
      begin = run.end;
    }
  }

  /// The text with f(bytes) for each piece.
  template <typename F>
  Text mapped(const F& f) const {
    Text out;
    for_pieces([&](std::string_view bytes, Origin origin) { out.append(f(bytes), origin); });
    return out;
  }

 private:
  struct Run {
    std::size_t end;
    Origin origin;
  };

  std::string bytes_;
  Origin first_;           // of the whole text, if runs_ is empty
  std::vector<Run> runs_;  // else all of it
};

// Functions of characters as Python's str has them. Texts are UTF-8.

/// The byte at which character `index` begins; text.size() if there are fewer.
std::size_t byte_of_character(std::string_view text, std::size_t index);
/// The bytes of the first character; text must not be empty.
std::string_view first_character(std::string_view text);

bool is_white_space(char32_t c);
/// str.title(): each first letter of a word in upper case, the others in lower case. `once`:
/// str.capitalize(), only that of the whole text.
Text title_case(const Text& text, bool once);

/// Strips white space, or any of `characters` if they are given (not nullptr).
std::string_view strip(std::string_view text, Strip which, const std::string* characters);
/// str.splitlines().
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace axonn::jinja
