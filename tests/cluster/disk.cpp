#include "tests/cluster/disk.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace axonn::cluster {

// Everything here calls the C library itself: the thread that runs is in a call for a file.
// interposed.cpp lets such calls through.

namespace {

std::string name_in(const std::string& path) { return path.substr(path.rfind('/') + 1); }
std::string folder_in(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

Disk::Disk(std::string folder, std::string kept, std::vector<DiskFault> faults, Account& account,
           ForgottenSyncs forgotten)
    : folder_(std::move(folder)),
      kept_(std::move(kept)),
      faults_(std::move(faults)),
      account_(account),
      forgotten_(forgotten) {}

const DiskFault* Disk::fault_of_call(const std::string& path) {
  const std::int64_t call = account_.file_calls++;
  for (const DiskFault& fault : faults_)
    if (call >= fault.first && call <= fault.last && path.starts_with(fault.below)) return &fault;
  return nullptr;
}

bool Disk::is_full(const std::string& path) const {
  return std::ranges::any_of(faults_, [&](const DiskFault& fault) {
    return fault.kind == DiskFault::Kind::full && account_.file_calls >= fault.first &&
           account_.file_calls <= fault.last && path.starts_with(fault.below);
  });
}

std::string Disk::path_of(int descriptor) const {
  std::string path(4096, '\0');
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t got = ::readlink(link.c_str(), path.data(), path.size());
  path.resize(got > 0 ? got : 0);
  return path;
}

Disk::File* Disk::file_of(int descriptor) {
  struct stat status;
  if (::fstat(descriptor, &status) != 0) return nullptr;
  const auto found = files_.find(status.st_ino);
  return found == files_.end() ? nullptr : &found->second;
}

bool Disk::tracks(int descriptor) const { return const_cast<Disk*>(this)->file_of(descriptor); }

void Disk::opened(int descriptor, const std::string& path, bool made) {
  if (made)
    names_.push_back({.kind = Name::Kind::made, .folder = folder_of(path), .name = name_in(path)});
  struct stat status;
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return;
  File& file = files_[status.st_ino];
  if (file.descriptor >= 0) return;
  file.name = path;
  file.descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

void Disk::will_truncate(const std::string& path, std::int64_t bytes) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return;
  opened(descriptor, path, /*made=*/false);
  struct stat status;
  if (::fstat(descriptor, &status) == 0 && status.st_size > bytes)
    will_write(descriptor, bytes, status.st_size - bytes);
  ::close(descriptor);
}

void Disk::will_write(int descriptor, std::int64_t offset, std::int64_t bytes) {
  File* const file = file_of(descriptor);
  struct stat status;
  if (!file || ::fstat(descriptor, &status) != 0) return;
  if (offset < 0) {  // where the descriptor stands
    const bool appends = (::fcntl(descriptor, F_GETFL) & O_APPEND) != 0;
    offset = appends ? status.st_size : ::lseek(descriptor, 0, SEEK_CUR);
  }
  Write write{.offset = offset, .bytes = bytes, .size_before = status.st_size, .before = {}};
  write.before.resize(std::clamp<std::int64_t>(status.st_size - offset, 0, bytes));
  if (!write.before.empty())
    write.before.resize(std::max<ssize_t>(
        0, ::pread(file->descriptor, write.before.data(), write.before.size(), offset)));
  file->writes.push_back(std::move(write));
}

void Disk::synced(int descriptor) {
  struct stat status;
  if (::fstat(descriptor, &status) != 0) return;
  if (S_ISDIR(status.st_mode) ? forgotten_.folders : forgotten_.files) return;
  if (File* const file = file_of(descriptor))
    std::erase_if(file->writes, [](const Write& write) { return !write.lasts_never; });
  if (const auto found = folder_numbers_.find(status.st_ino); found != folder_numbers_.end())
    std::erase_if(names_, [&](const Name& name) { return name.folder == found->second; });
}

void Disk::sync_failed(int descriptor) {
  if (File* const file = file_of(descriptor))
    for (Write& write : file->writes) write.lasts_never = true;
}

int Disk::folder_of(const std::string& path) {
  const int descriptor = ::open(folder_in(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat status {};
  ::fstat(descriptor, &status);
  const auto [at, is_new] = folder_numbers_.try_emplace(status.st_ino, std::ssize(folders_));
  if (is_new)
    folders_.push_back(descriptor);  // which also keeps its number from being given again
  else
    ::close(descriptor);
  return at->second;
}

std::string Disk::kept_path(int number) const { return kept_ + '/' + std::to_string(number); }

/// Keeps a file that is about to lose its name. Returns its number, -1 for a folder or none.
int Disk::keep(const std::string& path) {
  if (::link(path.c_str(), kept_path(kept_count_).c_str()) != 0) return -1;
  return kept_count_++;
}

void Disk::made_folder(const std::string& path) {
  names_.push_back({.kind = Name::Kind::made, .folder = folder_of(path), .name = name_in(path)});
}

void Disk::will_rename(const std::string& to) { kept_now_ = keep(to); }

void Disk::renamed(const std::string& from, const std::string& to) {
  names_.push_back({.kind = Name::Kind::renamed,
                    .folder = folder_of(to),
                    .name = name_in(from),
                    .other = name_in(to),
                    .kept = kept_now_});
}

void Disk::exchanged(const std::string& one, const std::string& other) {
  names_.push_back({.kind = Name::Kind::exchanged,
                    .folder = folder_of(one),
                    .name = name_in(one),
                    .other = name_in(other)});
}

void Disk::will_remove(const std::string& path) {
  struct stat status;
  kept_folder_now_ = ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  kept_now_ = kept_folder_now_ ? folder_of(path + "/.") : keep(path);
}

void Disk::removed(const std::string& path) {
  names_.push_back({.kind = kept_folder_now_ ? Name::Kind::removed_folder : Name::Kind::removed,
                    .folder = folder_of(path),
                    .name = name_in(path),
                    .kept = kept_now_});
}

/// Of the writes that may be lost the first ones stay, and a part of the next.
void Disk::lose_writes(File& file, Draws& draws) {
  if (file.writes.empty()) return;
  std::int64_t stay = draws.chance(0.4) ? 0 : draws.below(std::ssize(file.writes) + 1);
  const auto never = std::ranges::find(file.writes, true, &Write::lasts_never);
  stay = std::min<std::int64_t>(stay, never - file.writes.begin());
  const bool filled = draws.chance(0.5);  // of a longer file whose bytes are lost, or a shorter one
  for (std::int64_t i = std::ssize(file.writes) - 1; i >= stay; --i) {
    const Write& write = file.writes[i];
    std::int64_t kept = i == stay ? draws.below(write.bytes + 1) : 0;
    if (write.lasts_never) kept = 0;
    std::string lost(write.bytes - kept, '\0');
    for (std::int64_t at = kept; at < std::ssize(write.before); ++at)
      lost[at - kept] = write.before[at];
    static_cast<void>(::pwrite(file.descriptor, lost.data(), lost.size(), write.offset + kept));
    if (filled && i == stay) continue;
    const std::int64_t size = std::max(write.size_before, kept > 0 ? write.offset + kept : 0);
    static_cast<void>(::ftruncate(file.descriptor, size));
  }
  account_.add_note("lost of %s: writes %lld to %zu", file.name.c_str(),
                    static_cast<long long>(stay), file.writes.size());
}

void Disk::undo(const Name& change) {
  const int at = folders_[change.folder];
  const auto put_back = [&](const std::string& name) {
    if (change.kept >= 0) ::renameat(AT_FDCWD, kept_path(change.kept).c_str(), at, name.c_str());
  };
  switch (change.kind) {
    case Name::Kind::made: {
      std::error_code ignored;
      std::filesystem::remove_all(path_of(at) + '/' + change.name, ignored);
      break;
    }
    case Name::Kind::renamed:
      ::renameat(at, change.other.c_str(), at, change.name.c_str());
      put_back(change.other);
      break;
    case Name::Kind::exchanged:
      ::renameat2(at, change.name.c_str(), at, change.other.c_str(), RENAME_EXCHANGE);
      break;
    case Name::Kind::removed:
      put_back(change.name);
      break;
    case Name::Kind::removed_folder:
      ::mkdirat(at, change.name.c_str(), 0777);
      folders_[change.kept] = ::openat(at, change.name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      break;
  }
  account_.add_note("lost in %s: %s %s %s", path_of(at).c_str(),
                    std::array{"made", "renamed", "exchanged", "removed",
                               "removed folder"}[static_cast<int>(change.kind)],
                    change.name.c_str(), change.other.c_str());
}

void Disk::lose_power(Draws& draws) {
  for (auto& [number, file] : files_) lose_writes(file, draws);
  std::vector<std::int64_t> changes(folders_.size()), stay(folders_.size());
  for (const Name& name : names_) ++changes[name.folder];
  for (std::size_t i = 0; i < stay.size(); ++i)
    stay[i] = draws.chance(0.3) ? changes[i] : draws.below(changes[i] + 1);
  for (auto name = names_.rbegin(); name != names_.rend(); ++name)
    if (--changes[name->folder] >= stay[name->folder]) undo(*name);
}

}  // namespace axonn::cluster
