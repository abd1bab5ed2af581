#include "axonn/train/devices.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include <unistd.h>

#include "axonn/base/check.h"
#include "axonn/base/host.h"
#include "axonn/comm/device/device_communicator.h"
#include "axonn/comm/device/device_threads.h"
#include "axonn/comm/device/nccl.h"
#include "axonn/ops/backend.h"
#include "axonn/tensor/cuda/cuda_device.h"

namespace axonn {

namespace {

/// Returns the number of ranks of world on this rank's host with this rank's key, and how many of
/// them come before this rank.
std::pair<std::int64_t, std::int64_t> ranks_sharing(Communicator& world, const std::string& key,
                                                    const char* what) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  auto mine = static_cast<std::int64_t>(std::hash<std::string>{}(host.data() + key));
  std::vector<std::int64_t> all(world.size());
  world.all_gather(buffer(std::span(all)), buffer(std::span(&mine, 1)), what).wait();
  return {std::ranges::count(all, mine), std::count(all.begin(), all.begin() + world.rank(), mine)};
}

}  // namespace

OwnCores::OwnCores(const Config& config, Communicator& world) : before_(usable_cores()) {
  std::string key;
  for (const int core : before_) key += ' ' + std::to_string(core);
  const auto [sharing, place] = ranks_sharing(world, key, "cores");
  const std::int64_t cores = std::ssize(before_),
                     share = std::max<std::int64_t>(1, cores / sharing);
  threads_ = static_cast<int>(config.training.threads > 0 ? config.training.threads : share);
  const bool openmp_binds =
      std::ranges::any_of(std::array{"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"},
                          [](const char* variable) { return std::getenv(variable) != nullptr; });
  if (!config.training.bind_cores || openmp_binds || sharing == 1 || threads_ > share ||
      sharing > cores)
    return;
  const auto first = before_.begin() + place * share;
  bound_ = bind_this_thread({first, first + share});
}

OwnCores::~OwnCores() {
  if (bound_) bind_this_thread(before_);
}

std::unique_ptr<Backend> make_backend(const Config& config, Communicator& world, int threads) {
  // auto does not use GPUs until their results have been tested on one.
  if (!is_gpu(config.parallelism.device)) return make_cpu_backend(threads);
  const auto gpus = static_cast<std::int64_t>(cuda_status().gpus.size());
  const std::int64_t place = ranks_sharing(world, "", "hosts").second;
  return make_cuda_backend(
      static_cast<int>(place % std::max<std::int64_t>(gpus, 1)),
      {.attention = config.training.attention, .deterministic = config.training.deterministic});
}

std::unique_ptr<Communicator> make_device_world(const ParallelismConfig& config,
                                                Communicator& world, Device& device) {
  if (device.uuid().empty()) return nullptr;
  const bool wants_nccl = config.transport == TransportKind::nccl;
  if (wants_nccl || (config.transport == TransportKind::automatic && !nccl_version().empty())) {
    if (have_own_gpus(world, device)) return make_nccl(world, device, config.timeout_seconds);
    if (wants_nccl)
      refuse(
          "nccl: two ranks share a GPU, but NCCL needs one GPU per rank; start as many ranks as ",
          "there are GPUs, or set parallelism.transport = \"threads\" or \"mpi\", with which ",
          "ranks may share a GPU");
  }
  if (config.transport != TransportKind::mpi && world.in_one_process())
    if (auto kernels = make_peer_kernels(world, device))
      return make_device_threads(world, device, std::move(kernels));
  return make_staged(world, device);
}

}  // namespace axonn
