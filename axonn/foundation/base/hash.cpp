#include "axonn/foundation/base/hash.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

namespace axonn {

std::uint64_t xxh3(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t xxh3(std::string_view text) { return xxh3(std::as_bytes(std::span(text))); }

std::string hex_of(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::string random_hex() {
  std::random_device device;
  return hex_of(std::uint64_t{device()} << 32 | device());
}

std::optional<std::uint64_t> parse_hex(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, /*base=*/16);
  return hex_of(value) == text ? std::optional(value) : std::nullopt;
}

struct PieceHasher::State {
  XXH3_state_t piece;
  std::size_t bytes = 0;  // of the piece so far
  std::vector<std::uint64_t> done;

  State() { XXH3_64bits_reset(&piece); }
  void end_piece() {
    done.push_back(XXH3_64bits_digest(&piece));
    XXH3_64bits_reset(&piece);
    bytes = 0;
  }
};

PieceHasher::PieceHasher() : state_(std::make_unique<State>()) {}
PieceHasher::~PieceHasher() = default;

void PieceHasher::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), std::size_t{kPieceBytes} - state_->bytes);
    XXH3_64bits_update(&state_->piece, bytes.data(), n);
    state_->bytes += n;
    bytes = bytes.subspan(n);
    if (state_->bytes == kPieceBytes) state_->end_piece();
  }
}

std::vector<std::uint64_t> PieceHasher::finish() {
  if (state_->bytes > 0) state_->end_piece();
  return std::exchange(state_->done, {});
}

}  // namespace axonn
