#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/base/check.h"

namespace axonn {

/// An open file; closes it.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
  FileHandle(FileHandle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileHandle();

  int get() const { return descriptor_; }
  /// Gives the descriptor away.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

/// A file that is read at offsets, by any number of threads at once.
///
/// It reads with pread and not from mapped memory, where a file that shrinks or a bad disk would
/// end the process with SIGBUS instead of a message.
class InputFile {
 public:
  /// Errors: UsageError that names the path, if it cannot be opened or is no regular file.
  explicit InputFile(std::string path);

  const std::string& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }  ///< when it was opened

  /// Fills out from byte `offset` on. Errors: UsageError if the file ends before, or cannot be
  /// read.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  FileHandle file_;
  std::int64_t bytes_ = 0;
};

/// A new file that is written front to back. Unless it is finished it is removed again.
///
/// Errors: Error that names the file, the bytes, the cause and a remedy.
class OutputFile {
 public:
  /// Replaces a file of that name.
  explicit OutputFile(std::string path);
  OutputFile(OutputFile&&) noexcept = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void append(std::span<const std::byte> bytes);
  /// Puts it on the disk (fsync) and closes it.
  void finish();
  std::int64_t bytes() const { return bytes_; }  ///< appended so far

 private:
  std::string path_;
  FileHandle file_;
  std::int64_t bytes_ = 0;
};

/// A folder that is filled under another name beside its own, so that its own name never stands for
/// half of it: PATH.tmp-0123456789abcdef. Unless it is published it is removed again.
class TemporaryFolder {
 public:
  /// Makes the folder and those above it. Errors: Error that names the folder and the cause.
  explicit TemporaryFolder(std::string path);
  TemporaryFolder(TemporaryFolder&& other) noexcept
      : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return temporary_; }  ///< where to write for now

  /// Syncs it, gives it its name in place of a folder that has it, and syncs the folder above.
  void publish();
  /// Removes it with all it holds. Leaves what cannot be removed.
  void remove() noexcept;

 private:
  std::string path_;
  std::string temporary_;
};

/// Renames a folder to a temporary name, so that its own name never stands for half of it, and
/// removes it. Errors: Error that names the folder and the cause.
void remove_folder(const std::string& path);

/// Whether `name`, a file name without its folder, is that of a TemporaryFolder of `base`.
bool is_temporary_name(std::string_view name, std::string_view base);

/// All of a file. Errors: UsageError if it cannot be read or is longer than `most` bytes.
std::string read_text(const std::string& path, std::int64_t most = std::int64_t{1} << 30);

/// A new file with this text, synced. Errors: as OutputFile.
void write_text(const std::string& path, std::string_view text);

/// Replaces a file so that its name always stands for all of the old text or all of the new.
void write_file_atomically(const std::string& path, std::string_view text);

/// Makes the names in a folder last. Errors: Error.
void sync_folder(const std::string& path);

/// Makes a folder and those above it, if need be. Errors: Error.
void make_folders(const std::string& path);

/// Bytes that this user may still write to the file system that holds path, which may not exist
/// yet. Quotas are not in it.
std::int64_t free_bytes(const std::string& path);

/// "Permission denied; make it writable for this user": an errno, and what to do about it.
std::string cause_and_remedy(int error);

}  // namespace axonn
