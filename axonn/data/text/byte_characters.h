#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// The character that stands for a byte in a byte-level vocabulary, in UTF-8. Printable Latin-1
/// characters stand for their own byte; the other bytes are U+0100, U+0101, ... in order (a space
/// is U+0120). Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
std::string bpe_character(unsigned char byte);

/// These characters of all bytes of a token.
std::string bpe_characters(std::string_view bytes);

/// The bytes that the characters of a byte-level token stand for. A token with a character that
/// stands for no byte (added by hand; merges never make one) keeps its UTF-8.
std::string bytes_of_characters(std::string_view token);

}  // namespace axonn
