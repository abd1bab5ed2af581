#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axonn {

/// Counts the characters of a text that comes in pieces, as the JSON of an answer has them: each
/// run of bytes that are no character is one U+FFFD for each of its longest parts that begin one. A
/// character counts with its first byte.
class CharacterCount {
 public:
  /// The characters that begin in the next bytes.
  std::int64_t add(std::string_view bytes);

 private:
  std::string held_;  // the begun character
};

}  // namespace axonn
