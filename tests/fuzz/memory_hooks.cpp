// For builds with AddressSanitizer, which has its own operator new and reports every allocation.
#include <atomic>
#include <cstddef>

#include "tests/fuzz/memory.h"

// Declared as in clang's sanitizer/allocator_interface.h; g++ has no such header, only the
// functions.
extern "C" int __sanitizer_install_malloc_and_free_hooks(
    void (*taken)(const volatile void* place, std::size_t bytes),
    void (*given_back)(const volatile void* place));
extern "C" std::size_t __sanitizer_get_allocated_size(const volatile void* place);

namespace {

std::atomic<std::int64_t> held = 0, most = 0;

void taken(const volatile void*, std::size_t bytes) {
  const std::int64_t now = held += static_cast<std::int64_t>(bytes);
  std::int64_t before = most;
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
}

void given_back(const volatile void* place) {
  if (place) held -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(place));
}

/// Starts counting at the first call.
void watch() {
  static const int kWatching = __sanitizer_install_malloc_and_free_hooks(taken, given_back);
  (void)kWatching;
}

}  // namespace

namespace axonn::fuzz {

std::int64_t held_bytes() {
  watch();
  return held;
}

std::int64_t most_held_bytes() {
  watch();
  return most.exchange(held);
}

}  // namespace axonn::fuzz
