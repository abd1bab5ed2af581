#include "axonn/base/hash.h"

#include <algorithm>
#include <utility>

#include <xxhash.h>

#include "axonn/base/check.h"

namespace axonn {

std::uint64_t xxh3(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t xxh3(std::string_view text) { return xxh3(std::as_bytes(std::span(text))); }

std::string hex_of(std::uint64_t value) {
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4)
    text[static_cast<std::size_t>(i)] = "0123456789abcdef"[value & 15];
  return text;
}

std::optional<std::uint64_t> parse_hex(std::string_view text) {
  if (text.size() != 16) return {};
  std::uint64_t value = 0;
  for (char c : text) {
    const auto digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return {};
    value = value << 4 | digit;
  }
  return value;
}

struct PieceHasher::State {
  XXH3_state_t piece;
  std::int64_t bytes = 0;  // of the piece so far
  std::vector<std::uint64_t> done;
};

PieceHasher::PieceHasher() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->piece);
}
PieceHasher::~PieceHasher() = default;
PieceHasher::PieceHasher(PieceHasher&&) noexcept = default;
PieceHasher& PieceHasher::operator=(PieceHasher&&) noexcept = default;

void PieceHasher::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto n =
        std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(kPieceBytes - state_->bytes));
    XXH3_64bits_update(&state_->piece, bytes.data(), n);
    state_->bytes += static_cast<std::int64_t>(n);
    bytes = bytes.subspan(n);
    if (state_->bytes < kPieceBytes) continue;
    state_->done.push_back(XXH3_64bits_digest(&state_->piece));
    XXH3_64bits_reset(&state_->piece);
    state_->bytes = 0;
  }
}

std::vector<std::uint64_t> PieceHasher::finish() {
  if (state_->bytes > 0) state_->done.push_back(XXH3_64bits_digest(&state_->piece));
  XXH3_64bits_reset(&state_->piece);
  state_->bytes = 0;
  return std::exchange(state_->done, {});
}

}  // namespace axonn
