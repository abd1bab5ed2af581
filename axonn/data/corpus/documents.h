#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/foundation/base/files.h"

namespace axonn {

/// The token of a stored value. Documents store a token that is learned as itself, and one that is
/// only context as its complement, which is negative.
inline std::int32_t token_of(std::int32_t coded) { return coded < 0 ? ~coded : coded; }
inline bool is_learned(std::int32_t coded) { return coded >= 0; }

/// Tokenised documents, with each token marked as learned or not; in memory or in files, of which
/// the tables are in memory.
/// Reading is const and thread-safe.
///
/// File format, little-endian: tokens (i32); padding to 8 bytes; the beginning of each document and
/// the end of the last one (i64, D + 1); the number of learned tokens of each (i32, D); padding to
/// 8 bytes; 40 bytes: "AXONNDOC", version 1, D, the number of tokens, and a hash of the two tables
/// (u64 each).
class Documents {
 public:
  struct Tables {
    std::vector<std::int32_t> coded = {};    ///< stored values of all documents
    std::vector<std::int64_t> begins = {0};  ///< of each document; then the end of the last one
    std::vector<std::int32_t> learned = {};  ///< of each document, as learned()
  };
  /// Opens files, one after the other. Throws UsageError if one is not such a file or is damaged.
  explicit Documents(const std::vector<std::string>& paths);
  explicit Documents(const std::string& path) : Documents(std::vector{path}) {}
  /// In memory; `name` stands for the documents in messages.
  Documents(std::string name, Tables tables);
  Documents(const Documents&) = delete;
  Documents& operator=(const Documents&) = delete;

  std::int64_t count() const { return std::ssize(tables_.begins) - 1; }
  std::int64_t tokens() const { return tables_.begins.back(); }
  /// The number of tokens of document d.
  std::int64_t size(std::int64_t d) const;
  /// The stored values of document d, and those from `begin` on. Throw UsageError if the file
  /// cannot be read.
  std::vector<std::int32_t> coded(std::int64_t d) const;
  void read(std::int64_t d, std::int64_t begin, std::span<std::int32_t> coded) const;
  /// The number of its learned tokens, without the first token, which is never a target.
  std::int32_t learned(std::int64_t d) const { return tables_.learned[d]; }
  const std::string& name() const { return name_; }

 private:
  void add(const std::string& path);

  struct TokensFile {
    InputFile file;
    std::int64_t first;  ///< number of its first token
  };
  std::string name_;
  std::vector<TokensFile> files_;
  Tables tables_;  // no tokens if there are files
};

/// Collects documents in memory, or writes them to a file, atomically.
class DocumentWriter {
 public:
  /// Writes to the file `path`, or, if that is "", to memory, where `name` stands for the documents
  /// in messages. A writer to a file holds 12 bytes per document. Throws UsageError if the file
  /// cannot be created.
  DocumentWriter(const std::string& path, std::string name);

  void append(std::span<const std::int32_t> coded);
  std::shared_ptr<const Documents> finish();

 private:
  std::string name_;
  std::optional<AtomicFile> file_;
  Documents::Tables tables_;  // no tokens if there is a file
};

}  // namespace axonn
