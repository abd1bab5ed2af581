#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// The pieces of a model, and what else is needed to know of it.
struct SentencePieces {
  struct Piece {
    std::string text;
    float score = 0;
    std::int32_t type = 1;  ///< 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  };
  std::vector<Piece> pieces;
  std::int32_t model_type = 1;       ///< 1 unigram, 2 BPE, 3 whole words, 4 characters
  bool adds_space = true;            ///< puts a space before a text
  bool replaces_characters = false;  ///< has a map of replaced characters (NFKC)
  std::int32_t unknown = 0;          ///< the unknown piece
};

/// Reads a model's protobuf without the library, and checks it: the library recurses for each byte
/// of a piece and follows offsets in the map of characters without looking at its size. Source:
/// google/sentencepiece, src/sentencepiece_model.proto. Throws UsageError with the path and the
/// place if
///   - the protobuf is cut off, or has a group, which published models do not have;
///   - a piece has more than 1,024 bytes;
///   - an offset in the map of characters points outside of it;
///   - the map replaces a character by more than 64 bytes (NFKC's longest has 33).
SentencePieces read_sentencepieces(std::string_view model, const std::string& path);

}  // namespace axonn
