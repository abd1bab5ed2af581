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

/// XXH3 of 64 bits. It finds damage; it is no defence against an adversary.
/// Source: Yann Collet, xxHash.
std::uint64_t xxh3(std::span<const std::byte> bytes);
std::uint64_t xxh3(std::string_view text);

/// 16 lower-case hex digits.
std::string hex_of(std::uint64_t value);
/// Nothing unless the text is exactly that.
std::optional<std::uint64_t> parse_hex(std::string_view text);

/// Bytes of a file that one checksum covers: small enough that a reader of a few slices does not
/// fetch much more than them, large enough that a disk gives its full rate.
inline constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

/// The checksums of a file's pieces of kPieceBytes (the last one shorter), from its bytes in order.
class PieceHasher {
 public:
  PieceHasher();
  ~PieceHasher();
  PieceHasher(PieceHasher&&) noexcept;
  PieceHasher& operator=(PieceHasher&&) noexcept;

  void append(std::span<const std::byte> bytes);
  /// The checksums; append() begins another file after that.
  std::vector<std::uint64_t> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace axonn
