#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "axonn/tensor/device.h"

namespace axonn {

/// What an arena holds, in bytes, and how often it went to the system.
struct ArenaStats {
  std::int64_t live_bytes = 0;      ///< handed out now
  std::int64_t peak_bytes = 0;      ///< the most ever handed out at once
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
  void* allocate(std::int64_t bytes);
  void release(void* memory, std::int64_t bytes) noexcept;

  Device& device() const { return device_; }
  const ArenaStats& stats() const { return stats_; }
  void reset_peak() { stats_.peak_bytes = stats_.live_bytes; }

 private:
  using Address = std::uintptr_t;

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
