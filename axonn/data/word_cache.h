#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace axonn {

/// Remembers the tokens of words that were met before. A word has one place; a later word takes
/// it. Long words and words of many tokens are not kept.
class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

  /// The first bytes of text as a key; text may go on behind the word.
  struct Key {
    std::uint64_t low = 0, high = 0;
    std::uint32_t bytes = 0;  ///< 0: the word is too long to be kept
  };
  static Key key_of(std::string_view text, std::size_t word_bytes);

  /// The tokens of the word, or none if it is not here.
  std::span<const std::int32_t> find(const Key& key) const;

  void keep(const Key& key, std::span<const std::int32_t> tokens);

 private:
  static constexpr std::size_t kSlots = std::size_t{1} << 15;  // 2 MiB: what a core's cache holds
  static constexpr std::size_t kTokens = 10;                   // makes a slot one cache line

  struct alignas(64) Slot {
    std::uint64_t low = 0, high = 0;
    std::uint32_t bytes = 0, count = 0;
    std::array<std::int32_t, kTokens> tokens{};
  };

  static std::size_t slot_of(const Key& key);

  std::vector<Slot> slots_;
};

}  // namespace axonn
