#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// A token that is searched for in a text before the text is cut into words.
struct AddedToken {
  std::string content;
  std::int32_t id;
  bool special = false;
  /// Whether its normalized content is searched for in the normalized text.
  bool normalized = false;
};

/// Finds added tokens in a text.
class AddedTokenFinder {
 public:
  struct Match {
    std::size_t begin, bytes;
    std::int32_t token;
  };

  /// Contents must be different and not empty.
  void add(std::string content, std::int32_t token);

  /// The first match at or after `from`; the longest of several at one place.
  std::optional<Match> find(std::string_view text, std::size_t from = 0) const;

 private:
  struct Entry {
    std::string content;
    std::int32_t token;
  };

  std::size_t next_candidate(std::string_view text, std::size_t from) const;

  std::array<std::vector<Entry>, 256> by_first_byte_;  // longest first
  std::array<bool, 256> begins_{};
  std::string first_bytes_;
};

}  // namespace axonn
