#include "axonn/base/host.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <fstream>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include <sched.h>
#include <sys/syscall.h>
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

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string text; std::getline(file, text);)
    if (text.starts_with("model name"))
      if (const auto colon = text.find(": "); colon != std::string::npos)
        return text.substr(colon + 2);
  return "unknown processor";
}

double available_memory(const std::string& root) {
  const auto field = [&](const std::string& file, const std::string& name) {
    std::ifstream stream(root + file);
    double value = 0;
    for (std::string word; stream >> word;)
      if (word == name && stream >> value) return value;
    return 0.0;
  };
  const auto number = [&](const std::string& file) {
    double value = 0;
    std::ifstream(root + file) >> value;
    return value;
  };
  double bytes = 1024 * field("/proc/meminfo", "MemAvailable:");
  if (bytes == 0)
    bytes = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
            static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  struct Group {
    const char *folder, *limit, *used, *inactive;
  };
  for (const auto& [folder, limit, used, inactive] :
       {Group{"/sys/fs/cgroup/", "memory.max", "memory.current", "inactive_file"},
        Group{"/sys/fs/cgroup/memory/", "memory.limit_in_bytes", "memory.usage_in_bytes",
              "total_inactive_file"}}) {
    const std::string at = folder;
    const double most = number(at + limit);  // 0: "max", no limit
    // The system frees cached file contents when memory is short.
    const double taken = number(at + used) - field(at + "memory.stat", inactive);
    if (most > 0) bytes = std::clamp(most - taken, 0.0, bytes);
  }
  return bytes;
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
