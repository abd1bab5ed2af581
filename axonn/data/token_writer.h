#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace axonn {

/// Writes a token file piece by piece. The file appears when finish() is called; without that call,
/// or if a write fails, nothing is left behind (AtomicFile).
class TokenWriter {
 public:
  virtual ~TokenWriter() = default;
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  /// Throws UsageError if a token does not fit the format, Error if the disk is full.
  virtual void append(std::span<const std::int32_t> tokens) = 0;

  /// Ends a document: the tokens since the last call. llm.c's format does not store documents.
  virtual void end_document() = 0;

  virtual void finish() = 0;

 protected:
  TokenWriter() = default;
};

/// Makes a writer. A path that ends in .bin becomes an llm.c file: tokens below 65,536, fewer than
/// 2^31 of them. Any other path is the prefix of Megatron's .bin and .idx: u16 if vocab is below
/// 65,500, else i32; any number of tokens, with documents. All tokens must be below vocab.
/// Throws UsageError if the format cannot hold the vocabulary or the path cannot be written.
std::unique_ptr<TokenWriter> make_token_writer(const std::string& path, std::int64_t vocab);

}  // namespace axonn
