#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace axonn {

/// The token of a stored value. Documents store a token that is learned as itself, and one that is
/// only context as its complement, which is negative.
inline std::int32_t token_of(std::int32_t coded) { return coded < 0 ? ~coded : coded; }
inline bool is_learned(std::int32_t coded) { return coded >= 0; }

/// Tokenised documents, with each token marked as learned or not; in memory or mapped from a file.
/// Reading is const and thread-safe.
///
/// File format, little-endian: tokens (i32); padding to 8 bytes; the beginning of each document and
/// the end of the last one (i64, D + 1); the number of learned tokens of each (i32, D); padding to
/// 8 bytes; 40 bytes: "AXONNDOC", version 1, D, the number of tokens, and a hash of the two tables
/// (u64 each).
class Documents {
 public:
  /// Throws UsageError if the file is not such a file or is damaged.
  static std::shared_ptr<const Documents> open(const std::string& path);

  virtual ~Documents() = default;
  Documents(const Documents&) = delete;
  Documents& operator=(const Documents&) = delete;

  std::int64_t count() const { return std::ssize(begins_) - 1; }
  std::int64_t tokens() const { return begins_.back(); }
  /// The stored values of document d.
  std::span<const std::int32_t> coded(std::int64_t d) const;
  /// The number of its learned tokens, without the first token, which is never a target.
  std::int32_t learned(std::int64_t d) const { return learned_[static_cast<std::size_t>(d)]; }
  const std::string& name() const { return name_; }

 protected:
  explicit Documents(std::string name) : name_(std::move(name)) {}

  std::string name_;
  std::span<const std::int32_t> coded_, learned_;
  std::span<const std::int64_t> begins_;
};

/// Collects documents in memory, or writes them to a file, atomically.
class DocumentWriter {
 public:
  virtual ~DocumentWriter() = default;
  DocumentWriter(const DocumentWriter&) = delete;
  DocumentWriter& operator=(const DocumentWriter&) = delete;

  void append(std::span<const std::int32_t> coded);
  virtual std::shared_ptr<const Documents> finish() = 0;

 protected:
  DocumentWriter() = default;
  std::vector<std::int64_t> begins_{0};
  std::vector<std::int32_t> learned_;

 private:
  virtual void put(std::span<const std::int32_t> coded) = 0;
};

/// Makes a writer to the file `path`, or, if that is "", to memory, where `name` stands for the
/// documents in messages. A writer to a file holds 12 bytes per document. Throws UsageError if the
/// file cannot be created.
std::unique_ptr<DocumentWriter> make_document_writer(const std::string& path,
                                                     const std::string& name);

}  // namespace axonn
