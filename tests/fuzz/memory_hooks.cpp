// Under AddressSanitizer, which has its own operator new and tells of all that is taken.
#include <atomic>
#include <cstddef>

#include "tests/fuzz/memory.h"

// As clang's sanitizer/allocator_interface.h has them, which g++ has only in the library.
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

/// From the first call on.
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
