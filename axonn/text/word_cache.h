#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace axonn {

/// Caches the tokens of words. Each word has one slot, which a later word may overwrite. Long words
/// and words of many tokens are not kept.
class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

  /// The key of the word in the first word_bytes bytes of `text`, which may be longer.
  struct Key {
    std::uint64_t low = 0, high = 0;
    std::uint32_t bytes = 0;  ///< 0: the word is too long to be kept
  };
  static Key key_of(std::string_view text, std::size_t word_bytes);

  /// The tokens of the word; empty if it is not in the cache.
  std::span<const std::int32_t> find(const Key& key) const;

  void keep(const Key& key, std::span<const std::int32_t> tokens);

 private:
  static constexpr std::size_t kSlots = std::size_t{1} << 15;  // 2 MiB: fits a core's cache
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
