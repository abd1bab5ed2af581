#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// The 64-bit XXH3 hash. It detects damage, not deliberate changes.
/// Source: Yann Collet, xxHash.
std::uint64_t xxh3(std::span<const std::byte> bytes);
std::uint64_t xxh3(std::string_view text);

/// 16 lower-case hex digits.
std::string hex_of(std::uint64_t value);
/// Such a text of random bits, others at each call, for names that nobody else chooses.
std::string random_hex();
/// The value of such a text; nothing for any other text.
std::optional<std::uint64_t> parse_hex(std::string_view text);

/// Bytes of a file that one checksum covers. Small, so that a reader of a few slices fetches little
/// else; large enough for a disk to reach its full rate.
inline constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

/// Computes the checksums of a file's pieces of kPieceBytes (the last may be shorter).
class PieceHasher {
 public:
  PieceHasher();
  ~PieceHasher();

  /// Takes the next bytes of the file.
  void append(std::span<const std::byte> bytes);
  /// Returns the checksums. The next append() begins another file.
  std::vector<std::uint64_t> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace axonn
