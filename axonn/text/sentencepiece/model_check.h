#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// What the SentencePiece library takes on trust in a model file.
struct SentencePieceModelCheck {
  bool replaces_characters = false;  ///< whether it has a map of replaced characters (NFKC)
};

/// Checks a model's protobuf before the library reads it, since the library recurses for each byte
/// of a piece and follows offsets in the map of characters without looking at its size. Throws
/// UsageError with the path and the place if
///   - the protobuf is cut off, or has a group, which published models do not have;
///   - a piece has more than 1,024 bytes;
///   - an offset in the map of characters points outside of it;
///   - the map replaces a character by more than 64 bytes (NFKC's longest has 33).
SentencePieceModelCheck check_sentencepiece_model(std::string_view model, const std::string& path);

}  // namespace axonn
