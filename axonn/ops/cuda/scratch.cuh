#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/tensor/device.h"

namespace axonn::cuda {

/// Device memory that grows to the largest request and is kept, so that a steady step allocates
/// nothing. Used on the compute stream alone, so what one operation wrote is read before the next
/// one's kernels run.
class Scratch {
 public:
  explicit Scratch(Device& device) : device_(device) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (memory_) device_.release(memory_, bytes_);
  }

  /// At least `count` of T, uninitialised; what an earlier call gave is no longer valid.
  template <typename T>
  T* take(std::int64_t count) {
    const auto bytes = count * static_cast<std::int64_t>(sizeof(T));
    if (bytes_ < bytes) grow(std::max(bytes, 2 * bytes_));
    return static_cast<T*>(memory_);
  }

 private:
  void grow(std::int64_t bytes) {
    void* larger = device_.allocate(bytes);
    if (memory_) device_.release(memory_, bytes_);  // cudaFree waits for what still uses it
    memory_ = larger;
    bytes_ = bytes;
  }

  Device& device_;
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace axonn::cuda
