#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "axonn/base/files.h"
#include "axonn/data/token_source.h"

namespace axonn {

enum class TokenFormat { llmc, megatron };
std::string_view name_of(TokenFormat format);

/// The type of tokens in a file; the numbers are Megatron's codes.
enum class TokenType : std::uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8 };
std::string_view name_of(TokenType type);
std::int64_t bytes_of(TokenType type);

/// A token file, mapped into memory: the system reads tokens only when they are used.
///
/// llm.c's PATH.bin: 256 int32 of header (20240520, 1, count), then u16 tokens. Megatron's
/// PREFIX.bin and PREFIX.idx: the tokens back to back, and the places of sequences and documents.
/// Source: llm.c, dev/data/data_common.py; Megatron-LM, core/datasets/indexed_dataset.py.
class TokenFile : public TokenSource {
 public:
  /// path: an llm.c file; or Megatron's prefix, .idx or .bin (with an .idx beside it).
  /// Checks every field of the header against the sizes of the files. Throws UsageError with the
  /// file, the field, its value and the expected value.
  explicit TokenFile(const std::string& path);

  /// Whether path names Megatron files or begins like an llm.c file, and so is not text.
  static bool recognises(const std::string& path);

  TokenFormat format() const { return format_; }
  TokenType type() const { return type_; }
  std::int64_t size() const override { return count_; }
  std::string name() const override { return tokens_.path(); }

  /// The number of documents, if the format stores them (Megatron's does).
  std::optional<std::int64_t> documents() const;

  /// The position of the first token of a document; for document documents(), size().
  std::int64_t document_begin(std::int64_t document) const;

 private:
  void read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const override;
  void open_llmc();
  void open_megatron();

  MappedFile tokens_;
  std::optional<MappedFile> index_;
  TokenFormat format_ = TokenFormat::llmc;
  TokenType type_ = TokenType::u16;
  std::string_view data_;  // the tokens' bytes
  std::int64_t count_ = 0;
  std::int64_t sequences_ = 0, document_entries_ = 0;
};

}  // namespace axonn
