#include "axonn/data/text/word_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace axonn {

static_assert(std::endian::native == std::endian::little, "the masks keep a key's first bytes");

WordCache::Key WordCache::key_of(std::string_view text, std::size_t word_bytes) {
  Key key;
  if (word_bytes == 0 || word_bytes > 16) return key;
  key.bytes = static_cast<std::uint32_t>(word_bytes);
  if (text.size() < 16) {
    std::memcpy(&key.low, text.data(), std::min<std::size_t>(8, word_bytes));
    if (word_bytes > 8) std::memcpy(&key.high, text.data() + 8, word_bytes - 8);
    return key;
  }
  std::memcpy(&key.low, text.data(), 8);
  if (word_bytes < 8) {
    key.low &= (std::uint64_t{1} << (8 * word_bytes)) - 1;
  } else if (word_bytes > 8) {
    std::memcpy(&key.high, text.data() + 8, 8);
    if (word_bytes < 16) key.high &= (std::uint64_t{1} << (8 * (word_bytes - 8))) - 1;
  }
  return key;
}

std::size_t WordCache::slot_of(const Key& key) {
  const std::uint64_t mixed =
      (key.low ^ std::rotl(key.high * 0x9e3779b97f4a7c15ULL, 29)) * 0xbf58476d1ce4e5b9ULL;
  return (mixed ^ (mixed >> 32)) % kSlots;
}

std::span<const std::int32_t> WordCache::find(const Key& key) const {
  const Slot& slot = slots_[slot_of(key)];
  if (slot.bytes != key.bytes || slot.low != key.low || slot.high != key.high) return {};
  return {slot.tokens.data(), slot.count};
}

void WordCache::keep(const Key& key, std::span<const std::int32_t> tokens) {
  if (key.bytes == 0 || tokens.size() > kTokens) return;
  Slot& slot = slots_[slot_of(key)];
  slot.low = key.low;
  slot.high = key.high;
  slot.bytes = key.bytes;
  slot.count = static_cast<std::uint32_t>(tokens.size());
  std::ranges::copy(tokens, slot.tokens.begin());
}

}  // namespace axonn
