#include "axonn/app/serve/character_count.h"

#include <algorithm>

#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

/// The bytes at the front of a text that one U+FFFD stands for.
std::size_t invalid_part(std::string_view text) {
  constexpr std::size_t kMost = 3;
  for (std::size_t size = std::min(kMost, text.size()); size > 1; --size)
    if (incomplete_utf8_suffix(text.substr(0, size)) == size) return size;
  return 1;
}

}  // namespace

std::int64_t CharacterCount::add(std::string_view bytes) {
  std::int64_t count = held_.empty() ? 0 : -1;
  held_ += bytes;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Front front = utf8_front(rest);
    ++count;
    if (front.kind == Utf8Front::Kind::incomplete) break;
    const bool whole = front.kind == Utf8Front::Kind::complete;
    rest.remove_prefix(whole ? front.bytes : invalid_part(rest));
  }
  held_ = std::string(rest);
  return count;
}

}  // namespace axonn
