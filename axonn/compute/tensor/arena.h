#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/device.h"

namespace axonn {

class FileMemory;

/// The purpose of a block of a rank's memory.
enum class MemoryUse : std::uint8_t {
  parameters,       ///< shards of the parameters' compute copy
  optimizer,        ///< master weights and optimizer moments
  gradients,        ///< shards of the gradients
  gathered,         ///< a block's whole parameters, gathered over z
  block_gradients,  ///< a block's whole gradients, until they are reduced into the shards
  logits,
  workspace,    ///< memory of GPU operations besides their operands
  activations,  ///< and everything else
};

inline constexpr int kMemoryUses = 8;

/// The name for reports: "block gradients".
std::string_view name_of(MemoryUse use);

/// Bytes by MemoryUse.
using MemoryParts = std::array<std::int64_t, kMemoryUses>;

/// Memory statistics of an arena.
struct ArenaStats {
  std::int64_t live_bytes = 0;      ///< allocated now
  std::int64_t peak_bytes = 0;      ///< maximum of live_bytes
  MemoryParts live_by{};            ///< live_bytes by use
  MemoryParts peak_by{};            ///< live_by when the peak was reached; adds up to peak_bytes
  std::int64_t reserved_bytes = 0;  ///< total size of the segments
  std::int64_t device_calls = 0;    ///< number of segments that were allocated on the device
  std::int64_t file_bytes = 0;      ///< allocated in the file of offload()
};

/// Allocator for one rank's device memory: best fit in segments that it allocates on the device and
/// keeps until its end. If the device is out of memory, it gives back the segments that are free as
/// a whole, unless a captured graph may use them, and tries again.
///
/// A step that allocates the same sizes in the same order gets the same addresses, and after the
/// first such step needs no new segment. Used by the rank's own thread only.
class Arena {
 public:
  /// Blocks are aligned to device.alignment().
  explicit Arena(Device& device);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// Returns uninitialised memory, or nullptr for zero bytes. Throws Error if out of memory.
  void* allocate(std::int64_t bytes, MemoryUse use = MemoryUse::activations);
  /// Frees memory. `bytes` and `use` must be those of the allocation.
  void release(void* memory, std::int64_t bytes, MemoryUse use = MemoryUse::activations) noexcept;

  /// From now on, long-lived tensors of these uses (Tensor::long_lived) lie in a file of this
  /// folder (FileMemory). Throws UsageError as that does, and if a GPU has the memory.
  void offload(const std::string& folder, std::span<const MemoryUse> uses);
  bool offloads(MemoryUse use) const { return offloaded_.contains(use); }
  /// The same as allocate() and release() in that file. Of its bytes, those that count_in_file()
  /// adds count as live.
  void* allocate_in_file(std::int64_t bytes);
  void release_in_file(void* memory, std::int64_t bytes) noexcept;
  void count_in_file(std::int64_t bytes, MemoryUse use) noexcept { count(bytes, use); }
  void read_ahead(const void* part, std::int64_t bytes) const noexcept;
  void put_away(const void* part, std::int64_t bytes) const noexcept;

  Device& device() const { return device_; }
  const ArenaStats& stats() const { return stats_; }
  /// Sets the peak to the current state.
  void reset_peak();

  /// Called with all memory that allocate() returns from now on; {}: with none.
  void on_allocate(std::function<void(void* memory, std::int64_t bytes)> call) {
    on_allocate_ = std::move(call);
  }
  /// What it has of the device's memory: begin and bytes.
  std::span<const std::pair<void*, std::int64_t>> segments() const { return segments_; }

  /// A snapshot of the free memory. If work frees everything that it allocates, a snapshot taken
  /// after it contains all of the work's temporaries.
  struct Layout {
    std::vector<std::pair<std::uintptr_t, std::int64_t>> free;  ///< begin, bytes
    std::size_t segments = 0;
  };
  Layout layout() const;
  /// Whether exactly the same memory is free as at the snapshot `before`. Segments that were added
  /// since then are ignored.
  bool lies_as(const Layout& before) const;

 private:
  using Address = std::uintptr_t;

  void count(std::int64_t bytes, MemoryUse use) noexcept;
  void add_segment(std::int64_t bytes);
  void release_free_segments();
  void add_free(Address begin, std::int64_t bytes);
  void remove_free(std::map<Address, std::int64_t>::iterator block);

  Device& device_;
  std::int64_t alignment_;
  ArenaStats stats_;
  std::vector<std::pair<void*, std::int64_t>> segments_;
  std::map<Address, std::int64_t> free_;                // free blocks: begin -> bytes
  std::set<std::pair<std::int64_t, Address>> by_size_;  // the same blocks, smallest first
  std::set<Address> segment_begins_;                    // so that blocks never merge across them
  std::set<MemoryUse> offloaded_;
  std::function<void(void*, std::int64_t)> on_allocate_;
  std::unique_ptr<FileMemory> file_;  // null if nothing is offloaded, or the device keeps no values
};

}  // namespace axonn
