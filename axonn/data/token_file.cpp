#include "axonn/data/token_file.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/data/token_format.h"

namespace axonn {

namespace {

using namespace token_format;

/// The prefix of the Megatron files that path names, or nothing.
std::optional<std::string> megatron_prefix(const std::string& path) {
  if (path.ends_with(".idx")) return path.substr(0, path.size() - 4);
  if (path.ends_with(".bin")) {
    const std::string prefix = path.substr(0, path.size() - 4);
    return path_exists(prefix + ".idx") ? std::optional(prefix) : std::nullopt;
  }
  if (!path_exists(path) && (path_exists(path + ".idx") || path_exists(path + ".bin"))) return path;
  return std::nullopt;
}

std::string tokens_path(const std::string& path) {
  const auto prefix = megatron_prefix(path);
  return prefix ? *prefix + ".bin" : path;
}

template <typename T>
void widen(std::span<std::int32_t> out, const char* bytes) {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::int32_t>(load<T>(bytes, static_cast<std::int64_t>(i)));
}

/// A 64-bit token that does not fit 32 bits becomes -1 or the largest value. No vocabulary has
/// these, so it is refused like any token that is out of range.
void narrow(std::span<std::int32_t> out, const char* bytes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto token = load<std::int64_t>(bytes, static_cast<std::int64_t>(i));
    out[i] = static_cast<std::int32_t>(std::clamp<std::int64_t>(token, -1, kMost));
  }
}

}  // namespace

std::string_view name_of(TokenFormat format) {
  return format == TokenFormat::llmc ? "llm.c" : "Megatron";
}

std::string_view name_of(TokenType type) {
  constexpr std::array<std::string_view, 9> kNames{"?",   "u8", "i8", "i16", "i32",
                                                   "i64", "?",  "?",  "u16"};
  return kNames.at(static_cast<std::size_t>(type));
}

std::int64_t bytes_of(TokenType type) {
  constexpr std::array<std::int64_t, 9> kBytes{0, 1, 1, 2, 4, 8, 0, 0, 2};
  return kBytes.at(static_cast<std::size_t>(type));
}

bool TokenFile::recognises(const std::string& path) {
  if (megatron_prefix(path)) return true;
  std::array<char, 4> head{};
  return is_plain_file(path) &&
         std::ifstream(path, std::ios::binary).read(head.data(), head.size()) &&
         load<std::int32_t>(head.data()) == kLlmcMagic;
}

TokenFile::TokenFile(const std::string& path) : tokens_(tokens_path(path)) {
  if (const auto prefix = megatron_prefix(path)) {
    index_.emplace(*prefix + ".idx");
    open_megatron();
  } else {
    open_llmc();
  }
}

void TokenFile::open_llmc() {
  const std::string_view bytes = tokens_.text();
  const std::string& path = tokens_.path();
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size < kLlmcHeaderBytes)
    refuse(path, ": has ", size, " bytes, but the header of an llm.c token file alone has ",
           kLlmcHeaderBytes, "; is the file whole? (Megatron's .bin needs its .idx beside it)");
  const auto magic = load<std::int32_t>(bytes.data());
  if (magic != kLlmcMagic)
    refuse(path, ": begins with ", magic, ", but an llm.c token file with ", kLlmcMagic,
           "; Megatron's .bin needs its .idx beside it, and text goes to data.text");
  const auto version = load<std::int32_t>(bytes.data(), 1);
  if (version != kLlmcVersion)
    refuse(path, ": is of version ", version, " of llm.c's format; only ", kLlmcVersion,
           " (tokens of 16 bits) is known");
  count_ = load<std::int32_t>(bytes.data(), 2);
  const std::int64_t wanted = kLlmcHeaderBytes + 2 * count_;
  if (count_ < 0 || size != wanted)
    refuse(path, ": its header counts ", count_, " tokens, which makes ", wanted,
           " bytes, but the file has ", size, "; it was cut short or altered; make it again");
  data_ = bytes.substr(kLlmcHeaderBytes);
}

void TokenFile::open_megatron() {
  format_ = TokenFormat::megatron;
  const std::string_view index = index_->text();
  const std::string& path = index_->path();
  const auto altered = [&](const auto&... parts) {
    refuse(path, ": ", parts..., "; it was cut short or altered; make it again");
  };
  if (index.size() < kLengthsAt)
    altered("has ", index.size(), " bytes, but the header alone has ", kLengthsAt);
  if (!index.starts_with(kMegatronMagic)) altered("does not begin with MMIDIDX");
  const auto version = load<std::uint64_t>(index.data() + kVersionAt);
  if (version != kMegatronVersion) altered("is of version ", version, "; only 1 is known");
  const auto code = load<std::uint8_t>(index.data() + kTypeAt);
  if (code == 6 || code == 7)
    refuse(path, ": holds ", code == 6 ? "f64" : "f32", " values (type ", int{code},
           "); tokens are integers");
  if (code == 0 || code > 8) altered("type ", int{code}, " is not in 1 to 8");
  type_ = static_cast<TokenType>(code);

  const auto sequences = load<std::uint64_t>(index.data() + kSequencesAt),
             entries = load<std::uint64_t>(index.data() + kDocumentsAt);
  const std::uint64_t room = index.size() - kLengthsAt;
  // Division rather than multiplication: a count of 2^62 must not overflow.
  if (sequences > room / 12 || entries > room / 8 || 12 * sequences + 8 * entries != room)
    altered("counts ", sequences, " sequences and ", entries,
            " document indices, which do not make its ", index.size(), " bytes");
  if (entries == 0) altered("has no document indices; an empty file has one");
  sequences_ = static_cast<std::int64_t>(sequences);
  document_entries_ = static_cast<std::int64_t>(entries);

  const char* lengths = index.data() + kLengthsAt;
  const char* offsets = lengths + 4 * sequences_;
  const char* documents = offsets + 8 * sequences_;
  const std::int64_t item = bytes_of(type_);
  for (std::int64_t s = 0; s < sequences_; ++s) {
    const auto length = load<std::int32_t>(lengths, s);
    if (length < 0) altered("sequence ", s, " has a length of ", length);
    if (const auto offset = load<std::int64_t>(offsets, s); offset != count_ * item)
      altered("sequence ", s, " begins at byte ", offset,
              " of the .bin, but those before it end at ", count_ * item);
    count_ += length;
  }
  if (load<std::int64_t>(documents) != 0 ||
      load<std::int64_t>(documents, document_entries_ - 1) != sequences_)
    altered("its document indices go from ", load<std::int64_t>(documents), " to ",
            load<std::int64_t>(documents, document_entries_ - 1), ", not from 0 to ", sequences_);
  for (std::int64_t d = 1; d < document_entries_; ++d)
    if (load<std::int64_t>(documents, d) < load<std::int64_t>(documents, d - 1))
      altered("document index ", d, " is less than the one before it");

  data_ = tokens_.text();
  if (static_cast<std::int64_t>(data_.size()) != count_ * item)
    refuse(tokens_.path(), ": has ", data_.size(), " bytes, but its index counts ", count_,
           " tokens of ", item, " bytes, ", count_ * item,
           "; it was cut short or altered, or the two files belong to different data sets");
}

std::optional<std::int64_t> TokenFile::documents() const {
  if (!index_) return std::nullopt;
  return document_entries_ - 1;
}

std::int64_t TokenFile::document_begin(std::int64_t document) const {
  AXONN_CHECK(index_, "document_begin: ", name(), " does not know its documents");
  AXONN_CHECK(document >= 0 && document < document_entries_, "document_begin: ", name(), " has ",
              document_entries_ - 1, " documents, got ", document);
  const char* offsets = index_->text().data() + kLengthsAt + 4 * sequences_;
  const auto sequence = load<std::int64_t>(offsets + 8 * sequences_, document);
  if (sequence == sequences_) return count_;
  return load<std::int64_t>(offsets, sequence) / bytes_of(type_);
}

void TokenFile::read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const {
  const char* bytes = data_.data() + begin * bytes_of(type_);
  switch (type_) {
    case TokenType::u8:
      return widen<std::uint8_t>(tokens, bytes);
    case TokenType::i8:
      return widen<std::int8_t>(tokens, bytes);
    case TokenType::i16:
      return widen<std::int16_t>(tokens, bytes);
    case TokenType::u16:
      return widen<std::uint16_t>(tokens, bytes);
    case TokenType::i32:
      return widen<std::int32_t>(tokens, bytes);
    case TokenType::i64:
      return narrow(tokens, bytes);
  }
}

}  // namespace axonn
