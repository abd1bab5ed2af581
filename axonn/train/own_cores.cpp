#include "axonn/train/own_cores.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string>

#include <unistd.h>

#include "axonn/base/host.h"

namespace axonn {

namespace {

/// Returns a key that is equal for ranks of one machine that may run on the same cores, and differs
/// otherwise.
std::int64_t key_of(const std::vector<int>& cores) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string name = host.data();
  for (const int core : cores) name += ' ' + std::to_string(core);
  return static_cast<std::int64_t>(std::hash<std::string>{}(name));
}

bool openmp_binds() {
  return std::ranges::any_of(std::array{"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"},
                             [](const char* variable) { return std::getenv(variable) != nullptr; });
}

}  // namespace

OwnCores::OwnCores(const Config& config, Communicator& world) : before_(usable_cores()) {
  std::vector<std::int64_t> keys(world.size());
  std::int64_t key = key_of(before_);
  world.all_gather(buffer(std::span(keys)), buffer(std::span(&key, 1)), "cores").wait();
  const auto sharing = std::ranges::count(keys, key),
             place = std::count(keys.begin(), keys.begin() + world.rank(), key);
  const std::int64_t cores = std::ssize(before_),
                     share = std::max<std::int64_t>(1, cores / sharing);
  threads_ = static_cast<int>(config.training.threads > 0 ? config.training.threads : share);
  if (!config.training.bind_cores || openmp_binds() || sharing == 1 || threads_ > share ||
      sharing > cores)
    return;
  const auto first = before_.begin() + place * share;
  std::vector<int> mine(first, first + share);
  if (bind_this_thread(mine)) bound_to_ = std::move(mine);
}

OwnCores::~OwnCores() {
  if (!bound_to_.empty()) bind_this_thread(before_);
}

}  // namespace axonn
