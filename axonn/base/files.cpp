#include "axonn/base/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace axonn {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTagDigits = 16;
constexpr std::string_view kTemporary = ".tmp-";
// Linux transfers at most 0x7ffff000 bytes per call; with smaller calls an error says where it
// happened.
constexpr std::size_t kMostBytesACall = std::size_t{1} << 30;

/// 64 random bits in hex, so that ranks and jobs that write side by side use different names.
std::string random_tag() {
  std::random_device device;
  std::string tag(kTagDigits, '0');
  for (char& digit : tag) digit = "0123456789abcdef"[device() % 16];
  return tag;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void rename_path(const std::string& from, const std::string& to) {
  AXONN_CHECK(::rename(from.c_str(), to.c_str()) == 0, "cannot rename ", from, " to ", to, ": ",
              cause_and_remedy(errno));
}

bool exists(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

}  // namespace

std::string cause_and_remedy(int error) {
  std::string text = std::system_category().message(error);
  switch (error) {
    case ENOSPC:
      return text + "; free space there, or write to another disk";
    case EDQUOT:
      return text + "; remove some of your files there, or write to another disk";
    case EACCES:
    case EPERM:
      return text + "; change the permissions, or choose another place";
    case EROFS:
      return text + "; choose another place";
    case EIO:
      return text + "; the disk or its network is failing: check it, or use another";
    case EMFILE:
    case ENFILE:
      return text + "; raise the limit (ulimit -n)";
    default:
      return text;
  }
}

FileHandle::~FileHandle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  file_ = FileHandle(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (file_.get() < 0) refuse("cannot open ", path_, ": ", cause_and_remedy(errno));
  struct stat status;
  if (::fstat(file_.get(), &status) != 0)
    refuse("cannot open ", path_, ": ", cause_and_remedy(errno));
  if (!S_ISREG(status.st_mode)) refuse(path_, " is not a regular file");
  bytes_ = status.st_size;
}

void InputFile::read(std::int64_t offset, std::span<std::byte> out) const {
  std::int64_t at = offset;
  for (std::span rest = out; !rest.empty();) {
    const ssize_t got =
        ::pread(file_.get(), rest.data(), std::min(rest.size(), kMostBytesACall), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      refuse("cannot read ", rest.size(), " bytes at ", at, " of ", path_, ": ",
             cause_and_remedy(errno));
    if (got == 0)
      refuse(path_, " is cut short: it ends at byte ", at, ", but bytes up to ",
             offset + static_cast<std::int64_t>(out.size()), " are needed");
    at += got;
    rest = rest.subspan(static_cast<std::size_t>(got));
  }
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  file_ = FileHandle(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  AXONN_CHECK(file_.get() >= 0, "cannot create ", path_, ": ", cause_and_remedy(errno));
}

OutputFile::~OutputFile() {
  if (file_.get() >= 0) ::unlink(path_.c_str());
}

void OutputFile::append(std::span<const std::byte> bytes) {
  for (std::span rest = bytes; !rest.empty();) {
    const ssize_t put = ::write(file_.get(), rest.data(), std::min(rest.size(), kMostBytesACall));
    if (put < 0 && errno == EINTR) continue;
    // A write of 0 bytes without an error would repeat for ever.
    AXONN_CHECK(put > 0, "cannot write ", rest.size(), " bytes to ", path_, " after its first ",
                bytes_, ": ", cause_and_remedy(put < 0 ? errno : ENOSPC));
    bytes_ += put;
    rest = rest.subspan(static_cast<std::size_t>(put));
  }
}

void OutputFile::finish() {
  AXONN_CHECK(::fsync(file_.get()) == 0, "cannot sync the ", bytes_, " bytes of ", path_,
              " to disk: ", cause_and_remedy(errno));
  // Network file systems report a full disk or quota only now.
  const int descriptor = file_.release();
  if (::close(descriptor) != 0) {
    const int error = errno;
    ::unlink(path_.c_str());
    fail(Where::here(), "cannot close ", path_, " after ", bytes_,
         " bytes: ", cause_and_remedy(error));
  }
}

TemporaryFolder::TemporaryFolder(std::string path) : path_(without_slash(std::move(path))) {
  make_folders(folder_of(path_));
  const std::string name = concat(path_, kTemporary, random_tag());
  AXONN_CHECK(::mkdir(name.c_str(), 0777) == 0, "cannot make the folder ", name, ": ",
              cause_and_remedy(errno));
  temporary_ = name;
}

TemporaryFolder::~TemporaryFolder() { remove(); }

void TemporaryFolder::publish() {
  sync_folder(temporary_);
  const std::string above = folder_of(path_);
  if (!exists(path_)) {
    rename_path(temporary_, path_);
    temporary_.clear();
    sync_folder(above);
    return;
  }
  // One call swaps the two if the file system supports it; else the name is missing for a moment.
  std::string old = temporary_;
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
    old = concat(path_, kTemporary, random_tag());
    rename_path(path_, old);
    rename_path(temporary_, path_);
  }
  temporary_.clear();
  sync_folder(above);
  std::error_code ignored;  // the new one is in place: remains of the old do no harm
  fs::remove_all(old, ignored);
}

void TemporaryFolder::remove() noexcept {
  if (temporary_.empty()) return;
  std::error_code ignored;
  fs::remove_all(std::exchange(temporary_, {}), ignored);
}

void remove_folder(const std::string& path) {
  const std::string old = concat(without_slash(path), kTemporary, random_tag());
  rename_path(path, old);
  std::error_code error;
  fs::remove_all(old, error);
  AXONN_CHECK(!error, "cannot remove ", old, ": ", cause_and_remedy(error.value()));
}

bool is_temporary_name(std::string_view name, std::string_view base) {
  if (!name.starts_with(base)) return false;
  name.remove_prefix(base.size());
  if (!name.starts_with(kTemporary)) return false;
  name.remove_prefix(kTemporary.size());
  return name.size() == kTagDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string read_text(const std::string& path, std::int64_t most) {
  const InputFile file(path);
  if (file.bytes() > most)
    refuse(path, " has ", file.bytes(), " bytes; at most ", most, " can be read");
  std::string text(static_cast<std::size_t>(file.bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.append(std::as_bytes(std::span(text)));
  file.finish();
}

void write_file_atomically(const std::string& path, std::string_view text) {
  const std::string temporary = concat(path, kTemporary, random_tag());
  write_text(temporary, text);
  try {
    rename_path(temporary, path);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder_of(path));
}

void sync_folder(const std::string& path) {
  const FileHandle folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  AXONN_CHECK(folder.get() >= 0, "cannot open the folder ", path, ": ", cause_and_remedy(errno));
  // Some network file systems cannot sync folders, and need not.
  AXONN_CHECK(::fsync(folder.get()) == 0 || errno == EINVAL || errno == ENOTSUP,
              "cannot sync the folder ", path, " to disk: ", cause_and_remedy(errno));
}

void make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(without_slash(path), error);
  AXONN_CHECK(!error, "cannot make the folder ", path, ": ", cause_and_remedy(error.value()));
}

std::int64_t free_bytes(const std::string& path) {
  fs::path at = fs::absolute(path);
  std::error_code error;
  while (!fs::exists(at, error) && at != at.parent_path()) at = at.parent_path();
  struct statvfs status;
  AXONN_CHECK(::statvfs(at.c_str(), &status) == 0, "cannot find out the free space of ",
              at.string(), ": ", cause_and_remedy(errno));
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace axonn
