#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/tensor/device.h"

namespace axonn {

/// What a piece of a rank's memory is for.
enum class MemoryUse : std::uint8_t {
  parameters,       ///< the compute copy's shards
  optimizer,        ///< master weights, and moments
  gradients,        ///< their shards
  gathered,         ///< whole blocks, gathered over z
  block_gradients,  ///< a whole block's, on their way to the shards
  logits,
  activations,  ///< and everything else
};

inline constexpr int kMemoryUses = 7;

/// "block gradients".
std::string_view name_of(MemoryUse use);

/// Bytes by MemoryUse.
using MemoryParts = std::array<std::int64_t, kMemoryUses>;

/// What an arena holds, in bytes, and how often it went to the system.
struct ArenaStats {
  std::int64_t live_bytes = 0;      ///< handed out now
  std::int64_t peak_bytes = 0;      ///< the most ever handed out at once
  MemoryParts live_by{};            ///< these add up to live_bytes
  MemoryParts peak_by{};            ///< and these to peak_bytes: what was held when it was reached
  std::int64_t reserved_bytes = 0;  ///< taken from the device
  std::int64_t device_calls = 0;    ///< allocations asked of the device
};

/// One rank's device memory: best fit in segments that are taken from the device and kept.
///
/// A step that asks for the same sizes in the same order gets the same addresses, and nothing from
/// the device after the first. Used by the rank's own thread alone.
class Arena {
 public:
  /// Blocks are aligned to this many bytes: a cache line, and what vector loads and GPUs like.
  static constexpr std::int64_t kAlignment = 64;

  explicit Arena(Device& device) : device_(device) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// Uninitialised memory. Zero bytes give nullptr. Errors: Error if the device has no more.
  void* allocate(std::int64_t bytes, MemoryUse use = MemoryUse::activations);
  /// bytes and use are those that it was allocated with.
  void release(void* memory, std::int64_t bytes, MemoryUse use = MemoryUse::activations) noexcept;

  Device& device() const { return device_; }
  const ArenaStats& stats() const { return stats_; }
  /// From now on the peak is that of what comes.
  void reset_peak();

  /// Which of its memory is free: what work that takes and gives back memory may have written.
  struct Layout {
    std::vector<std::pair<std::uintptr_t, std::int64_t>> free;  ///< begin, bytes
    std::size_t segments = 0;
  };
  Layout layout() const;
  /// Whether of the memory that there was then the same is free now.
  bool lies_as(const Layout& before) const;

 private:
  using Address = std::uintptr_t;

  void count(std::int64_t bytes, MemoryUse use) noexcept;
  void add_segment(std::int64_t bytes);
  void add_free(Address begin, std::int64_t bytes);
  void remove_free(std::map<Address, std::int64_t>::iterator block);

  Device& device_;
  ArenaStats stats_;
  std::vector<std::pair<void*, std::int64_t>> segments_;
  std::map<Address, std::int64_t> free_;                // begin -> bytes
  std::set<std::pair<std::int64_t, Address>> by_size_;  // the same blocks, smallest first
  std::set<Address> segment_begins_;                    // neighbours never merge across segments
};

}  // namespace axonn
