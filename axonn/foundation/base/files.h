#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"

namespace axonn {

/// Owns a file descriptor and closes it.
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
  /// Gives up ownership of the descriptor.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

/// A file that any number of threads may read at offsets at the same time.
///
/// It uses pread rather than mapped memory: with a mapping, a file that shrinks or a bad disk would
/// end the process with SIGBUS instead of an error message.
class InputFile {
 public:
  /// Throws UsageError, naming the path, if it cannot be opened or is not a regular file. If the
  /// process has too many open files, raises its limit as far as it may. Also refuses a pointer of
  /// Git LFS, which stands for a file that was not downloaded.
  explicit InputFile(std::string path);

  const std::string& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }  ///< when it was opened

  /// Fills `out` with the bytes from `offset` on. Throws UsageError if the file is too short or
  /// cannot be read.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  void refuse_lfs_pointer() const;

  std::string path_;
  FileHandle file_;
  std::int64_t bytes_ = 0;
};

/// A small file, such as a tokenizer's, read into memory as a whole.
class TextFile {
 public:
  /// Throws as read_text().
  explicit TextFile(std::string path);

  const std::string& path() const { return path_; }
  std::string_view text() const { return text_; }

 private:
  std::string path_, text_;
};

/// A new file that is written front to back. The destructor removes it unless finish() was called.
/// The path may also name a device or a pipe, which is never removed.
///
/// Throws Error with the file, the bytes, the cause and a remedy.
class OutputFile {
 public:
  /// Replaces an existing file.
  explicit OutputFile(std::string path);
  /// Writes to a file that was just created and is open.
  OutputFile(std::string path, FileHandle file) : path_(std::move(path)), file_(std::move(file)) {}
  OutputFile(OutputFile&&) noexcept = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void append(std::span<const std::byte> bytes);
  /// Overwrites bytes that were appended.
  void overwrite(std::int64_t offset, std::span<const std::byte> bytes);
  /// Syncs to disk what was appended. Does nothing for pipes.
  void sync();
  /// Syncs it to disk and closes it.
  void finish();
  /// Another handle of the same open file, which shares its locks.
  FileHandle duplicate() const;

  const std::string& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }  ///< appended so far

 private:
  void write_at(std::int64_t offset, std::span<const std::byte> bytes);

  std::string path_;
  FileHandle file_;
  bool regular_ = true;
  std::int64_t bytes_ = 0;
};

/// A file that is written under a temporary name, PATH.tmp-0123456789abcdef, until commit() renames
/// it, so that PATH always names the whole old file or the whole new one. The destructor removes
/// the temporary file unless commit() was called. If a process was killed before that, the next
/// AtomicFile of the same path removes its temporary file: writers hold a lock on theirs.
class AtomicFile {
 public:
  /// Throws UsageError, with the cause and a remedy, if no file can be created there, or if the
  /// path names a folder, a device or a pipe.
  explicit AtomicFile(std::string path);

  const std::string& path() const { return path_; }

  /// Throw as OutputFile does.
  void append(std::span<const std::byte> bytes) { file_.append(bytes); }
  void overwrite(std::int64_t offset, std::span<const std::byte> bytes) {
    file_.overwrite(offset, bytes);
  }
  /// Syncs the file, renames it to path() and syncs the folder.
  void commit();

 private:
  std::string path_;
  OutputFile file_;
  FileHandle lock_;  // of the same open file, so that it is held until the file has its name
};

/// A folder that is filled under a temporary name, PATH.tmp-0123456789abcdef, so that PATH never
/// names a half-written folder. The destructor removes it unless publish() was called. As for an
/// AtomicFile, the next writer removes the folder of a process that was killed.
class TemporaryFolder {
 public:
  /// Creates the folder and its parents. Throws Error, or UsageError for the parents.
  explicit TemporaryFolder(std::string path);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return temporary_; }  ///< the temporary name

  /// Syncs it, renames it to PATH, replacing an existing folder, and syncs the parent folder.
  void publish();

 private:
  std::string path_;
  std::string temporary_;
  FileHandle lock_;
};

/// Renames a folder to a temporary name, so that its own name never stands for a half-removed
/// folder, and removes it. Throws Error with the folder and the cause.
void remove_folder(const std::string& path);

/// Removes the temporary files and folders in a folder whose writers are gone: those that nobody
/// has locked. base: only those for this file name; "": all. Does nothing on file systems without
/// locks.
void remove_abandoned(const std::string& folder, const std::string& base = "");

/// Whether `name`, a file name without its folder, is a temporary name for `base`.
bool is_temporary_name(std::string_view name, std::string_view base);

/// The absolute path without links and "..", whether it exists or not. Throws Error if a part of it
/// cannot be read.
std::string real_path(const std::string& path);

/// Whether the path exists. Never throws: a path that cannot be accessed counts as missing.
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);
bool is_plain_file(const std::string& path);

/// The files or prefixes that a pattern (* ? [) matches, sorted; for a path without a pattern, the
/// path. Throws UsageError if the pattern matches nothing.
std::vector<std::string> expand_pattern(const std::string& path);

/// The text files that the paths or patterns name, in order. A folder stands for every .txt,
/// .jsonl, .ndjson, .csv and .tsv file in it and below, also compressed, for .parquet and .pq
/// files, and for .json files that are compressed, in letters of either case, sorted by name.
/// Throws UsageError if a path names nothing.
std::vector<std::string> text_files(const std::vector<std::string>& paths);

/// Whether a path ends so, whatever the case of its ASCII letters. `ending` is in lower case.
bool ends_in(std::string_view path, std::string_view ending);

/// A path without .gz, .zst, .bz2 or .xz behind it.
std::string_view without_compression(std::string_view path);

/// Whether text_files() takes a file of this name from a folder.
bool is_text_name(std::string_view name);

/// Reads a whole file. Throws UsageError if it cannot be read or is longer than `most` bytes.
std::string read_text(const std::string& path, std::int64_t most = std::int64_t{1} << 30);

/// Writes a new file with this text and syncs it. Throws as OutputFile does.
void write_text(const std::string& path, std::string_view text);

/// Replaces a file with this text, as AtomicFile does. Writes into what is no file of its own: a
/// link such as /dev/stdout, a device or a pipe.
void write_file_atomically(const std::string& path, std::string_view text);

/// Creates a folder and its parents if they do not exist. Throws UsageError.
void make_folders(const std::string& path);

/// Bytes that this user may still write to the file system of `path`, which need not exist yet.
/// Ignores quotas.
std::int64_t free_bytes(const std::string& path);

/// The message of an errno and a remedy: "No space left on device; free space there, ...".
std::string cause_and_remedy(int error);

}  // namespace axonn
