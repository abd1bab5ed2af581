#include "axonn/foundation/base/host.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

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

TEST(AvailableMemory, LeavesOutNodesWithoutProcessors) {  // as on GH200
  const System system;
  const std::string nodes = "/sys/devices/system/node/node";
  system.write(nodes + "0/cpulist", "0-71\n");
  system.write(nodes + "0/meminfo", "Node 0 MemTotal:  600 kB\nNode 0 MemFree:  350 kB\n");
  EXPECT_EQ(memory_without_processors(system.root()), 0);
  system.write(nodes + "4/cpulist", "\n");
  system.write(nodes + "4/meminfo", "Node 4 MemTotal:  200 kB\nNode 4 MemFree:  90 kB\n");
  system.write(nodes + "12/cpulist", "\n");
  system.write(nodes + "12/meminfo", "Node 12 MemTotal: 100 kB\nNode 12 MemFree:  60 kB\n");
  EXPECT_EQ(memory_without_processors(system.root()), 300 * 1024);
  EXPECT_EQ(total_memory(system.root()), 600 * 1024);
  EXPECT_EQ(available_memory(system.root()), 350 * 1024);
}

TEST(KeepToNodesWithProcessors, BindsMemoryIfThereAreOthersAndNoPolicyYet) {
  const System system;
  const std::string nodes = "/sys/devices/system/node/node";
  const auto policy = [] {
    int number = -1;
    return syscall(SYS_get_mempolicy, &number, nullptr, 0, nullptr, 0) == 0 ? number : -1;
  };
  if (policy() != MPOL_DEFAULT) GTEST_SKIP() << "the system does not tell policies of memory";
  system.write(nodes + "0/cpulist", "0-71\n");
  std::jthread([&] {
    EXPECT_FALSE(keep_to_nodes_with_processors(system.root())) << "all have processors";
    EXPECT_EQ(policy(), MPOL_DEFAULT);
    system.write(nodes + "4/cpulist", "\n");
    const bool bound = keep_to_nodes_with_processors(system.root());  // false: not allowed to
    EXPECT_EQ(policy(), bound ? MPOL_BIND : MPOL_DEFAULT);
    if (!bound) return;
    EXPECT_FALSE(keep_to_nodes_with_processors(system.root())) << "there is a policy";
  });
  EXPECT_EQ(policy(), MPOL_DEFAULT) << "of another thread";
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

TEST(ProcessorName, IsThatOfTheSystemOrOfAnArmCore) {
  const System system;
  const auto name_of = [&](const std::string& text) {
    system.write("/proc/cpuinfo", text);
    return processor_name(system.root());
  };
  EXPECT_EQ(name_of("processor\t: 0\nmodel name\t: AMD EPYC 9654\n"), "AMD EPYC 9654");
  const std::string arm = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\n";
  EXPECT_EQ(name_of(arm + "CPU architecture: 8\nCPU part\t: 0xd4f\n"), "Neoverse V2");
  EXPECT_EQ(name_of(arm + "CPU part\t: 0xfff\n"), "ARM core 0xfff of designer 0x41");
  EXPECT_EQ(name_of(""), "unknown processor");
}
