#include "axonn/foundation/base/host.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>
#include <utility>

#include <linux/mempolicy.h>
#include <malloc.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace axonn {

namespace {

/// Linux's struct sched_attr in its first version. The C library lacks it and its system calls.
struct SchedulerAttributes {
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime, deadline, period;  // ns
};

}  // namespace

std::string host_name() {
  std::string name(256, '\0');
  ::gethostname(name.data(), name.size() - 1);
  return name.c_str();
}

namespace {

/// A core by the numbers that its designer gave it. Source: Linux,
/// arch/arm64/include/asm/cputype.h.
struct ArmCore {
  unsigned designer, part;
  const char* name;
};
constexpr ArmCore kArmCores[] = {
    {0x41, 0xd08, "Cortex-A72"},  {0x41, 0xd0b, "Cortex-A76"},  {0x41, 0xd0c, "Neoverse N1"},
    {0x41, 0xd40, "Neoverse V1"}, {0x41, 0xd49, "Neoverse N2"}, {0x41, 0xd4f, "Neoverse V2"},
    {0x41, 0xd84, "Neoverse V3"}, {0x41, 0xd8e, "Neoverse N3"}, {0x43, 0x0af, "ThunderX2"},
    {0x46, 0x001, "A64FX"},       {0x48, 0xd01, "Kunpeng 920"}, {0x4e, 0x004, "Carmel"},
    {0x50, 0x000, "X-Gene"},      {0xc0, 0xac3, "AmpereOne"},   {0xc0, 0xac4, "AmpereOne A"},
};

std::string arm_core(unsigned designer, unsigned part) {
  for (const ArmCore& core : kArmCores)
    if (core.designer == designer && core.part == part) return core.name;
  std::ostringstream name;
  name << std::hex << "ARM core 0x" << part << " of designer 0x" << designer;
  return name.str();
}

}  // namespace

std::string processor_name(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  unsigned designer = 0;
  for (std::string text; std::getline(file, text);) {
    const auto colon = text.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = text.substr(colon + 2);
    if (text.starts_with("model name")) return value;
    const auto number = [&] {
      return static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 0));
    };
    if (text.starts_with("CPU implementer")) designer = number();
    if (text.starts_with("CPU part")) return arm_core(designer, number());
  }
  return "unknown processor";
}

std::string machine_name() {
  utsname names{};
  ::uname(&names);
  return names.machine;
}

namespace {

/// The files about memory of the system, below `root`.
class MemoryFiles {
 public:
  explicit MemoryFiles(std::string root) : root_(std::move(root)) {}

  /// The number behind a name in a file; 0 if it is not there.
  double field(const std::string& file, const std::string& name) const {
    std::ifstream stream(root_ + file);
    double value = 0;
    for (std::string word; stream >> word;)
      if (word == name && stream >> value) return value;
    return 0.0;
  }
  double number(const std::string& file) const {
    double value = 0;
    std::ifstream(root_ + file) >> value;
    return value;
  }
  /// A line of /proc/meminfo, in bytes, less line `node` of NUMA nodes that have no processors;
  /// without it, the machine's memory.
  double of_machine(const std::string& name, const std::string& node) const {
    const double bytes = 1024 * field("/proc/meminfo", name);
    if (bytes > 0) return std::max(0.0, bytes - of_nodes(false, node));
    return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
           static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  }

  /// The numbers of the NUMA nodes that have processors, or of those without.
  std::vector<int> nodes(bool with_processors) const {
    std::vector<int> found;
    for (int node = 0; node < kMostNodes; ++node) {
      std::ifstream list(root_ + folder_of(node) + "cpulist");
      std::string processors;
      if (list && static_cast<bool>(list >> processors) == with_processors) found.push_back(node);
    }
    return found;
  }
  /// The sum of a line of their memory, in bytes.
  double of_nodes(bool with_processors, const std::string& name) const {
    double sum = 0;
    for (const int node : nodes(with_processors)) sum += field(folder_of(node) + "meminfo", name);
    return 1024 * sum;
  }

  static constexpr int kMostNodes = 64;

 private:
  static std::string folder_of(int node) {
    return "/sys/devices/system/node/node" + std::to_string(node) + '/';
  }

  std::string root_;
};

/// A control group, of version 2 or 1, that may limit memory.
struct MemoryGroup {
  const char *folder, *limit, *used, *inactive;
};

constexpr std::array kMemoryGroups = {
    MemoryGroup{"/sys/fs/cgroup/", "memory.max", "memory.current", "inactive_file"},
    MemoryGroup{"/sys/fs/cgroup/memory/", "memory.limit_in_bytes", "memory.usage_in_bytes",
                "total_inactive_file"}};

}  // namespace

double available_memory(const std::string& root) {
  const MemoryFiles files(root);
  double bytes = files.of_machine("MemAvailable:", "MemFree:");
  for (const MemoryGroup& group : kMemoryGroups) {
    const std::string folder = group.folder;
    const double most = files.number(folder + group.limit);  // 0: "max", no limit
    // The system frees cached file contents when memory is short.
    const double taken =
        files.number(folder + group.used) - files.field(folder + "memory.stat", group.inactive);
    if (most > 0) bytes = std::clamp(most - taken, 0.0, bytes);
  }
  return bytes;
}

double total_memory(const std::string& root) {
  const MemoryFiles files(root);
  double bytes = files.of_machine("MemTotal:", "MemTotal:");
  for (const MemoryGroup& group : kMemoryGroups)
    if (const double most = files.number(std::string(group.folder) + group.limit); most > 0)
      bytes = std::min(bytes, most);
  return bytes;
}

double memory_without_processors(const std::string& root) {
  return MemoryFiles(root).of_nodes(false, "MemTotal:");
}

bool keep_to_nodes_with_processors(const std::string& root) {
  const MemoryFiles files(root);
  if (files.nodes(false).empty()) return false;
  const std::vector<int> nodes = files.nodes(true);
  if (nodes.empty()) return false;
  int policy = 0;
  if (syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) != 0 || policy != MPOL_DEFAULT)
    return false;
  std::uint64_t mask = 0;
  for (const int node : nodes) mask |= std::uint64_t{1} << node;
  // The kernel takes one bit less than it is told.
  return syscall(SYS_set_mempolicy, MPOL_BIND, &mask, MemoryFiles::kMostNodes + 1) == 0;
}

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that it takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

std::vector<int> usable_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    return cores;
  }
  cores.resize(::sysconf(_SC_NPROCESSORS_ONLN));  // the machine has more cores than a cpu_set_t
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

void take_short_turns() {
  constexpr std::uint64_t kTurn = 100'000;  // ns
  SchedulerAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime = kTurn;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

bool bind_this_thread(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) return false;
    CPU_SET(core, &set);
  }
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& f) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t failed = count;  // the lowest index that threw
  std::exception_ptr error;
  const auto work = [&] {
    std::size_t i = 0;
    try {
      while ((i = next++) < count) f(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      next = count;  // lower indices were taken before, so their calls still end
      if (i >= failed) return;
      failed = i;
      error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < count && std::cmp_less(i, threads); ++i) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace axonn
