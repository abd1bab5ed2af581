#include <atomic>
#include <cstdlib>
#include <new>

#include <malloc.h>

#include "tests/fuzz/memory.h"

namespace {

std::atomic<std::int64_t> held = 0, most = 0;

void* take(std::size_t bytes) {
  void* place = std::malloc(bytes > 0 ? bytes : 1);
  if (!place) throw std::bad_alloc();
  const std::int64_t now = held += static_cast<std::int64_t>(malloc_usable_size(place));
  std::int64_t before = most;
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
  return place;
}

void give(void* place) {
  if (place) held -= static_cast<std::int64_t>(malloc_usable_size(place));
  std::free(place);
}

}  // namespace

void* operator new(std::size_t bytes) { return take(bytes); }
void* operator new[](std::size_t bytes) { return take(bytes); }
void operator delete(void* place) noexcept { give(place); }
void operator delete[](void* place) noexcept { give(place); }
void operator delete(void* place, std::size_t) noexcept { give(place); }
void operator delete[](void* place, std::size_t) noexcept { give(place); }

namespace axonn::fuzz {

std::int64_t held_bytes() { return held; }
std::int64_t most_held_bytes() { return most.exchange(held); }

}  // namespace axonn::fuzz
