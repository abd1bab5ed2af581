#include "axonn/train/devices.h"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <unistd.h>

#include "axonn/base/check.h"
#include "axonn/comm/device/device_communicator.h"
#include "axonn/comm/device/device_threads.h"
#include "axonn/comm/device/nccl.h"
#include "axonn/ops/backend.h"
#include "axonn/tensor/cuda/cuda_device.h"

namespace axonn {

namespace {

std::int64_t host_key() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return static_cast<std::int64_t>(std::hash<std::string>{}(host.data()));
}

/// Returns how many ranks of this rank's host have a smaller rank.
std::int64_t rank_on_host(Communicator& world) {
  std::vector<std::int64_t> keys(world.size());
  std::int64_t key = host_key();
  world.all_gather(buffer(std::span(keys)), buffer(std::span(&key, 1)), "hosts").wait();
  return std::count(keys.begin(), keys.begin() + world.rank(), key);
}

}  // namespace

std::unique_ptr<Backend> make_backend(const Config& config, Communicator& world, int threads) {
  // auto does not use GPUs until their results have been tested on one.
  if (!is_gpu(config.parallelism.device)) return make_cpu_backend(threads);
  const auto gpus = static_cast<std::int64_t>(cuda_status().gpus.size());
  const std::int64_t place = rank_on_host(world);
  return make_cuda_backend(
      static_cast<int>(place % std::max<std::int64_t>(gpus, 1)),
      {.attention = config.training.attention, .deterministic = config.training.deterministic});
}

std::unique_ptr<Communicator> make_device_world(const ParallelismConfig& config,
                                                Communicator& world, Device& device) {
  if (device.uuid().empty()) return nullptr;
  const bool has_nccl = !nccl_version().empty();
  if (config.transport == TransportKind::nccl ||
      (config.transport == TransportKind::automatic && has_nccl && have_own_gpus(world, device)))
    return make_nccl(world, device, config.timeout_seconds);
  if (config.transport != TransportKind::mpi && world.in_one_process())
    if (auto kernels = make_peer_kernels(world, device))
      return make_device_threads(world, device, std::move(kernels));
  return make_staged(world, device);
}

}  // namespace axonn
