#include "axonn/compute/tensor/file_memory.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/tensor.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/disk_folder.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;

namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr MemoryUse kUses[] = {MemoryUse::optimizer};

/// Bytes of this process in memory that files have.
std::int64_t bytes_of_files() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0, resident = 0, shared = 0;
  file >> size >> resident >> shared;
  return shared * FileMemory::page();
}

std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST(FileMemory, BeginsWithZerosAndKeepsValuesThatArePutAway) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  FileMemory memory(test::disk_folder());
  auto *first = static_cast<char*>(memory.allocate(10)),
       *second = static_cast<char*>(memory.allocate(9000));
  EXPECT_EQ(std::string(second, 9000), std::string(9000, '\0'));
  std::memset(first, 1, 10);
  std::memset(second, 2, 9000);
  memory.put_away(first, 10);
  memory.put_away(second, 9000);
  memory.read_ahead(second, 9000);
  EXPECT_EQ(std::string(first, 10), std::string(10, '\1'));
  EXPECT_EQ(std::string(second, 9000), std::string(9000, '\2'));
  memory.release(first, 10);
  memory.release(second, 9000);
}

TEST(FileMemory, ThatIsPutAwayIsNotTheProcesss) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  FileMemory memory(test::disk_folder());
  void* const data = memory.allocate(64 * kMebibyte);
  const std::int64_t before = bytes_of_files();
  std::memset(data, 1, 64 * kMebibyte);
  EXPECT_GE(bytes_of_files(), before + 60 * kMebibyte);
  memory.put_away(data, 64 * kMebibyte);
  EXPECT_LE(bytes_of_files(), before + 4 * kMebibyte);
  memory.release(data, 64 * kMebibyte);
}

TEST(FileMemory, TimesBytesThatGoToTheDiskAndBack) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  FileMemory memory(test::disk_folder());
  const double few = memory.time_transfers(kMebibyte), many = memory.time_transfers(64 * kMebibyte);
  EXPECT_GT(few, 0);
  EXPECT_GT(many, 64.0 * kMebibyte / 1e12);  // no disk moves a terabyte a second
}

TEST(FileMemory, LeavesNoFile) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  const std::string folder = test::disk_folder() + "/left";
  std::filesystem::remove_all(folder);
  FileMemory memory(folder);
  memory.release(memory.allocate(1), 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(FileMemory, IsRefusedWhereItCannotBe) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  const test::TemporaryPath folder;
  test::spill(folder / "file", "");
  EXPECT_THAT(refusal_of([&] { FileMemory(folder / "file"); }), HasSubstr(folder / "file"));
  if (std::filesystem::exists("/dev/shm")) {
    EXPECT_THAT(refusal_of([] { FileMemory("/dev/shm"); }),
                AllOf(HasSubstr("/dev/shm"), HasSubstr("tmpfs"), HasSubstr("disk of this node")));
  }
  FileMemory memory(test::disk_folder());
  EXPECT_THAT(
      refusal_of([&] { memory.allocate(std::int64_t{1} << 60); }),
      AllOf(HasSubstr("do not fit into a file of " + test::disk_folder()), HasSubstr(" free: ")));
}

TEST(InMemory, CountsTensorsOfAFileWhileOneLives) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  const auto device = make_cpu_device();
  Arena arena(*device);
  arena.offload(test::disk_folder(), kUses);
  const Tensor moments = Tensor::long_lived(arena, 1, 2000, DType::f32, MemoryUse::optimizer),
               shard = Tensor::long_lived(arena, 1, 16, DType::f32, MemoryUse::gradients);
  EXPECT_TRUE(moments.in_file());
  EXPECT_FALSE(shard.in_file());
  EXPECT_EQ(arena.stats().file_bytes, FileMemory::whole_pages(8000));
  EXPECT_EQ(arena.stats().live_bytes, 64);
  {
    const InMemory all({moments, shard, Tensor()}, FileAccess::read),
        again({moments.col_range(5, 1)}, FileAccess::read);
    EXPECT_EQ(arena.stats().live_bytes, 64 + 8000);
    EXPECT_EQ(arena.stats().live_by[static_cast<int>(MemoryUse::optimizer)], 8000);
    moments.view().as<float>()[1999] = 7;
  }
  EXPECT_EQ(arena.stats().live_bytes, 64);
  EXPECT_EQ(arena.stats().peak_bytes, 64 + 8000);
  EXPECT_EQ(moments.view().as<float>()[1999], 7);
  EXPECT_EQ(moments.view().as<float>()[1998], 0);
}

TEST(InMemory, CountsTheSameBytesWithoutValues) {
  const auto device = make_dry_device();
  Arena arena(*device);
  arena.offload("/never/made", kUses);
  const Tensor moments = Tensor::long_lived(arena, 1, 2000, DType::f32, MemoryUse::optimizer);
  EXPECT_EQ(arena.stats().live_bytes, 0);
  const InMemory brought({moments}, FileAccess::changed);
  EXPECT_EQ(arena.stats().live_bytes, 8000);
  EXPECT_FALSE(std::filesystem::exists("/never"));
}
