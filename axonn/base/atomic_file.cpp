#include "axonn/base/atomic_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "axonn/base/check.h"
#include "axonn/base/mapped_file.h"

namespace axonn {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) refuse("cannot write a file: its path is empty");
  if (is_folder(path_)) refuse("cannot write ", path_, ": it is a folder");
  // Two processes may write the same path; each needs its own temporary name, on any file system.
  const std::string stem = concat(path_, ".partial-", getpid(), '-');
  for (int attempt = 0; file_ < 0; ++attempt) {
    temporary_ = concat(stem, attempt);
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && errno != EEXIST) refuse("cannot write ", path_, ": ", std::strerror(errno));
  }
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  close(file_);
  unlink(temporary_.c_str());
}

void AtomicFile::fail_to(const char* what) const {
  const int reason = errno;
  fail(Where::here(), "cannot ", what, ' ', path_, " after ", written_,
       " bytes: ", std::strerror(reason), "; nothing was left behind");
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = write(file_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to("write");
    written_ += got;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

void AtomicFile::overwrite(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = pwrite(file_, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to("write");
    offset += got;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

void AtomicFile::commit() {
  if (fsync(file_) != 0) fail_to("sync");
  // A network file system may report a full disk only now.
  if (close(std::exchange(file_, -1)) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    unlink(temporary_.c_str());
    errno = reason;
    fail_to("finish");
  }
  const auto folder = std::filesystem::path(path_).parent_path();
  const int handle =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;
  fsync(handle);  // so that the new name survives a power cut; some file systems cannot
  close(handle);
}

}  // namespace axonn
