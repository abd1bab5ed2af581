// The functions of the C library for files (interposed.cpp says how and why).
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <type_traits>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/cluster/simulation.h"

namespace axonn::cluster {

namespace {

std::string full_path(int folder, const char* path) {
  std::string full =
      path[0] == '/' || folder == AT_FDCWD ? "" : simulation().disk->path_of(folder) + '/';
  full += path;
  while (full.size() > 1 && full.ends_with('/')) full.pop_back();
  return full;
}

/// Whether a call of this thread for the path is simulated.
bool is_simulated(int folder, const char* path) {
  if (!scheduler() || !simulation().disk) return false;
  const Serving serving;
  return simulation().disk->has(full_path(folder, path));
}
bool is_simulated(int descriptor) {
  if (!scheduler() || !simulation().disk) return false;
  const Serving serving;
  return simulation().disk->tracks(descriptor);
}

enum class Effect { takes_room, changes, syncs, reads };

struct Begun {
  int error = 0;           // with which the call ends
  bool few = false;        // it writes only a part
  std::int64_t torn = -1;  // the process ends when so many bytes are written
};

/// The beginning of a simulated call.
Begun begin_call(const char* name, const std::string& path, Effect effect, std::int64_t bytes = 0) {
  Simulation& s = simulation();
  const std::string what = std::string(name) + ' ' + path.substr(path.rfind('/') + 1);
  s.scheduler->point(what.c_str());
  const DiskFault* fault = nullptr;
  {
    const Serving serving;
    const std::int64_t torn = s.at_file_call(bytes);
    fault = s.disk->fault_of_call(path);
    if (torn >= 0) return {.torn = torn};
  }
  if (!fault) return {};
  switch (fault->kind) {
    case DiskFault::Kind::slow:
      s.scheduler->wait(nullptr, "a slow disk",
                        s.scheduler->now_ns() + static_cast<std::int64_t>(1e9 * fault->seconds));
      return {};
    case DiskFault::Kind::full:
      return {.error = effect == Effect::takes_room ? ENOSPC : 0};
    case DiskFault::Kind::broken:
      return {.error = EIO};
    case DiskFault::Kind::few_bytes:
      return {.few = true};
  }
  return {};
}

int failed(int error) { return errno = error, -1; }

/// open() and fopen(): `open` is the library's, with these arguments.
template <typename Open>
auto open_in(const std::string& path, int flags, const Open& open) {
  Disk& disk = *simulation().disk;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  struct stat status {};
  bool exists = false;
  {
    const Serving serving;
    exists = ::lstat(path.c_str(), &status) == 0;
    if (writes && exists && (flags & O_TRUNC) != 0) disk.will_truncate(path, 0);
  }
  const auto result = open();
  const Serving serving;
  int descriptor = -1;
  if constexpr (std::is_pointer_v<decltype(result)>)
    descriptor = result ? ::fileno(result) : -1;
  else
    descriptor = result;
  if (descriptor >= 0 && writes) disk.opened(descriptor, path, !exists);
  return result;
}

std::string path_of(int descriptor) {
  const Serving serving;
  return simulation().disk->path_of(descriptor);
}

/// Calls write(count) of as many bytes as are written now.
template <typename Write>
ssize_t write_in(int descriptor, std::int64_t offset, std::size_t count, const Write& write) {
  const std::string path = path_of(descriptor);
  const auto [error, few, torn] =
      begin_call("write", path, Effect::takes_room, static_cast<std::int64_t>(count));
  if (error > 0) return failed(error);
  if (few && count > 1) count = 1 + count / 3;
  if (torn >= 0) count = torn;
  {
    const Serving serving;
    simulation().disk->will_write(descriptor, offset, static_cast<std::int64_t>(count));
  }
  const ssize_t written = write(count);
  if (torn >= 0) simulation().end();
  return written;
}

int sync_in(int descriptor) {
  Disk& disk = *simulation().disk;
  const std::string path = path_of(descriptor);
  const int fault = begin_call("sync", path, Effect::syncs).error;
  const Serving serving;
  fault > 0 ? disk.sync_failed(descriptor) : disk.synced(descriptor);
  return fault > 0 ? fault : 0;
}

/// rename() and its relatives.
int rename_in(const char* from, const char* to, unsigned flags) {
  Disk& disk = *simulation().disk;
  const std::string one = full_path(AT_FDCWD, from), other = full_path(AT_FDCWD, to);
  if (const int fault = begin_call("rename", one, Effect::changes).error; fault > 0)
    return failed(fault);
  const bool exchanges = (flags & RENAME_EXCHANGE) != 0;
  int error = 0;
  {
    const Serving serving;
    if (!exchanges) disk.will_rename(other);
    error = ::renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) == 0 ? 0 : errno;
    if (error == 0) exchanges ? disk.exchanged(one, other) : disk.renamed(one, other);
  }
  return error == 0 ? 0 : failed(error);
}

/// unlink() and its relatives; `remove` is the library's.
template <typename Remove>
int remove_in(const std::string& path, const Remove& remove) {
  if (const int fault = begin_call("remove", path, Effect::changes).error; fault > 0)
    return failed(fault);
  int error = 0;
  {
    const Serving serving;
    simulation().disk->will_remove(path);
    error = remove() == 0 ? 0 : errno;
    if (error == 0) simulation().disk->removed(path);
  }
  return error == 0 ? 0 : failed(error);
}

}  // namespace

}  // namespace axonn::cluster

using namespace axonn::cluster;

extern "C" {

int openat(int folder, const char* path, int flags, ...) {
  static const auto real = next<int(int, const char*, int, ...)>("openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (!is_simulated(folder, path)) return real(folder, path, flags, mode);
  const std::string full = full_path(folder, path);
  const bool makes = (flags & O_CREAT) != 0;
  const int fault = begin_call("open", full, makes ? Effect::takes_room : Effect::reads).error;
  if (fault > 0) return failed(fault);
  return open_in(full, flags, [&] { return real(folder, path, flags, mode); });
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return openat(AT_FDCWD, path, flags, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  static const auto real = next<FILE*(const char*, const char*)>("fopen64");
  if (!is_simulated(AT_FDCWD, path)) return real(path, mode);
  const std::string full = full_path(AT_FDCWD, path), how = mode;
  const bool writes = how.find_first_of("wa+") != how.npos;
  const int fault = begin_call("open", full, writes ? Effect::takes_room : Effect::reads).error;
  if (fault > 0) return errno = fault, nullptr;
  const int flags = (writes ? O_RDWR : O_RDONLY) | (how.starts_with('w') ? O_TRUNC : 0);
  return open_in(full, flags, [&] { return real(path, mode); });
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  static const auto real = next<ssize_t(int, const void*, size_t)>("write");
  if (!is_simulated(descriptor)) return real(descriptor, bytes, count);
  return write_in(descriptor, -1, count, [&](size_t now) { return real(descriptor, bytes, now); });
}

ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  static const auto real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (!is_simulated(descriptor)) return real(descriptor, bytes, count, offset);
  return write_in(descriptor, offset, count,
                  [&](size_t now) { return real(descriptor, bytes, now, offset); });
}

ssize_t writev(int descriptor, const iovec* parts, int count) {
  static const auto real = next<ssize_t(int, const iovec*, int)>("writev");
  if (!is_simulated(descriptor)) return real(descriptor, parts, count);
  std::string all;
  for (int i = 0; i < count; ++i)
    all.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  return write(descriptor, all.data(), all.size());
}

int fsync(int descriptor) {
  static const auto real = next<int(int)>("fsync");
  if (!scheduler() || !simulation().disk) return real(descriptor);
  const int fault = sync_in(descriptor);
  return fault > 0 ? failed(fault) : 0;
}

int fdatasync(int descriptor) { return fsync(descriptor); }

int ftruncate(int descriptor, off_t bytes) noexcept {
  static const auto real = next<int(int, off_t)>("ftruncate");
  if (is_simulated(descriptor)) {
    const Serving serving;
    simulation().disk->will_truncate(simulation().disk->path_of(descriptor), bytes);
  }
  return real(descriptor, bytes);
}

int truncate(const char* path, off_t bytes) noexcept {
  static const auto real = next<int(const char*, off_t)>("truncate");
  if (is_simulated(AT_FDCWD, path)) {
    const Serving serving;
    simulation().disk->will_truncate(path, bytes);
  }
  return real(path, bytes);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int(const char*, const char*)>("rename");
  return is_simulated(AT_FDCWD, from) ? rename_in(from, to, 0) : real(from, to);
}

int renameat2(int from_in, const char* from, int to_in, const char* to, unsigned flags) noexcept {
  static const auto real = next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return is_simulated(from_in, from) ? rename_in(from, to, flags)
                                     : real(from_in, from, to_in, to, flags);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static const auto real = next<int(int, const char*, int)>("unlinkat");
  if (!is_simulated(folder, path)) return real(folder, path, flags);
  return remove_in(full_path(folder, path), [&] { return real(folder, path, flags); });
}

int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char* path) noexcept {
  static const auto real = next<int(const char*)>("remove");
  if (!is_simulated(AT_FDCWD, path)) return real(path);
  return remove_in(full_path(AT_FDCWD, path), [&] { return real(path); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = next<int(const char*, mode_t)>("mkdir");
  if (!is_simulated(AT_FDCWD, path)) return real(path, mode);
  const std::string full = full_path(AT_FDCWD, path);
  if (const int fault = begin_call("mkdir", full, Effect::takes_room).error; fault > 0)
    return failed(fault);
  const int result = real(path, mode);
  const Serving serving;
  if (result == 0) simulation().disk->made_folder(full);
  return result;
}

int statvfs(const char* path, struct statvfs* status) noexcept {
  static const auto real = next<int(const char*, struct statvfs*)>("statvfs");
  const int result = real(path, status);
  if (!is_simulated(AT_FDCWD, path)) return result;
  const Serving serving;
  if (simulation().disk->is_full(full_path(AT_FDCWD, path))) status->f_bavail = 0;
  return result;
}

}  // extern "C"
