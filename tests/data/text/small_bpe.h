#pragma once

#include <array>
#include <string>
#include <string_view>

#include "axonn/data/text/bpe/bpe_vocab.h"

#include "tests/support/data_files.h"

namespace axonn::test {

/// A vocabulary small enough to merge by hand: token b is byte b, tokens from 256 on are the
/// results of the merges, and the last token is <|endoftext|>.
inline constexpr std::array<std::string_view, 8> kSmallMerges{
    "h e",         // 256 he
    "l l",         // 257 ll
    "he ll",       // 258 hell
    "hell o",      // 259 hello
    "\u0120 w",    // 260 " w"
    "o r",         // 261 or
    "\u0120w or",  // 262 " wor"
    "l d",         // 263 ld
};
inline constexpr int kSmallEnd = 264, kSmallVocab = 265;

inline std::string in_quotes(const std::string& token) {
  if (token == "\"" || token == "\\") return "\"\\" + token + '"';
  return '"' + token + '"';
}

inline std::string small_vocab_json() {
  std::string json = "{";
  for (int b = 0; b < 256; ++b)
    json +=
        in_quotes(bpe_character(static_cast<unsigned char>(b))) + ": " + std::to_string(b) + ", ";
  int id = 256;
  for (std::string_view merge : kSmallMerges) {
    std::string token(merge);
    token.erase(token.find(' '), 1);
    json += in_quotes(token) + ": " + std::to_string(id++) + ", ";
  }
  return json + "\"<|endoftext|>\": " + std::to_string(id) + "}";
}

inline std::string small_merges_txt() {
  std::string text = "#version: 0.2\n";
  for (std::string_view merge : kSmallMerges) text += std::string(merge) + '\n';
  return text;
}

/// Writes both files and returns the folder.
inline std::string small_bpe(const TempFolder& folder) {
  folder.file("vocab.json", small_vocab_json());
  folder.file("merges.txt", small_merges_txt());
  return folder.path();
}

}  // namespace axonn::test
