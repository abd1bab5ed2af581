#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// A token that a text is searched for before it is cut into words.
struct AddedToken {
  std::string content;
  std::int32_t id;
  bool special = false;
  /// Whether it is searched for in the text that the normalizer gives, itself normalized.
  bool normalized = false;
};

/// Finds added tokens in a text.
class AddedTokenFinder {
 public:
  struct Match {
    std::size_t begin, bytes;
    std::int32_t token;
  };

  /// No two contents may be equal, and none empty.
  void add(std::string content, std::int32_t token);

  /// The first match at or behind `from`; of several there the longest.
  std::optional<Match> find(std::string_view text, std::size_t from = 0) const;

 private:
  struct Entry {
    std::string content;
    std::int32_t token;
  };

  std::size_t next_candidate(std::string_view text, std::size_t from) const;

  std::array<std::vector<Entry>, 256> by_first_byte_;  // the longest first
  std::array<bool, 256> begins_{};
  std::string first_bytes_;
};

}  // namespace axonn
