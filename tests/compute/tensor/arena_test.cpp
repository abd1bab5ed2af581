#include "axonn/compute/tensor/arena.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kSegment = 64 * kMiB;  // the arena's minimum segment

/// A device whose allocations are adjacent: the worst case for an arena, which must not merge
/// blocks of two allocations. It counts the bytes that are allocated and released.
class AdjacentDevice : public Device {
 public:
  AdjacentDevice() : memory_(static_cast<char*>(inner_->allocate(kRoom))) {}
  ~AdjacentDevice() override { inner_->release(memory_, kRoom); }

  std::string name() const override { return "adjacent"; }
  void* allocate(std::int64_t bytes) override {
    if (used + bytes > kRoom)
      throw OutOfMemory(concat("out of memory: ", bytes, " bytes requested"));
    used += bytes;
    return memory_ + used - bytes;
  }
  void release(void*, std::int64_t bytes) noexcept override { released += bytes; }
  Stream& compute() override { return inner_->compute(); }
  std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    return inner_->make_stream(priority);
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    inner_->copy(to, from, bytes);
  }
  void fill_zero(void* to, std::int64_t bytes) override { inner_->fill_zero(to, bytes); }
  void copy_to_host(void* to, const void* from, std::int64_t bytes) override {
    inner_->copy(to, from, bytes);
  }
  void copy_from_host(void* to, const void* from, std::int64_t bytes) override {
    inner_->copy(to, from, bytes);
  }

  std::int64_t used = 0, released = 0;

 private:
  static constexpr std::int64_t kRoom = 8 * kSegment;  // of addresses; untouched pages are free
  std::unique_ptr<Device> inner_ = make_cpu_device();
  char* memory_;
};

/// One with less memory, that may have captured a graph.
class LimitedDevice final : public AdjacentDevice {
 public:
  LimitedDevice(std::int64_t bytes, bool has_captured)
      : bytes_(bytes), has_captured_(has_captured) {}
  void* allocate(std::int64_t bytes) override {
    if (live() + bytes > bytes_) throw OutOfMemory("out of memory");
    return AdjacentDevice::allocate(bytes);
  }
  bool has_captured() const override { return has_captured_; }
  std::int64_t live() const { return used - released; }

 private:
  std::int64_t bytes_;
  bool has_captured_;
};

class ArenaTest : public testing::Test {
 protected:
  char* take(std::int64_t bytes) { return static_cast<char*>(arena_.allocate(bytes)); }

  AdjacentDevice device_;
  Arena arena_{device_};
};

}  // namespace

TEST_F(ArenaTest, AlignsEveryBlockAndKeepsBlocksApart) {
  std::vector<std::pair<char*, std::int64_t>> blocks;
  for (std::int64_t bytes : {1, 63, 64, 65, 1000, 4096, 3}) blocks.emplace_back(take(bytes), bytes);
  std::ranges::sort(blocks);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks[i].first) % device_.alignment(), 0);
    if (i > 0) {
      EXPECT_GE(blocks[i].first, blocks[i - 1].first + blocks[i - 1].second);
    }
  }
}

TEST_F(ArenaTest, TakesTheSmallestFreeBlockThatFits) {
  char* large = take(4096);
  take(64);  // separates its neighbours
  char* small = take(1024);
  take(64);
  char* middle = take(2048);
  take(64);
  arena_.release(large, 4096);
  arena_.release(small, 1024);
  arena_.release(middle, 2048);
  EXPECT_EQ(take(1000), small);
  EXPECT_EQ(take(1025), middle);
  EXPECT_EQ(take(2049), large);
}

TEST_F(ArenaTest, MergesNeighboursInWhateverOrderTheyAreReleased) {
  std::array order{0, 1, 2};
  do {
    std::array<char*, 3> blocks{take(1024), take(64), take(2048)};
    const std::array<std::int64_t, 3> sizes{1024, 64, 2048};
    char* fence = take(64);
    for (int i : order) arena_.release(blocks[i], sizes[i]);
    char* all = take(1024 + 64 + 2048);
    EXPECT_EQ(all, blocks[0]) << "order " << order[0] << order[1] << order[2];
    arena_.release(all, 1024 + 64 + 2048);
    arena_.release(fence, 64);
  } while (std::ranges::next_permutation(order).found);
  EXPECT_EQ(arena_.stats().device_calls, 1);
}

TEST_F(ArenaTest, DoesNotMergeAcrossSegments) {
  for (bool first_one_first : {true, false}) {
    Arena arena(device_);
    void* one = arena.allocate(kSegment);
    void* two = arena.allocate(kSegment);
    ASSERT_EQ(static_cast<char*>(one) + kSegment, two) << "the device's allocations are adjacent";
    arena.release(first_one_first ? one : two, kSegment);
    arena.release(first_one_first ? two : one, kSegment);
    arena.allocate(2 * kSegment);
    EXPECT_EQ(arena.stats().device_calls, 3);
  }
}

TEST_F(ArenaTest, GivesTheSameSequenceTheSameAddresses) {
  // A step allocates blocks that live for a random time, and releases all by its end.
  const auto step = [this] {
    std::vector<void*> addresses;
    std::vector<std::pair<void*, std::int64_t>> live;
    const Random random(1, "arena");
    for (std::int64_t i = 0; i < 2000; ++i) {
      if (!live.empty() && random.below(3 * i, 2) == 0) {
        const auto at =
            live.begin() + static_cast<std::ptrdiff_t>(random.below(3 * i + 1, live.size()));
        arena_.release(at->first, at->second);
        live.erase(at);
      } else {
        const std::int64_t bytes = 1 + static_cast<std::int64_t>(random.below(3 * i + 2, 1 << 20));
        addresses.push_back(arena_.allocate(bytes));
        live.emplace_back(addresses.back(), bytes);
      }
    }
    for (const auto& [memory, bytes] : live) arena_.release(memory, bytes);
    return addresses;
  };
  take(100);  // lives across steps, as parameters do
  const auto first = step();
  const ArenaStats after = arena_.stats();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(), first);
  EXPECT_EQ(arena_.stats().device_calls, after.device_calls);
  EXPECT_EQ(arena_.stats().peak_bytes, after.peak_bytes);
  EXPECT_EQ(arena_.stats().live_bytes, 128);
}

TEST_F(ArenaTest, LiesAsComparesTheFreeMemoryOfTheSegmentsOfTheSnapshot) {
  char* first = take(1024);
  take(64);
  char* second = take(2048);
  const Arena::Layout before = arena_.layout();
  EXPECT_TRUE(arena_.lies_as(before));
  char* more = take(512);
  EXPECT_FALSE(arena_.lies_as(before)) << "a block that was free is in use";
  arena_.release(more, 512);
  EXPECT_TRUE(arena_.lies_as(before));
  arena_.release(first, 1024);
  EXPECT_FALSE(arena_.lies_as(before)) << "a block that was in use is free";
  EXPECT_EQ(take(1024), first);
  EXPECT_TRUE(arena_.lies_as(before));

  char* beyond = take(2 * kSegment);
  EXPECT_TRUE(arena_.lies_as(before)) << "segments added later do not matter";
  arena_.release(beyond, 2 * kSegment);
  EXPECT_TRUE(arena_.lies_as(before));
  arena_.release(second, 2048);
  EXPECT_FALSE(arena_.lies_as(before));
}

TEST_F(ArenaTest, CountsLiveBytesRoundedUpToTheAlignmentAndThePeak) {
  char* a = take(1);
  char* b = take(65);
  EXPECT_EQ(arena_.stats().live_bytes, 64 + 128);
  arena_.release(a, 1);
  EXPECT_EQ(arena_.stats().live_bytes, 128);
  EXPECT_EQ(arena_.stats().peak_bytes, 192);
  arena_.reset_peak();
  EXPECT_EQ(arena_.stats().peak_bytes, 128);
  arena_.release(b, 65);
  EXPECT_EQ(arena_.stats().live_bytes, 0);
  EXPECT_EQ(arena_.stats().reserved_bytes, kSegment);
}

TEST_F(ArenaTest, ReturnsNullForZeroBytesAndReleasesNull) {
  EXPECT_EQ(arena_.allocate(0), nullptr);
  arena_.release(nullptr, 0);
  EXPECT_EQ(arena_.stats().device_calls, 0);
  EXPECT_EQ(arena_.stats().live_bytes, 0);
}

TEST_F(ArenaTest, RefusesANegativeSize) { EXPECT_THROW(arena_.allocate(-1), Error); }

TEST_F(ArenaTest, IsUnchangedWhenTheDeviceIsOutOfMemory) {
  char* one = take(100);
  const ArenaStats before = arena_.stats();
  try {
    arena_.allocate(9 * kSegment);
    FAIL() << "the device has 8 segments";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("out of memory"));
  }
  EXPECT_EQ(arena_.stats().live_bytes, before.live_bytes);
  EXPECT_EQ(arena_.stats().reserved_bytes, before.reserved_bytes);
  EXPECT_EQ(take(64), one + 128);
}

TEST(Arena, GivesFreeSegmentsBackWhenTheDeviceIsOutOfMemoryUnlessAGraphMayUseThem) {
  for (const bool captured : {false, true}) {
    LimitedDevice device(3 * kSegment, captured);
    Arena arena(device);
    void* const kept = arena.allocate(1);
    void* const one = arena.allocate(kSegment);
    void* const two = arena.allocate(kSegment);
    arena.release(one, kSegment);
    arena.release(two, kSegment);
    if (captured) {
      EXPECT_THROW(arena.allocate(2 * kSegment), OutOfMemory);
      EXPECT_EQ(arena.stats().reserved_bytes, 3 * kSegment);
      continue;
    }
    void* const large = arena.allocate(2 * kSegment);
    EXPECT_EQ(arena.stats().reserved_bytes, 3 * kSegment);
    EXPECT_EQ(device.live(), 3 * kSegment);
    arena.release(large, 2 * kSegment);
    EXPECT_THROW(arena.allocate(3 * kSegment), OutOfMemory);  // one segment is in use
    void* const whole = arena.allocate(2 * kSegment - 4096);
    EXPECT_EQ(device.live(), 3 * kSegment - 4096);
    arena.release(whole, 2 * kSegment - 4096);
    arena.release(kept, 1);
  }
}

TEST(Arena, ReleasesItsSegmentsInItsDestructor) {
  AdjacentDevice device;
  {
    Arena arena(device);
    arena.allocate(1);
    arena.allocate(kSegment + 1);
  }
  EXPECT_EQ(device.used, 2 * kSegment + 4096);
  EXPECT_EQ(device.released, device.used);
}

TEST(CpuDevice, NamesTheRequestedBytesWhenOutOfMemory) {
  const auto device = make_cpu_device();
  try {
    device->allocate(std::int64_t{1} << 60);
    FAIL() << "an exbibyte";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("out of memory: 1152921504606846976 bytes"));
  }
}

TEST_F(ArenaTest, CountsBytesByUseNowAndAtThePeak) {
  const auto live = [&](MemoryUse use) { return arena_.stats().live_by[static_cast<int>(use)]; };
  const auto peak = [&](MemoryUse use) { return arena_.stats().peak_by[static_cast<int>(use)]; };
  void* weights = arena_.allocate(640, MemoryUse::parameters);
  void* logits = arena_.allocate(100, MemoryUse::logits);
  arena_.release(logits, 100, MemoryUse::logits);
  void* small = arena_.allocate(64);
  EXPECT_EQ(live(MemoryUse::parameters), 640);
  EXPECT_EQ(live(MemoryUse::logits), 0);
  EXPECT_EQ(live(MemoryUse::activations), 64);
  EXPECT_EQ(peak(MemoryUse::logits), 128) << "the value at the peak";
  EXPECT_EQ(peak(MemoryUse::activations), 0);
  arena_.reset_peak();
  EXPECT_EQ(peak(MemoryUse::logits), 0);
  EXPECT_EQ(peak(MemoryUse::activations), 64);
  arena_.release(weights, 640, MemoryUse::parameters);
  arena_.release(small, 64);
  EXPECT_EQ(arena_.stats().live_bytes, 0);
}
