#include "axonn/foundation/base/host.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_path.h"

using namespace axonn;

namespace {

/// A folder with the system's files about memory.
class System {
 public:
  System() { write("/proc/meminfo", "MemTotal: 900 kB\nMemAvailable:    500 kB\n"); }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root() + file).parent_path());
    std::ofstream(root() + file) << text;
  }
  std::string root() const { return folder_.path(); }

 private:
  test::TemporaryPath folder_;
};

}  // namespace

TEST(AvailableMemory, IsThatOfTheSystemWithoutALimit) {
  const System system;
  EXPECT_EQ(available_memory(system.root()), 500 * 1024);
  system.write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(available_memory(system.root()), 500 * 1024);
  EXPECT_GT(available_memory(), 0);
}

TEST(TotalMemory, IsThatOfTheMachineOrAContainersLimit) {
  const System system;
  EXPECT_EQ(total_memory(system.root()), 900 * 1024);
  system.write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(total_memory(system.root()), 900 * 1024);
  system.write("/sys/fs/cgroup/memory.current", "70000\n");
  system.write("/sys/fs/cgroup/memory.max", "100000\n");
  EXPECT_EQ(total_memory(system.root()), 100000);
  EXPECT_GE(total_memory(), available_memory());
}

TEST(AvailableMemory, IsTheRestOfAContainersLimitWithoutCachedFiles) {
  for (const bool first : {true, false}) {  // versions 2 and 1 of control groups
    const System system;
    const std::string folder = first ? "/sys/fs/cgroup/" : "/sys/fs/cgroup/memory/";
    system.write(folder + (first ? "memory.max" : "memory.limit_in_bytes"), "100000\n");
    EXPECT_EQ(available_memory(system.root()), 100000);
    system.write(folder + (first ? "memory.current" : "memory.usage_in_bytes"), "70000\n");
    system.write(folder + "memory.stat",
                 std::string(first ? "" : "total_") + "inactive_file 20000\nother 1\n");
    EXPECT_EQ(available_memory(system.root()), 50000);
  }
}
