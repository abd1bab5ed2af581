#include "axonn/compute/tensor/file_memory.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/log.h"

namespace axonn {

namespace {

/// Says why a page that the disk did not give ends the process. Only calls that a signal handler
/// may make.
void explain_bus_error(int signal) {
  constexpr std::string_view kText =
      "axonn: a file that is mapped into memory could not be read or written (SIGBUS). Values that "
      "[offload] keeps on disk are such files: the disk of offload.dir has failed or is full. "
      "Resume from the newest checkpoint with another offload.dir\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText.data(), kText.size());
  std::signal(signal, SIG_DFL);  // the access runs again, and ends the process
}

void install_bus_error() {
  static std::atomic<bool> done = false;
  if (done.exchange(true)) return;
  struct sigaction now = {};
  sigaction(SIGBUS, nullptr, &now);
  if (now.sa_handler != SIG_DFL) return;  // a debugger's or a sanitizer's says more
  now.sa_handler = explain_bus_error;
  sigaction(SIGBUS, &now, nullptr);
}

FileHandle make_file(const std::string& folder) {
  make_folders(folder);
  struct statfs system = {};
  if (statfs(folder.c_str(), &system) == 0 && system.f_type == TMPFS_MAGIC)
    refuse("[offload] dir: the files of ", folder,
           " are in memory (tmpfs), so nothing would be gained; name a folder on a disk of this "
           "node");
  int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // a network's file system
    std::string path = folder + "/offloaded-XXXXXX";
    file = mkostemp(path.data(), O_CLOEXEC);
    if (file >= 0) unlink(path.c_str());
  }
  if (file < 0)
    refuse("[offload] dir: cannot make a file in ", folder, ": ", cause_and_remedy(errno));
  return FileHandle(file);
}

/// The address at which its page begins.
std::uintptr_t page_of(std::uintptr_t address) {
  return address - address % static_cast<std::uintptr_t>(FileMemory::page());
}

}  // namespace

std::int64_t FileMemory::page() {
  static const std::int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

FileMemory::FileMemory(std::string folder) : folder_(std::move(folder)), file_(make_file(folder_)) {
  install_bus_error();
}

void* FileMemory::allocate(std::int64_t bytes) {
  const std::int64_t size = whole_pages(bytes);
  // All of its room at once: a page that finds none later would end the process.
  if (const int error = posix_fallocate(file_.get(), end_, size); error != 0)
    refuse("[offload] dir: ", format_bytes(size), " more do not fit into a file of ", folder_,
           ", which has ", format_bytes(free_bytes(folder_)), " free: ", cause_and_remedy(error));
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), end_);
  if (memory == MAP_FAILED)
    refuse("[offload] dir: cannot map a file of ", folder_,
           " into memory: ", cause_and_remedy(errno));
  end_ += size;
  return memory;
}

void FileMemory::release(void* memory, std::int64_t bytes) noexcept {
  munmap(memory, whole_pages(bytes));
}

double FileMemory::time_transfers(std::int64_t bytes) {
  const std::int64_t begin = end_;
  auto* const memory = static_cast<char*>(allocate(bytes));
  double seconds = -now_seconds();
  for (std::int64_t at = 0; at < bytes; at += page()) memory[at] = 1;
  const int error = msync(memory, bytes, MS_SYNC) == 0 ? 0 : errno;
  seconds += now_seconds();
  put_away(memory, bytes);
  posix_fadvise(file_.get(), begin, bytes, POSIX_FADV_DONTNEED);
  seconds -= now_seconds();
  read_ahead(memory, bytes);
  std::int64_t sum = 0;
  for (std::int64_t at = 0; at < bytes; at += page()) sum += memory[at];
  seconds += now_seconds();
  release(memory, bytes);
  AXONN_CHECK(error != 0 || sum == bytes / page(), "time_transfers: ", sum, " pages of ",
              bytes / page());
  if (error != 0)
    refuse("[offload] dir: cannot write a file of ", folder_, ": ", cause_and_remedy(error));
  return seconds;
}

void FileMemory::read_ahead(const void* part, std::int64_t bytes) const noexcept {
  constexpr std::int64_t kAtOnce = 1 << 20;  // the system reads no more in one call
  const auto address = reinterpret_cast<std::uintptr_t>(part);
  const std::uintptr_t begin = page_of(address), end = address + static_cast<std::uintptr_t>(bytes);
  for (std::uintptr_t at = begin; at < end; at += kAtOnce)
    madvise(reinterpret_cast<void*>(at), std::min<std::uintptr_t>(kAtOnce, end - at),
            MADV_WILLNEED);
}

void FileMemory::put_away(const void* part, std::int64_t bytes) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(part);
  const std::uintptr_t begin = page_of(address);
  madvise(reinterpret_cast<void*>(begin), address - begin + static_cast<std::uintptr_t>(bytes),
          MADV_DONTNEED);  // of a shared mapping: no value is lost
}

}  // namespace axonn
