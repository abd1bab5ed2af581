#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
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

/// Objects that threads use one at a time and give back for the next thread.
template <typename T>
class Pool {
 public:
  /// An idle object, or make() if there is none.
  template <typename Make>
  std::unique_ptr<T> take(const Make& make) {
    std::unique_lock lock(mutex_);
    if (idle_.empty()) {
      lock.unlock();
      return make();
    }
    std::unique_ptr<T> object = std::move(idle_.back());
    idle_.pop_back();
    return object;
  }
  void give_back(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(object));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace axonn
