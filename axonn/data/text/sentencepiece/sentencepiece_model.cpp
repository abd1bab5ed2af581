#include "axonn/data/text/sentencepiece/sentencepiece_model.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::size_t kMostPieceBytes = 1024, kMostReplacement = 64;

/// Reads the fields of one protobuf message.
class ProtobufReader {
 public:
  struct Field {
    std::uint64_t number;
    std::string_view bytes;   ///< of a string or message; empty for a number
    std::uint64_t value = 0;  ///< of a number; the bits of one of 4 bytes
    bool is_bytes;
  };

  ProtobufReader(std::string_view message, const std::string& where)
      : rest_(message), where_(where) {}

  bool done() const { return rest_.empty(); }

  Field next() {
    const std::uint64_t tag = varint(), kind = tag & 7;
    Field field{.number = tag >> 3, .bytes = {}, .is_bytes = kind == 2};
    if (kind == 0) {
      field.value = varint();
    } else if (kind == 1) {
      take(8);
    } else if (kind == 2) {
      field.bytes = take(varint());
    } else if (kind == 5) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, take(4).data(), sizeof bits);
      field.value = bits;
    } else {
      refuse(where_, ": field ", field.number, " of the protobuf has the type ", kind,
             ", which no published model has; is the file damaged?");
    }
    return field;
  }

 private:
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size())
      refuse(where_, ": the protobuf ends within a field (wanted ", bytes, " bytes, got ",
             rest_.size(), "); is the file whole?");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    refuse(where_, ": a number in the protobuf has more than 10 bytes; is the file damaged?");
  }

  std::string_view rest_;
  const std::string& where_;
};

SentencePieces::Piece read_piece(std::string_view message, std::size_t index,
                                 const std::string& path) {
  SentencePieces::Piece piece;
  ProtobufReader reader(message, path);
  while (!reader.done()) {
    const auto field = reader.next();
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2)
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    if (field.number == 3) piece.type = static_cast<std::int32_t>(field.value);
  }
  if (piece.text.size() > kMostPieceBytes)
    refuse(path, ": piece ", index, " has ", piece.text.size(), " bytes; at most ", kMostPieceBytes,
           " are possible");
  return piece;
}

/// Checks the map of replaced characters: the bytes of a trie (4), the trie, and the replacements,
/// each with a 0 after it. The trie is a double array (darts-clone): a unit has, from bit 0, the
/// byte that leads to it (8 bits), whether a key ends there (1), whether its offset is counted in
/// 256 (1), the offset (21), and whether it is the value of a key (1), which then has 31 bits.
void check_character_map(std::string_view map, const std::string& path) {
  const auto damaged = [&](const auto&... parts) {
    refuse(path, ": normalizer_spec.precompiled_charsmap: ", parts..., "; is the file damaged?");
  };
  std::uint32_t bytes = 0;
  if (map.size() > sizeof bytes) std::memcpy(&bytes, map.data(), sizeof bytes);
  if (bytes == 0 || bytes % 4 != 0 || bytes >= map.size() - sizeof bytes)
    damaged(map.size(), " bytes cannot hold a trie of ", bytes, " and replacements");
  std::vector<std::uint32_t> units(bytes / 4);
  std::memcpy(units.data(), map.data() + sizeof bytes, bytes);
  const std::string_view replacements = map.substr(sizeof bytes + bytes);
  if (replacements.back() != '\0') damaged("the last replacement has no end");
  for (std::size_t at = 0; at < replacements.size();) {
    const std::size_t size = replacements.find('\0', at) - at;
    if (size > kMostReplacement)
      damaged("a character becomes ", size, " bytes; at most ", kMostReplacement, " are possible");
    at += size + 1;
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::uint32_t unit = units[i];
    if (unit >> 31) continue;
    const std::uint64_t next = i ^ (std::uint64_t{unit >> 10} << ((unit & 0x200) >> 6));
    if ((next | 0xff) >= units.size())
      damaged("unit ", i, " leads to unit ", next, " of ", units.size());
    if ((unit & 0x100) && (units[next] & 0x7fffffff) >= replacements.size())
      damaged("unit ", next, " points outside of the replacements");
  }
}

}  // namespace

SentencePieces read_sentencepieces(std::string_view model, const std::string& path) {
  SentencePieces result;
  ProtobufReader reader(model, path);
  while (!reader.done()) {
    const auto part = reader.next();
    if (!part.is_bytes) continue;
    if (part.number == 1)
      result.pieces.push_back(read_piece(part.bytes, result.pieces.size(), path));
    const bool trainer = part.number == 2, normalizer = part.number == 3;
    if (!trainer && !normalizer && part.number != 5) continue;  // 5 undoes the normalizer
    ProtobufReader options(part.bytes, path);
    while (!options.done()) {
      const auto [number, bytes, value, is_bytes] = options.next();
      if (trainer && number == 3) result.model_type = static_cast<std::int32_t>(value);
      if (trainer && number == 40) result.unknown = static_cast<std::int32_t>(value);
      if (normalizer && number == 3) result.adds_space = value != 0;
      if (trainer || number != 2 || bytes.empty()) continue;
      check_character_map(bytes, path);
      result.replaces_characters = true;
    }
  }
  return result;
}

}  // namespace axonn
