#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include <sys/mman.h>

#include "tests/emulated_gpu/runtime.h"

extern "C" {
// ThreadSanitizer's; null in other builds.
__attribute__((weak)) void __tsan_read_range(void* address, unsigned long bytes);
__attribute__((weak)) void __tsan_write_range(void* address, unsigned long bytes);
__attribute__((weak)) void __asan_init();
}

namespace emulated_gpu {

namespace {

using Kind = Allocation::Kind;

constexpr std::size_t kAlignment = 256;  // CUDA's
constexpr std::size_t kHugePage = 1 << 21;
constexpr int kPoison = 0xff;  // NaN in every floating-point format, -1 as an integer

std::string text_of(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  return text;
}

/// With AXONN_EMULATED_PROTECT=1: pages that hold all device memory, which only work that runs can
/// access. Their addresses are used once.
class ProtectedPages {
 public:
  static ProtectedPages* get() {
    static auto* const pages =
        setting("AXONN_EMULATED_PROTECT", 0) != 0 ? new ProtectedPages : nullptr;
    return pages;
  }

  /// Null: out of memory.
  void* allocate(std::size_t bytes) {
    if (rounded(bytes) > kRange - kHugePage - used_) return nullptr;
    return begin_ + std::exchange(used_, used_ + rounded(bytes));
  }
  static void release(void* memory, std::size_t bytes) {
    madvise(memory, rounded(bytes), MADV_DONTNEED);
  }
  void permit(bool access) const {
    const std::size_t bytes = (used_ + kHugePage - 1) / kHugePage * kHugePage;
    if (bytes > 0 && mprotect(begin_, bytes, access ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
      violation("mprotect fails");
  }

 private:
  static constexpr std::size_t kRange = std::size_t{1} << 38, kPage = 4096;

  ProtectedPages()
      : begin_(static_cast<char*>(
            mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (begin_ == MAP_FAILED) violation("there is no address space for AXONN_EMULATED_PROTECT");
    // Whole huge pages, of which few change their protection.
    begin_ += kHugePage - reinterpret_cast<std::uintptr_t>(begin_) % kHugePage;
    madvise(begin_, kRange - kHugePage, MADV_HUGEPAGE);  // may fail
    struct sigaction action {};
    action.sa_sigaction = &ProtectedPages::report;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
  }

  static std::size_t rounded(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  static void report(int, siginfo_t* fault, void*) {
    const auto* const at = static_cast<const char*>(fault->si_addr);
    const char* const begin = get()->begin_;
    if (std::less_equal<>()(begin, at) && std::less<>()(at, begin + kRange - kHugePage))
      violation("host code accesses device memory at " + text_of(at));
    std::signal(SIGSEGV, SIG_DFL);  // the instruction runs again
  }

  char* begin_;
  std::size_t used_ = 0;
};

/// The allocation that the address is in. Null: none.
Allocation* find(const void* address) {
  auto& all = machine().allocations;
  const auto it = all.upper_bound(static_cast<const char*>(address));
  return it != all.end() && it->second.begin <= address ? &it->second : nullptr;
}

/// Large memory that was freed, by its size, for the next allocation: new pages cost more time than
/// poison. Sanitizers are to see what is freed.
class Kept {
 public:
  /// Null: there is none.
  static void* take(std::size_t bytes) {
    const auto it = all().find(bytes);
    return it == all().end() ? nullptr : all().extract(it).mapped();
  }
  /// Returns whether it keeps the memory.
  static bool keep(void* memory, std::size_t bytes) {
    constexpr std::size_t kMost = 32;
    if (__asan_init || __tsan_read_range || bytes < kHugePage || all().size() == kMost)
      return false;
    all().emplace(bytes, memory);
    return true;
  }

 private:
  static std::multimap<std::size_t, void*>& all() {
    static std::multimap<std::size_t, void*> memory;
    return memory;
  }
};

/// Memory of one allocation, filled with poison. Null: beyond the limit.
void* allocate(Kind kind, int device, std::size_t bytes) {
  Machine& m = machine();
  const bool on_device = kind != Kind::pinned;
  if (on_device && bytes > device_bytes() - m.used[device]) return nullptr;
  void* memory = nullptr;
  if (ProtectedPages* const pages = ProtectedPages::get(); pages && on_device)
    memory = pages->allocate(bytes);
  else if (memory = Kept::take(bytes);  // kAlignment and not more, for AddressSanitizer
           !memory && posix_memalign(&memory, kAlignment, bytes) != 0)
    memory = nullptr;
  if (!memory) return nullptr;
  auto* const begin = static_cast<char*>(memory);
  // Huge pages, for fewer faults; may fail.
  if (constexpr std::uintptr_t kPage = 4096; bytes >= 2 * kHugePage)
    madvise(begin + kPage - reinterpret_cast<std::uintptr_t>(begin) % kPage, bytes - kPage,
            MADV_HUGEPAGE);
  permit_device_memory(true);
  std::memset(begin, kPoison, bytes);
  permit_device_memory(false);
  if (on_device) m.used[device] += bytes;
  m.allocations[begin + bytes] = {kind, begin, bytes, device};
  return memory;
}

void forget(const Allocation& allocation) {
  Machine& m = machine();
  if (allocation.kind != Kind::pinned) m.used[allocation.device] -= allocation.bytes;
  const Allocation freed = allocation;
  m.allocations.erase(freed.begin + freed.bytes);
  if (ProtectedPages::get() && freed.kind != Kind::pinned)
    ProtectedPages::release(freed.begin, freed.bytes);
  else if (!Kept::keep(freed.begin, freed.bytes))
    std::free(freed.begin);
}

/// The allocation that begins there. Null: none.
Allocation* beginning_at(const void* memory) {
  Allocation* const found = find(memory);
  return found && found->begin == memory ? found : nullptr;
}

/// Checks that the bytes are in one live allocation that the work that runs may access.
void check_access(const void* address, std::size_t bytes, const char* what) {
  const Machine& m = machine();
  const auto complain = [&](const std::string& why) {
    violation(std::string(what) + ": " + std::to_string(bytes) + " bytes at " + text_of(address) +
              " " + why);
  };
  const Allocation* const found = find(address);
  if (!found) return complain("are not in memory that cudaMalloc or cudaMallocHost returned");
  const std::size_t offset = static_cast<const char*>(address) - found->begin;
  if (bytes > found->bytes - offset)
    complain("begin at byte " + std::to_string(offset) + " of an allocation of " +
             std::to_string(found->bytes));
  if (found->kind != Kind::pinned && m.running_on >= 0 && found->device != m.running_on &&
      !m.peers.contains({m.running_on, found->device}))
    complain("are in memory of device " + std::to_string(found->device) + ", to which device " +
             std::to_string(m.running_on) + " has no access");
}

/// Checks for a copy or memset that the address is in memory of the kind.
void check_kind(const char* function, const void* address, bool on_device) {
  const Allocation* const found = find(address);
  if (!found || (found->kind != Kind::pinned) != on_device)
    violation(std::string(function) + ": " + text_of(address) + " is not in " +
              (on_device ? "device memory" : "pinned host memory"));
}

cudaError_t allocate_at_once(const char* function, void** memory, Kind kind, std::size_t bytes) {
  return call(function, [&] {
    if (!memory) return cudaErrorInvalidValue;
    *memory = nullptr;
    if (const cudaError_t error = refused_by_captures(); error != cudaSuccess) return error;
    wait_to_change_memory(function, current_device());
    if (bytes == 0) return cudaSuccess;
    *memory = allocate(kind, current_device(), bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t free_at_once(const char* function, void* memory, bool pinned) {
  return call(function, [&] {
    if (!memory) return cudaSuccess;
    if (const cudaError_t error = refused_by_captures(); error != cudaSuccess) return error;
    const Allocation* found = beginning_at(memory);
    if (!found || (found->kind == Kind::pinned) != pinned) return cudaErrorInvalidValue;
    // CUDA promises no wait for pinned memory.
    if (found->kind == Kind::device) wait_to_change_memory(function, found->device);
    found = beginning_at(memory);
    if (!found) violation(std::string(function) + ": two threads free " + text_of(memory));
    forget(*found);
    return cudaSuccess;
  });
}

}  // namespace

void permit_device_memory(bool access) {
  if (const ProtectedPages* const pages = ProtectedPages::get()) pages->permit(access);
}

void reads(const void* from, std::size_t bytes, const char* what) {
  if (bytes == 0) return;
  check_access(from, bytes, what);
  if (__tsan_read_range) __tsan_read_range(const_cast<void*>(from), bytes);
}

void writes(void* to, std::size_t bytes, const char* what) {
  if (bytes == 0) return;
  check_access(to, bytes, what);
  if (__tsan_write_range) __tsan_write_range(to, bytes);
}

}  // namespace emulated_gpu

using namespace emulated_gpu;

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return allocate_at_once(__func__, memory, Kind::device, bytes);
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return allocate_at_once(__func__, memory, Kind::pinned, bytes);
}

cudaError_t cudaFree(void* memory) { return free_at_once(__func__, memory, false); }

cudaError_t cudaFreeHost(void* memory) { return free_at_once(__func__, memory, true); }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call(__func__, [&] {
    *total = device_bytes();
    *free = *total - machine().used[current_device()];
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  return call(__func__, [&] {
    const Allocation* const found = find(memory);
    *attributes = {.type = cudaMemoryTypeUnregistered, .device = -1};
    if (found)
      *attributes = {
          .type = found->kind == Kind::pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice,
          .device = found->device};
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const char* const function = __func__;
  return call(function, [&] {
    stream_of(stream, function);
    if (bytes == 0) return cudaSuccess;
    check_kind(function, to, kind != cudaMemcpyDeviceToHost);
    check_kind(function, from, kind != cudaMemcpyHostToDevice);
    const auto *const t = static_cast<char*>(to), *const f = static_cast<const char*>(from);
    if (std::less<>()(t, f + bytes) && std::less<>()(f, t + bytes))
      violation("cudaMemcpyAsync: source and destination overlap");
    return enqueue(stream, {.what = function, .run = [=] {
                              reads(from, bytes, "cudaMemcpyAsync's source");
                              writes(to, bytes, "cudaMemcpyAsync's destination");
                              std::memcpy(to, from, bytes);
                            }});
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t status =
        cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch,
                        static_cast<const char*>(from) + row * from_pitch, width, kind, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const char* const function = __func__;
  return call(function, [&] {
    stream_of(stream, function);
    if (bytes == 0) return cudaSuccess;
    check_kind(function, to, true);
    return enqueue(stream, {.what = function, .run = [=] {
                              writes(to, bytes, "cudaMemsetAsync");
                              std::memset(to, value, bytes);
                            }});
  });
}

cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  const char* const function = __func__;
  return call(function, [&] {
    stream_of(stream, function);
    if (width == 0 || height == 0) return cudaSuccess;
    if (width > pitch) return cudaErrorInvalidValue;
    check_kind(function, to, true);
    return enqueue(stream, {.what = function, .run = [=] {
                              for (std::size_t row = 0; row < height; ++row) {
                                char* const at = static_cast<char*>(to) + row * pitch;
                                writes(at, width, "cudaMemset2DAsync");
                                std::memset(at, value, width);
                              }
                            }});
  });
}
