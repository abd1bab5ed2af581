#include "axonn/base/host.h"

#include <fstream>
#include <numeric>

#include <sched.h>
#include <unistd.h>

namespace axonn {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string text; std::getline(file, text);)
    if (text.starts_with("model name"))
      if (const auto colon = text.find(": "); colon != std::string::npos)
        return text.substr(colon + 2);
  return "unknown processor";
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

bool bind_this_thread(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) return false;
    CPU_SET(core, &set);
  }
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace axonn
