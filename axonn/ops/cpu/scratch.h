#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace axonn::cpu {

/// Memory that grows to the largest request and is kept, so that later steps allocate nothing.
/// Aligned to cache lines, so that vector loads do not straddle them.
class Scratch {
 public:
  /// Memory for `count` elements of T, uninitialised. Invalidates what earlier calls returned.
  template <typename T>
  T* take(std::int64_t count) {
    const std::size_t lines = (static_cast<std::size_t>(count) * sizeof(T) + kLine - 1) / kLine;
    if (lines_.size() < lines) lines_ = std::vector<Line>(lines);
    return reinterpret_cast<T*>(lines_.data());
  }

 private:
  static constexpr std::size_t kLine = 64;
  struct alignas(kLine) Line {
    std::byte bytes[kLine];
  };
  std::vector<Line> lines_;
};

}  // namespace axonn::cpu
