#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// What check_sentencepiece_model() finds in a model.
struct SentencePieceModelCheck {
  bool replaces_characters = false;  ///< whether it has a map of replaced characters (NFKC)
  bool of_words = false;             ///< whether its pieces are whole words, not BPE or unigram
};

/// Checks a model's protobuf before the library reads it, since the library recurses for each byte
/// of a piece and follows offsets in the map of characters without looking at its size. Throws
/// UsageError with the path and the place if
///   - the protobuf is cut off, or has a group, which published models do not have;
///   - a piece has more than 1,024 bytes;
///   - an offset in the map of characters points outside of it;
///   - the map replaces a character by more than 64 bytes (NFKC's longest has 33).
SentencePieceModelCheck check_sentencepiece_model(std::string_view model, const std::string& path);

/// The pieces of a model, and what other programs need to know of it.
struct SentencePieces {
  struct Piece {
    std::string text;
    float score = 0;
    std::int32_t type = 1;  ///< 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  };
  std::vector<Piece> pieces;
  bool bpe = false;          ///< not unigram
  bool adds_space = true;    ///< puts a space before a text
  std::int32_t unknown = 0;  ///< the unknown piece
};

/// Reads a model's protobuf without the library. Source: google/sentencepiece,
/// src/sentencepiece_model.proto. Throws UsageError as check_sentencepiece_model() does.
SentencePieces read_sentencepieces(std::string_view model, const std::string& path);

}  // namespace axonn
