#include "axonn/data/text/byte_characters.h"

#include <algorithm>
#include <array>

#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/// The byte that each character below U+0144 stands for, or -1.
const std::array<int, 0x144> kByteOfCharacter = [] {
  std::array<int, 0x144> bytes;
  bytes.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) bytes[stands_for_itself(byte) ? byte : next++] = byte;
  return bytes;
}();

}  // namespace

std::string bpe_character(unsigned char byte) {
  const auto found = std::ranges::find(kByteOfCharacter, int{byte});
  std::string character;
  append_utf8(static_cast<char32_t>(found - kByteOfCharacter.begin()), character);
  return character;
}

std::string bpe_characters(std::string_view bytes) {
  std::string result;
  for (const char byte : bytes) result += bpe_character(static_cast<unsigned char>(byte));
  return result;
}

std::string bytes_of_characters(std::string_view token) {
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const char32_t code = code_point(rest);
    if (code >= kByteOfCharacter.size() || kByteOfCharacter[code] < 0) return std::string(token);
    bytes += static_cast<char>(kByteOfCharacter[code]);
    rest.remove_prefix(utf8_front(rest).bytes);
  }
  return bytes;
}

}  // namespace axonn
