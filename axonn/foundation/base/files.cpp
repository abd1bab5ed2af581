#include "axonn/foundation/base/files.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>

#include <fcntl.h>
#include <glob.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "axonn/foundation/base/atomic_text.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp-";
// Linux transfers at most 0x7ffff000 bytes per call; with smaller calls an error says where it
// happened.
constexpr std::size_t kMostBytesACall = std::size_t{1} << 30;

/// PATH.tmp-0123456789abcdef.
std::string temporary_name(const std::string& path) {
  return concat(path, kTemporary, random_hex());
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// Without exceptions: a path that cannot be accessed has no type.
fs::file_status status_of(const std::string& path) {
  std::error_code ignored;
  return fs::status(path, ignored);
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void rename_path(const std::string& from, const std::string& to) {
  AXONN_CHECK(::rename(from.c_str(), to.c_str()) == 0, "cannot rename ", from, " to ", to, ": ",
              cause_and_remedy(errno));
}

/// Syncs a folder to disk, so that its names survive a crash.
void sync_folder(const std::string& path) {
  const FileHandle folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  AXONN_CHECK(folder.get() >= 0, "cannot open the folder ", path, ": ", cause_and_remedy(errno));
  // Some network file systems cannot sync folders, and need not.
  AXONN_CHECK(::fsync(folder.get()) == 0 || errno == EINVAL || errno == ENOTSUP,
              "cannot sync the folder ", path, " to disk: ", cause_and_remedy(errno));
}

/// Whether the name is taken, also by a link that leads nowhere.
bool is_taken(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

/// Opens and locks a file or a folder; -1 if another process has locked it, or if it cannot be
/// locked, as a folder on NFS.
FileHandle lock(const std::string& path) {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;  // opening a pipe would wait for a writer
  FileHandle file(::open(path.c_str(), (is_folder(path) ? O_RDONLY : O_WRONLY) | kFlags));
  return file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 ? std::move(file)
                                                                        : FileHandle();
}

/// A new file PATH.tmp-0123456789abcdef with a lock on it.
OutputFile create_temporary(const std::string& path) {
  if (path.empty()) refuse("cannot write a file: its path is empty");
  if (is_folder(path)) refuse("cannot write ", path, ": it is a folder");
  if (path_exists(path) && !is_plain_file(path))
    refuse("cannot write ", path, ": it is a device or a pipe, not a file");
  for (;;) {
    const std::string name = temporary_name(path);
    FileHandle file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.get() < 0 && errno == EEXIST) continue;
    if (file.get() < 0) refuse("cannot write ", path, ": ", cause_and_remedy(errno));
    ::flock(file.get(), LOCK_EX | LOCK_NB);
    // Somebody may have taken it for abandoned before it was locked.
    if (is_taken(name)) return OutputFile(name, std::move(file));
  }
}

/// Raises the number of files that the process may open as far as possible. Returns whether it
/// rose. Data sets and ranks may each have many files, and the usual limit is 1,024.
bool raise_file_limit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator
           at(folder, fs::directory_options::follow_directory_symlink, error),
       end;
       !error && at != end; at.increment(error))
    if (is_text_name(at->path().native()) && at->is_regular_file(error))
      files.push_back(at->path().string());
  if (error) refuse("cannot read the folder ", folder, ": ", error.message());
  if (files.empty())
    refuse("the folder ", folder,
           " and those below it have no .txt, .jsonl, .csv or .parquet files, "
           "plain or compressed (.gz, .zst, .bz2, .xz)");
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string cause_and_remedy(int error) {
  static const std::map<int, std::string_view> kRemedies = {
      {ENOSPC, "; free space there, or write to another disk"},
      {EDQUOT, "; remove some of your files there, or write to another disk"},
      {EACCES, "; change the permissions, or choose another place"},
      {EPERM, "; change the permissions, or choose another place"},
      {EROFS, "; choose another place"},
      {EFBIG, "; raise the limit on the size of files (ulimit -f), or write to another disk"},
      {EIO, "; the disk or its network is failing: check it, or use another"},
      {EMFILE, "; raise the limit (ulimit -n)"},
      {ENFILE, "; raise the limit (ulimit -n)"}};
  const auto remedy = kRemedies.find(error);
  return concat(std::system_category().message(error),
                remedy == kRemedies.end() ? "" : remedy->second);
}

FileHandle::~FileHandle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe would wait for a writer.
  const auto open = [&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); };
  file_ = FileHandle(open());
  if (file_.get() < 0 && errno == EMFILE && raise_file_limit()) file_ = FileHandle(open());
  if (file_.get() < 0) refuse("cannot open ", path_, ": ", cause_and_remedy(errno));
  struct stat status;
  if (::fstat(file_.get(), &status) != 0)
    refuse("cannot open ", path_, ": ", cause_and_remedy(errno));
  if (!S_ISREG(status.st_mode)) refuse(path_, " is not a regular file");
  bytes_ = status.st_size;
  refuse_lfs_pointer();
}

void InputFile::refuse_lfs_pointer() const {
  constexpr std::string_view kBegin = "version https://git-lfs.github.com/spec/";
  constexpr std::int64_t kMost = 1024;  // bytes, by the specification of these files
  if (bytes_ < std::ssize(kBegin) || bytes_ > kMost) return;
  std::string begin(kBegin.size(), '\0');
  read(0, std::as_writable_bytes(std::span(begin)));
  if (begin == kBegin)
    refuse(path_, " is a Git LFS pointer, not the file itself: run git lfs pull in its folder");
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
    rest = rest.subspan(got);
  }
}

TextFile::TextFile(std::string path) : path_(std::move(path)), text_(read_text(path_)) {}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  file_ = FileHandle(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  AXONN_CHECK(file_.get() >= 0, "cannot create ", path_, ": ", cause_and_remedy(errno));
  struct stat status;
  regular_ = ::lstat(path_.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

OutputFile::~OutputFile() {
  if (file_.get() >= 0 && regular_) ::unlink(path_.c_str());
}

void OutputFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  const bool at_end = offset == bytes_;  // all that a pipe can do
  for (std::span rest = bytes; !rest.empty();) {
    const std::size_t count = std::min(rest.size(), kMostBytesACall);
    const ssize_t put = at_end ? ::write(file_.get(), rest.data(), count)
                               : ::pwrite(file_.get(), rest.data(), count, offset);
    if (put < 0 && errno == EINTR) continue;
    // A write of 0 bytes without an error would repeat for ever.
    AXONN_CHECK(put > 0, "cannot write ", rest.size(), " bytes to ", path_, " after its first ",
                offset, ": ", cause_and_remedy(put < 0 ? errno : ENOSPC));
    offset += put;
    rest = rest.subspan(put);
  }
}

void OutputFile::append(std::span<const std::byte> bytes) {
  write_at(bytes_, bytes);
  bytes_ += std::ssize(bytes);
}

void OutputFile::overwrite(std::int64_t offset, std::span<const std::byte> bytes) {
  AXONN_CHECK(offset >= 0 && offset + std::ssize(bytes) <= bytes_, "overwrite: bytes [", offset,
              ", ", offset + std::ssize(bytes), ") of ", path_, " are not among the ", bytes_,
              " that were appended");
  write_at(offset, bytes);
}

FileHandle OutputFile::duplicate() const {
  return FileHandle(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
}

void OutputFile::sync() {
  AXONN_CHECK(::fsync(file_.get()) == 0 || !regular_, "cannot sync the ", bytes_, " bytes of ",
              path_, " to disk: ", cause_and_remedy(errno));
}

void OutputFile::finish() {
  sync();
  // Network file systems report a full disk or quota only now.
  const int descriptor = file_.release();
  if (::close(descriptor) != 0) {
    const int error = errno;
    if (regular_) ::unlink(path_.c_str());
    fail(Where::here(), "cannot close ", path_, " after ", bytes_,
         " bytes: ", cause_and_remedy(error));
  }
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), file_(create_temporary(path_)), lock_(file_.duplicate()) {
  remove_abandoned(folder_of(path_), fs::path(path_).filename());
}

void AtomicFile::commit() {
  const std::string temporary = file_.path();
  file_.finish();
  try {
    rename_path(temporary, path_);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder_of(path_));
  lock_ = {};
}

TemporaryFolder::TemporaryFolder(std::string path) : path_(without_slash(std::move(path))) {
  make_folders(folder_of(path_));
  do {
    temporary_ = temporary_name(path_);
    AXONN_CHECK(::mkdir(temporary_.c_str(), 0777) == 0, "cannot make the folder ", temporary_, ": ",
                cause_and_remedy(errno));
    lock_ = lock(temporary_);
  } while (!is_taken(temporary_));  // somebody took it for abandoned before it was locked
  remove_abandoned(folder_of(path_), fs::path(path_).filename());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void TemporaryFolder::publish() {
  sync_folder(temporary_);
  std::string old;  // the folder that had the name
  // One call swaps the two if the file system supports it; else the name is missing for a moment.
  if (is_taken(path_) &&
      ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
    old = temporary_;
  } else {
    if (is_taken(path_)) {
      old = temporary_name(path_);
      rename_path(path_, old);
    }
    rename_path(temporary_, path_);
  }
  temporary_.clear();
  sync_folder(folder_of(path_));
  std::error_code ignored;  // the new one is in place: remains of the old do no harm
  if (!old.empty()) fs::remove_all(old, ignored);
}

void remove_folder(const std::string& path) {
  const std::string old = temporary_name(without_slash(path));
  rename_path(path, old);
  std::error_code error;
  fs::remove_all(old, error);
  AXONN_CHECK(!error, "cannot remove ", old, ": ", cause_and_remedy(error.value()));
}

void remove_abandoned(const std::string& folder, const std::string& base) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string(),
                      its_base = name.substr(0, name.rfind(kTemporary));
    if (!is_temporary_name(name, base.empty() ? its_base : base)) continue;
    const FileHandle locked = lock(at->path());
    std::error_code ignored;
    if (locked.get() >= 0) fs::remove_all(at->path(), ignored);
  }
}

bool is_temporary_name(std::string_view name, std::string_view base) {
  if (!name.starts_with(base)) return false;
  name.remove_prefix(base.size());
  return name.starts_with(kTemporary) && parse_hex(name.substr(kTemporary.size()));
}

std::string real_path(const std::string& path) {
  std::error_code error;
  fs::path real = fs::weakly_canonical(fs::absolute(path), error);
  AXONN_CHECK(!error, "cannot read ", path, ": ", cause_and_remedy(error.value()));
  if (!real.has_filename()) real = real.parent_path();  // "dir/" is "dir"
  return real;
}

bool path_exists(const std::string& path) { return fs::exists(status_of(path)); }
bool is_folder(const std::string& path) { return fs::is_directory(status_of(path)); }
bool is_plain_file(const std::string& path) { return fs::is_regular_file(status_of(path)); }

std::vector<std::string> expand_pattern(const std::string& path) {
  if (path_exists(path) || path.find_first_of("*?[") == path.npos) return {path};
  glob_t found{};
  const int status = glob(path.c_str(), 0, nullptr, &found);  // sorted
  std::vector<std::string> paths;
  if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (paths.empty()) refuse("no file matches ", path);
  return paths;
}

bool ends_in(std::string_view path, std::string_view ending) {
  if (path.size() < ending.size()) return false;
  return std::ranges::equal(path.substr(path.size() - ending.size()), ending,
                            [](char a, char b) { return lower_ascii(a) == b; });
}

std::string_view without_compression(std::string_view path) {
  for (const std::string_view ending : {".gz", ".zst", ".bz2", ".xz"})
    if (ends_in(path, ending)) return path.substr(0, path.size() - ending.size());
  return path;
}

bool is_text_name(std::string_view name) {
  const std::string_view inner = without_compression(name);
  for (const std::string_view ending : {".txt", ".jsonl", ".ndjson", ".csv", ".tsv"})
    if (ends_in(inner, ending)) return true;
  if (inner != name) return ends_in(inner, ".json");  // a plain .json often describes the others
  return ends_in(name, ".parquet") || ends_in(name, ".pq");
}

std::vector<std::string> text_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& pattern : paths) {
    for (const std::string& path : expand_pattern(pattern)) {
      if (path.empty()) refuse("data.text names an empty path");
      if (!path_exists(path)) refuse("there is no file or folder ", path);
      const auto below = is_folder(path) ? files_below(path) : std::vector{path};
      files.insert(files.end(), below.begin(), below.end());
    }
  }
  return files;
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
  AtomicText file(path);
  file.append(text);
  file.commit();
}

void make_folders(const std::string& path) {
  std::vector<std::string> missing;
  for (std::string at = without_slash(path); !path_exists(at); at = folder_of(at))
    missing.push_back(at);
  std::error_code error;
  fs::create_directories(without_slash(path), error);
  if (error) refuse("cannot make the folder ", path, ": ", cause_and_remedy(error.value()));
  // Without its name a folder takes all with it that is synced below it.
  for (const std::string& folder : missing)
    if (::access(folder_of(folder).c_str(), R_OK) == 0) sync_folder(folder_of(folder));
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
