#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

/// Constants of the token file formats, shared by reader and writer (token_file.h).
namespace axonn::token_format {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

inline constexpr std::int32_t kLlmcMagic = 20240520, kLlmcVersion = 1;
inline constexpr std::int64_t kLlmcHeaderBytes = 1024;

inline constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
inline constexpr std::uint64_t kMegatronVersion = 1;
/// Offsets in the index of the version, the type, the two counts and the sequences' lengths.
inline constexpr std::size_t kVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26,
                             kLengthsAt = 34;

/// Element `index` of an array of little-endian numbers that need not be aligned.
template <typename T>
T load(const char* bytes, std::int64_t index = 0) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<std::int64_t>(sizeof value), sizeof value);
  return value;
}

}  // namespace axonn::token_format
