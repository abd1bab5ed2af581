#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/arena.h"

namespace axonn {

/// Memory of one operation or collective on a GPU besides its operands, from the rank's arena. It
/// goes back to the arena when the object ends: later work on the compute stream runs after that
/// which uses it. If other streams use it, the compute stream must wait for them before.
class Scratch {
 public:
  explicit Scratch(Arena& arena) : arena_(arena) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    for (const auto& [memory, bytes] : pieces_) arena_.release(memory, bytes, MemoryUse::workspace);
  }

  /// Memory for `count` elements of T, uninitialised; null for none.
  template <typename T>
  T* take(std::int64_t count) {
    const auto bytes = count * static_cast<std::int64_t>(sizeof(T));
    return static_cast<T*>(
        pieces_.emplace_back(arena_.allocate(bytes, MemoryUse::workspace), bytes).first);
  }

 private:
  Arena& arena_;
  std::vector<std::pair<void*, std::int64_t>> pieces_;
};

}  // namespace axonn
