#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace axonn {

/// A file that appears whole or not at all: it is written beside its path under another name,
/// synced and renamed. A write that fails (a full disk), or an object that is destroyed before
/// commit(), leaves nothing behind and an older file of that path as it was.
class AtomicFile {
 public:
  /// Errors: UsageError if nothing can be created in the folder of path.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }

  /// Errors: Error, with the path, the bytes written so far and the system's reason.
  void append(std::span<const std::byte> bytes);

  /// Overwrites bytes that were appended.
  void overwrite(std::int64_t offset, std::span<const std::byte> bytes);

  void commit();

 private:
  [[noreturn]] void fail_to(const char* what) const;

  std::string path_, temporary_;
  int file_ = -1;
  std::int64_t written_ = 0;
};

}  // namespace axonn
