#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace axonn {

/// Writes a file atomically: under a temporary name in the same folder until commit() renames it.
/// If a write fails (a full disk) or the object is destroyed before commit(), the temporary file is
/// removed and an older file of that path stays unchanged.
class AtomicFile {
 public:
  /// Throws UsageError if no file can be created in the folder of `path`.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }

  /// Throws Error with the path, the bytes written so far and the system's reason.
  void append(std::span<const std::byte> bytes);

  /// Overwrites bytes that were appended.
  void overwrite(std::int64_t offset, std::span<const std::byte> bytes);

  /// Syncs the file, renames it to path() and syncs the folder. Throws as append() does.
  void commit();

 private:
  [[noreturn]] void fail_to(const char* what) const;

  std::string path_, temporary_;
  int file_ = -1;
  std::int64_t written_ = 0;
};

}  // namespace axonn
