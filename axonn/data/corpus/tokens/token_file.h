#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/data/corpus/config.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/files.h"

namespace axonn {

/// A stream of tokens with random access. Reading is const and thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  /// The number of tokens.
  virtual std::int64_t size() const = 0;

  /// Fills tokens[i] with token begin + i. Throws Error if the range is not inside [0, size()).
  void read(std::int64_t begin, std::span<std::int32_t> tokens) const;

  /// As above, but also throws UsageError, with the file, the position, the token and a remedy, if
  /// a token is not in [0, vocab).
  void read_checked(std::int64_t begin, std::span<std::int32_t> tokens, std::int64_t vocab) const;

  std::int32_t at(std::int64_t position) const;

  /// Whether the source itself knows where its documents begin, whatever its tokens.
  virtual bool has_documents() const { return false; }
  /// Appends the tokens in [begin, end) with which a document begins, ascending; none if the source
  /// does not know. Throws UsageError if its file cannot be read.
  virtual void document_begins(std::int64_t /*begin*/, std::int64_t /*end*/,
                               std::vector<std::int64_t>& /*to*/) const {}

  /// Whether its tokens are still being written: reading waits for them (GrowingTokens).
  virtual bool grows() const { return false; }

  /// The name of the source for messages: one path or several.
  virtual std::string name() const = 0;

  /// The name of one token for messages: "token 17 of PATH".
  virtual std::string where(std::int64_t position) const;

 protected:
  TokenSource() = default;

 private:
  virtual void read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const = 0;
};

/// Tokens in memory.
class MemoryTokens : public TokenSource {
 public:
  /// begins: the first token of each document, ascending; empty: not known.
  MemoryTokens(std::string name, std::vector<std::int32_t> tokens,
               std::vector<std::int64_t> begins = {})
      : name_(std::move(name)), tokens_(std::move(tokens)), begins_(std::move(begins)) {}
  std::int64_t size() const override { return std::ssize(tokens_); }
  std::string name() const override { return name_; }
  bool has_documents() const override { return !begins_.empty(); }
  void document_begins(std::int64_t begin, std::int64_t end,
                       std::vector<std::int64_t>& to) const override;

 private:
  void read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const override;

  std::string name_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int64_t> begins_;
};

/// Several sources joined in order, such as the shards of a data set. A read may span them.
class JoinedTokens : public TokenSource {
 public:
  /// `continued`: the parts that begin inside a document; empty: none.
  explicit JoinedTokens(std::vector<std::shared_ptr<const TokenSource>> parts,
                        std::vector<bool> continued = {});
  std::int64_t size() const override { return ends_.back(); }
  std::string name() const override;
  std::string where(std::int64_t position) const override;
  /// Whether every part has documents.
  bool has_documents() const override;
  bool grows() const override;
  void document_begins(std::int64_t begin, std::int64_t end,
                       std::vector<std::int64_t>& to) const override;

 private:
  void read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const override;
  std::size_t part_of(std::int64_t position) const;

  std::vector<std::shared_ptr<const TokenSource>> parts_;
  std::vector<std::int64_t> ends_;  // end of each part
  std::vector<bool> continued_;
};

/// The type of tokens in a file; the numbers up to 8 are Megatron's codes.
enum class TokenType : std::uint8_t {
  u8 = 1,
  i8 = 2,
  i16 = 3,
  i32 = 4,
  i64 = 5,
  u16 = 8,
  u32 = 9,
  u64 = 10
};
std::string_view name_of(TokenType type);
std::int64_t bytes_of(TokenType type);

/// A token file. Tokens are read from it when they are asked for.
///
/// llm.c's PATH.bin: 256 int32 of header (20240520, 1, count), then u16 tokens, or (20240801, 7,
/// count), then u32 tokens. Megatron's PREFIX.bin and PREFIX.idx: the tokens back to back, and the
/// offsets of sequences and documents. NumPy's .npy: one dimension of integers. Any other file:
/// tokens from its first byte on, if their type is told.
/// Source: llm.c, dev/data/data_common.py; Megatron-LM, core/datasets/indexed_dataset.py; NumPy,
/// numpy/lib/format.py.
class TokenFile : public TokenSource {
 public:
  /// path: a file; or Megatron's prefix, .idx or .bin (with an .idx beside it). Checks every field
  /// of the header against the sizes of the files. Throws UsageError with the file, the field, its
  /// value and the expected value; for a file without a header, unless `raw` tells its type.
  explicit TokenFile(const std::string& path, RawTokens raw = RawTokens::automatic);

  /// Whether path names Megatron files or begins with another header, and so is not text.
  static bool recognises(const std::string& path);
  /// Also whether it has the name of a token file, if `raw` tells a type.
  static bool recognises(const std::string& path, RawTokens raw);

  TokenType type() const { return type_; }
  std::int64_t size() const override { return count_; }
  std::string name() const override { return tokens_.path(); }

  std::string_view format() const { return format_; }  ///< for messages
  /// The number of documents in Megatron's format; the others do not store documents.
  std::optional<std::int64_t> documents() const {
    return index_ ? std::optional(index_->documents) : std::nullopt;
  }
  bool has_documents() const override { return index_.has_value(); }
  /// Searches the index on the disk, so that memory does not grow with the documents.
  void document_begins(std::int64_t begin, std::int64_t end,
                       std::vector<std::int64_t>& to) const override;

 private:
  /// Of Megatron's format.
  struct Index {
    InputFile file;
    std::int64_t sequences, documents;
    std::int64_t offsets_at, documents_at;  ///< bytes in the file where these tables begin
  };
  /// The first token of a document.
  std::int64_t begin_of(std::int64_t document) const;
  void read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const override;
  void open_llmc(TokenType type);
  void open_numpy();
  void open_raw(RawTokens raw);
  void open_megatron(const std::string& index_path);

  InputFile tokens_;
  std::string_view format_;
  TokenType type_ = TokenType::u16;
  std::int64_t first_byte_ = 0;  // of the tokens
  std::int64_t count_ = 0;
  std::optional<Index> index_;
};

/// Describes a token file, one fact per line: format, type, tokens, documents, smallest and largest
/// token, the `first` tokens; with a tokenizer, these as text too. Reads the whole file once.
std::string describe(const TokenFile& file, const Tokenizer* tokenizer = nullptr,
                     std::int64_t first = 32);

/// Writes a token file piece by piece. The file appears when finish() is called; without that call,
/// or if a write fails, nothing is left behind (AtomicFile).
class TokenWriter {
 public:
  /// A path that ends in .bin becomes an llm.c file: tokens below 65,536, fewer than 2^31 of them.
  /// Any other path is the prefix of Megatron's .bin and .idx: u16 if vocab is below 65,500, else
  /// i32; any number of tokens, with documents. All tokens must be below vocab.
  /// Throws UsageError if the format cannot hold the vocabulary or the path cannot be written.
  TokenWriter(const std::string& path, std::int64_t vocab);

  /// Throws UsageError if a token does not fit the format, Error if the disk is full.
  void append(std::span<const std::int32_t> tokens);

  /// Ends a document: the tokens since the last call. llm.c's format does not store documents.
  void end_document();

  void finish();

 private:
  void flush();
  void append_index();

  TokenType type_;
  AtomicFile tokens_;
  std::optional<AtomicFile> index_;  // of Megatron's format
  std::vector<std::byte> buffer_;    // of tokens_
  std::int64_t count_ = 0;
  std::vector<std::int32_t> lengths_;       // of the sequences
  std::vector<std::int64_t> documents_{0};  // the first sequence of each; then their number
  std::int64_t begun_ = 0;                  // first token of the open document
};

}  // namespace axonn
