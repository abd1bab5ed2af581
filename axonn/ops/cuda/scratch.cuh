#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "axonn/tensor/device.h"

namespace axonn::cuda {

/// Device memory that grows to the largest request and is kept, so that later steps allocate
/// nothing. Only the compute stream uses it, so an operation's kernels are done with it before
/// those of the next one run. Outgrown memory is kept, because a captured graph may use it.
class Scratch {
 public:
  explicit Scratch(Device& device) : device_(device) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    for (const auto& [memory, bytes] : pieces_) device_.release(memory, bytes);
  }

  /// Memory for `count` elements of T, uninitialised. Invalidates what earlier calls returned.
  template <typename T>
  T* take(std::int64_t count) {
    const auto bytes = count * static_cast<std::int64_t>(sizeof(T));
    if (size() < bytes) grow(std::max(bytes, 2 * size()));
    return pieces_.empty() ? nullptr : static_cast<T*>(pieces_.back().first);
  }

 private:
  std::int64_t size() const { return pieces_.empty() ? 0 : pieces_.back().second; }
  void grow(std::int64_t bytes) { pieces_.emplace_back(device_.allocate(bytes), bytes); }

  Device& device_;
  std::vector<std::pair<void*, std::int64_t>> pieces_;  // each twice as large, the last in use
};

}  // namespace axonn::cuda
