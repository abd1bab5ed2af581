#include "axonn/compute/tensor/arena.h"

#include <algorithm>
#include <iterator>

#include "axonn/compute/tensor/file_memory.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

// Minimum size of a segment, which keeps the number of segments small. On a CPU, pages that are
// never touched take no memory.
constexpr std::int64_t kSegment = std::int64_t{64} << 20;

std::int64_t round_up(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

/// Whether each block gets addresses of its own, which are never used again: there is no memory
/// that they could take.
bool only_counts(const Device& device) { return device.memory() == Memory::none; }

}  // namespace

std::string_view name_of(MemoryUse use) {
  constexpr std::string_view kNames[] = {"parameters",      "optimizer",       "gradients",
                                         "gathered blocks", "block gradients", "logits",
                                         "workspace",       "activations"};
  static_assert(std::size(kNames) == kMemoryUses);
  return kNames[static_cast<int>(use)];
}

Arena::Arena(Device& device) : device_(device), alignment_(device.alignment()) {}

Arena::~Arena() {
  for (const auto& [memory, bytes] : segments_) device_.release(memory, bytes);
}

void* Arena::allocate(std::int64_t bytes, MemoryUse use) {
  AXONN_CHECK(bytes >= 0, "arena: cannot allocate ", bytes, " bytes");
  if (bytes == 0) return nullptr;
  const std::int64_t size = round_up(bytes, alignment_);
  if (only_counts(device_)) {
    count(size, use);
    return device_.allocate(size);
  }
  auto fit = by_size_.lower_bound({size, 0});
  if (fit == by_size_.end()) {
    add_segment(size);
    fit = by_size_.lower_bound({size, 0});
  }
  const auto [block_bytes, begin] = *fit;
  remove_free(free_.find(begin));
  if (block_bytes > size) add_free(begin + size, block_bytes - size);
  count(size, use);
  if (on_allocate_) on_allocate_(reinterpret_cast<void*>(begin), size);
  return reinterpret_cast<void*>(begin);
}

void Arena::release(void* memory, std::int64_t bytes, MemoryUse use) noexcept {
  if (!memory) return;
  std::int64_t size = round_up(bytes, alignment_);
  count(-size, use);
  if (only_counts(device_)) return;
  Address begin = reinterpret_cast<Address>(memory);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + size &&
      !segment_begins_.contains(next->first)) {
    const auto merged = next++;
    size += merged->second;
    remove_free(merged);
  }
  if (next != free_.begin() && !segment_begins_.contains(begin)) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      size += before->second;
      remove_free(before);
    }
  }
  add_free(begin, size);
}

void Arena::offload(const std::string& folder, std::span<const MemoryUse> uses) {
  if (device_.memory() == Memory::gpu)
    refuse("[offload] dir: the values of ", device_.name(),
           " are in a GPU's memory, which [offload] ",
           "does not move to disk; leave dir empty, or set parallelism.device = \"cpu\"");
  if (device_.keeps_values()) file_ = std::make_unique<FileMemory>(folder);
  offloaded_ = {uses.begin(), uses.end()};
}

void* Arena::allocate_in_file(std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  void* const memory = file_ ? file_->allocate(bytes) : device_.allocate(bytes);
  stats_.file_bytes += FileMemory::whole_pages(bytes);
  return memory;
}

void Arena::release_in_file(void* memory, std::int64_t bytes) noexcept {
  if (!memory) return;
  stats_.file_bytes -= FileMemory::whole_pages(bytes);
  if (file_) file_->release(memory, bytes);
}

void Arena::read_ahead(const void* part, std::int64_t bytes) const noexcept {
  if (file_ && part) file_->read_ahead(part, bytes);
}

void Arena::put_away(const void* part, std::int64_t bytes) const noexcept {
  if (file_ && part) file_->put_away(part, bytes);
}

void Arena::reset_peak() {
  stats_.peak_bytes = stats_.live_bytes;
  stats_.peak_by = stats_.live_by;
}

Arena::Layout Arena::layout() const { return {{free_.begin(), free_.end()}, segments_.size()}; }

bool Arena::lies_as(const Layout& before) const {
  std::vector<std::pair<Address, std::int64_t>> now(free_.begin(), free_.end());
  for (std::size_t i = before.segments; i < segments_.size(); ++i) {  // added since the snapshot
    const auto begin = reinterpret_cast<Address>(segments_[i].first);
    const auto end = begin + static_cast<Address>(segments_[i].second);
    std::erase_if(now,
                  [=](const auto& block) { return block.first >= begin && block.first < end; });
  }
  return now == before.free;
}

void Arena::count(std::int64_t bytes, MemoryUse use) noexcept {
  stats_.live_bytes += bytes;
  stats_.live_by[static_cast<int>(use)] += bytes;
  if (stats_.live_bytes > stats_.peak_bytes) reset_peak();
}

void Arena::add_segment(std::int64_t bytes) {
  std::int64_t size = std::max(round_up(bytes, 4096), kSegment);
  void* memory = nullptr;
  try {
    memory = device_.allocate(size);
  } catch (const OutOfMemory&) {
    release_free_segments();
    size = round_up(bytes, 4096);
    memory = device_.allocate(size);
  }
  ++stats_.device_calls;
  stats_.reserved_bytes += size;
  segments_.emplace_back(memory, size);
  segment_begins_.insert(reinterpret_cast<Address>(memory));
  add_free(reinterpret_cast<Address>(memory), size);
}

void Arena::release_free_segments() {
  if (device_.has_captured()) return;
  std::erase_if(segments_, [&](const auto& segment) {
    const auto& [memory, bytes] = segment;
    const auto block = free_.find(reinterpret_cast<Address>(memory));
    if (block == free_.end() || block->second != bytes) return false;
    segment_begins_.erase(block->first);
    remove_free(block);
    device_.release(memory, bytes);
    stats_.reserved_bytes -= bytes;
    return true;
  });
}

void Arena::add_free(Address begin, std::int64_t bytes) {
  free_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
}

void Arena::remove_free(std::map<Address, std::int64_t>::iterator block) {
  by_size_.erase({block->second, block->first});
  free_.erase(block);
}

}  // namespace axonn
