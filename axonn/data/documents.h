#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace axonn {

/// A token of a document as it is stored: itself where it is to be learned, its complement, which
/// is negative, where it only stands before what is.
inline std::int32_t token_of(std::int32_t coded) { return coded < 0 ? ~coded : coded; }
inline bool is_learned(std::int32_t coded) { return coded >= 0; }

/// Documents of tokens that are to be learned, or not, each; in memory or mapped from a file.
/// Reading is const and safe from several threads.
///
/// A file: tokens (i32), padding to 8 bytes, where each document begins and the last one ends (i64,
/// D + 1), how many tokens of each are learned (i32, D), padding to 8, and 40 bytes: "AXONNDOC",
/// version 1, D, the number of tokens, and a hash of the two tables, u64 each. Little-endian.
class Documents {
 public:
  /// Errors: UsageError if the file is not such a file, or damaged.
  static std::shared_ptr<const Documents> open(const std::string& path);

  virtual ~Documents() = default;
  Documents(const Documents&) = delete;
  Documents& operator=(const Documents&) = delete;

  std::int64_t count() const { return std::ssize(begins_) - 1; }
  std::int64_t tokens() const { return begins_.back(); }
  /// The tokens of document d.
  std::span<const std::int32_t> coded(std::int64_t d) const;
  /// How many of them are learned, without the first, which nothing stands before.
  std::int32_t learned(std::int64_t d) const { return learned_[static_cast<std::size_t>(d)]; }
  const std::string& name() const { return name_; }

 protected:
  explicit Documents(std::string name) : name_(std::move(name)) {}

  std::string name_;
  std::span<const std::int32_t> coded_, learned_;
  std::span<const std::int64_t> begins_;
};

/// Puts documents together, in memory or into a file, which then appears whole or not at all.
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

/// path: of the file; "" for memory, where messages call it `name`. Memory of a file's writer: 12
/// bytes a document. Errors: UsageError if nothing can be created there.
std::unique_ptr<DocumentWriter> make_document_writer(const std::string& path,
                                                     const std::string& name);

}  // namespace axonn
