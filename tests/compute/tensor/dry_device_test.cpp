#include <gtest/gtest.h>

#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/device.h"
#include "axonn/compute/tensor/recording.h"
#include "axonn/compute/tensor/tensor.h"

using namespace axonn;

TEST(DryDevice, AnArenaOnItCanCountMoreMemoryThanAnyMachineHas) {
  const auto device = make_dry_device();
  Arena arena(*device);
  const std::int64_t petabyte = std::int64_t{1} << 50;
  {
    const Tensor a(arena, petabyte / 4, 1, DType::f32), b(arena, petabyte / 2, 1, DType::bf16);
    EXPECT_NE(a.raw_view().data, b.raw_view().data);
    EXPECT_EQ(arena.stats().live_bytes, 2 * petabyte);
  }
  EXPECT_EQ(arena.stats().live_bytes, 0);
  EXPECT_EQ(arena.stats().peak_bytes, 2 * petabyte);
}

TEST(DryDevice, ReadsZerosAndRecordsCopies) {
  Recording recording;
  const auto device = make_dry_device(&recording);
  char* const memory = static_cast<char*>(device->allocate(4096));
  device->fill_zero(memory, 4096);
  double value = 7;
  device->copy_from_host(memory, &value, sizeof value);
  device->copy_to_host(&value, memory, sizeof value);
  EXPECT_EQ(value, 0);
  ASSERT_EQ(recording.events.size(), 3);
  const auto& fill = std::get<Recording::Compute>(recording.events[0]);
  EXPECT_EQ(fill.operation, "fill_zero");
  EXPECT_EQ(fill.bytes(), 4096);
}
