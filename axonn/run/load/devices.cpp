#include "axonn/run/load/devices.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include <unistd.h>

#include "axonn/compute/ops/cpu/instructions.h"
#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/compute/ops/guarding_backend.h"
#include "axonn/compute/ops/repeating_backend.h"
#include "axonn/compute/ops/self_test.h"
#include "axonn/compute/ops/verifying_backend.h"
#include "axonn/compute/tensor/gpu/gpu_platform.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"
#include "axonn/ranks/comm/adapters.h"
#include "axonn/ranks/comm/call_checks.h"
#include "axonn/ranks/comm/device/device_communicator.h"
#include "axonn/ranks/comm/device/device_threads.h"
#include "axonn/ranks/comm/device/nccl.h"
#include "axonn/ranks/comm/network_rules.h"
#include "axonn/ranks/comm/texts.h"

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

/// Passes everything on, and has remarks of its own.
class RemarkingBackend final : public ForwardingBackend {
 public:
  RemarkingBackend(std::unique_ptr<Backend> inner, std::vector<std::string> remarks)
      : ForwardingBackend(std::move(inner)) {
    for (std::string& text : remarks) remark(std::move(text));
  }
};

/// Passes everything on. While it exists, so do the checks of calls.
class CheckedCallsBackend final : public ForwardingBackend {
 public:
  CheckedCallsBackend(std::unique_ptr<Backend> inner, std::shared_ptr<CallChecks> checks)
      : ForwardingBackend(std::move(inner)), checks_(std::move(checks)) {}

 private:
  std::shared_ptr<CallChecks> checks_;
};

CudaOptions cuda_options(const Config& config) {
  return {.attention = config.training.attention, .deterministic = config.training.deterministic};
}

/// Whether NCCL is to exchange the memory of these ranks' GPUs, if each has its own.
bool prefers_nccl(const ParallelismConfig& config, const Communicator& world) {
  // Between threads, a call of the runtime may wait for one rank's collective and at the same time
  // keep another rank from starting it (docs/design-decisions.md).
  const bool suits = !nccl_version().empty() && (world.size() == 1 || !world.in_one_process());
  return config.transport == TransportKind::nccl ||
         (config.transport == TransportKind::automatic && suits);
}

/// Obeys the rules of networks before NCCL is started. The backend has remarks about them.
std::unique_ptr<Backend> obeying_rules(std::unique_ptr<Backend> backend, const Config& config,
                                       Communicator& world) {
  const std::int64_t on_host = ranks_sharing(world, "", "hosts").first;
  if (world.size() == 1 || !prefers_nccl(config.parallelism, world)) return backend;
  NetworkFacts facts = network_facts(backend->device().name());
  facts.several_hosts = on_host < world.size();
  std::vector<std::string> remarks = obey_network_rules(facts);
  if (remarks.empty()) return backend;
  return std::make_unique<RemarkingBackend>(std::move(backend), std::move(remarks));
}

/// Refuses ranks whose processors compute with different instructions: values that are the same on
/// several ranks would differ in their last bits. Collective.
void check_instructions(Communicator& world) {
  if (world.in_one_process()) return;
  const std::string machine = machine_name(),
                    mine = concat(cpu::instructions_in_use(), " (", machine, ')');
  const std::vector<std::string> first = broadcast_texts(world, {mine, host_name(), machine});
  const std::string remedy =
      machine != first[2] ? "start the run on hosts of one architecture"
      : machine == "x86_64"
          ? "limit all of them to what the oldest processor has by setting the "
            "environment variable DNNL_MAX_CPU_ISA to SSE41, AVX2, AVX512_CORE or "
            "AVX512_CORE_BF16"
          : "start the run on hosts of one processor";
  agree(world, "parallelism: using the CPUs of all ranks alike",
        mine == first[0]
            ? ""
            : concat(host_name(), " computes with ", mine, ", but rank 0 on ", first[1], " with ",
                     first[0], "; values that ranks share would differ: ", remedy));
}

/// Refuses ranks whose programs are for different architectures or GPUs, before they make different
/// calls. Collective.
void check_programs(Communicator& world) {
  if (world.in_one_process()) return;
  const auto built_for = [](std::string_view machine, std::string_view gpus) {
    return concat(machine, gpus.empty() ? " without GPUs" : concat(" with ", gpus));
  };
  const std::string machine = machine_name(), gpus(gpu_platform() ? gpu_platform()->name : "");
  const std::vector<std::string> first = broadcast_texts(world, {machine, gpus, host_name()});
  agree(world, "parallelism: choosing the device of all ranks",
        machine == first[0] && gpus == first[1]
            ? ""
            : concat("the program on ", host_name(), " is built for ", built_for(machine, gpus),
                     ", but that of rank 0 on ", first[2], " for ", built_for(first[0], first[1]),
                     "; start the same program on hosts of one architecture"));
}

/// The result of `auto`: a backend on a GPU on every rank or on none.
struct FoundGpu {
  std::unique_ptr<Backend> backend;
  std::string remark;  ///< why there is none although some rank has a GPU; the same on all ranks
};

FoundGpu find_gpu(const Config& config, Communicator& world) {
  FoundGpu found;
  check_programs(world);
  if (!gpu_platform()) return found;
  const std::int64_t gpus = std::ssize(gpus_for(DeviceKind::automatic));
  const std::int64_t place = ranks_sharing(world, "", "hosts").second;
  std::string trouble = gpus > 0 ? "" : "it finds no GPU";
  if (gpus > 0)
    trouble = fault_of([&] {
      found.backend = make_cuda_backend(static_cast<int>(place % gpus), cuda_options(config));
      trouble = self_test(*found.backend);
      if (!trouble.empty()) throw Error(trouble);
    });
  std::array<std::int64_t, 2> mine{gpus, trouble.empty() ? 0 : 1};
  std::vector<std::int64_t> all(mine.size() * world.size());
  world.all_gather(buffer(std::span(all)), buffer(std::span<std::int64_t>(mine)), "devices").wait();
  bool some = false;
  int first_fault = -1;
  for (int rank = world.size() - 1; rank >= 0; --rank) {
    some = some || all[2 * rank] > 0;
    if (all[2 * rank + 1] > 0) first_fault = rank;
  }
  if (first_fault < 0) return found;
  found.backend.reset();
  if (some)
    found.remark = concat("device = \"auto\" uses the CPU, because rank ", first_fault,
                          " cannot use a GPU: ", broadcast_text(world, trouble, first_fault));
  return found;
}

}  // namespace

NetworkFacts network_facts(std::string gpu) {
  return {.gpu = std::move(gpu),
          .collectives = std::string(gpu_platform() ? gpu_platform()->collectives : ""),
          .version = nccl_version(),
          .slingshot = has_slingshot(network_adapters())};
}

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

std::vector<CudaGpu> gpus_for(DeviceKind device) {
  if (device == DeviceKind::cpu) return {};
  std::vector<CudaGpu> gpus = cuda_status().gpus;
  if (device == DeviceKind::automatic) std::erase_if(gpus, &CudaGpu::emulated);
  return gpus;
}

DeviceChoice choose_device(const Config& config, Communicator& world) {
  const DeviceKind wanted = config.parallelism.device;
  if (wanted != DeviceKind::automatic) return {.device = wanted};
  FoundGpu found = find_gpu(config, world);
  if (!found.backend) return {.remark = std::move(found.remark)};
  return {.device = gpu_platform() == &kHip ? DeviceKind::hip : DeviceKind::cuda};
}

std::unique_ptr<Backend> with_checks(std::unique_ptr<Backend> cpu, const TrainingConfig& training,
                                     int threads, Communicator& world) {
  const std::string rank = concat("rank ", world.rank());
  if (training.verify_operations) cpu = std::make_unique<RepeatingBackend>(std::move(cpu), rank);
  if (training.verify_products)
    cpu = std::make_unique<VerifyingBackend>(std::move(cpu), threads, rank);
  if (!training.verify_values && !training.verify_operations) return cpu;
  auto checks = std::make_shared<CallChecks>();
  checks->rank = rank;
  checks->twice = training.verify_operations;
  if (training.verify_values) {
    auto owned = std::make_unique<GuardingBackend>(std::move(cpu), threads, rank);
    GuardingBackend& guard = *owned;
    checks->before = [&guard](const Buffer& inp, const std::string& what) {
      guard.judge(guard.sums().compare(inp.data, inp.bytes()), what);
      guard.sums().hold(inp.data, inp.bytes());
    };
    checks->after = [&guard](const Buffer& inp, const std::string& what) {
      guard.judge(guard.sums().compare(inp.data, inp.bytes()), what);
      guard.sums().release(inp.data, inp.bytes());
    };
    checks->begins = [&guard](const Buffer& out) { guard.sums().forget(out.data, out.bytes()); };
    checks->done = [&guard](const Buffer& out) { guard.sums().keep(out.data, out.bytes()); };
    cpu = std::move(owned);
  }
  world.add_checks(checks);
  return std::make_unique<CheckedCallsBackend>(std::move(cpu), std::move(checks));
}

std::unique_ptr<Backend> make_backend(const Config& config, Communicator& world, int threads) {
  const DeviceKind device = config.parallelism.device;
  if (is_gpu(device)) {
    const CudaStatus status = cuda_status();
    if (!status.trouble.empty()) refuse("parallelism.device: ", status.trouble);
    const std::int64_t place = ranks_sharing(world, "", "hosts").second;
    return obeying_rules(
        make_cuda_backend(static_cast<int>(place % std::ssize(status.gpus)), cuda_options(config)),
        config, world);
  }
  FoundGpu found;
  if (device == DeviceKind::automatic) found = find_gpu(config, world);
  if (found.backend) return obeying_rules(std::move(found.backend), config, world);
  check_instructions(world);
  std::unique_ptr<Backend> cpu =
      with_checks(make_cpu_backend(threads), config.training, threads, world);
  if (found.remark.empty()) return cpu;
  return std::make_unique<RemarkingBackend>(std::move(cpu), std::vector{std::move(found.remark)});
}

std::optional<AttentionRules> planned_attention(const Config& config) {
  const DeviceKind device = config.parallelism.device;
  if (!is_gpu(device)) return std::nullopt;
  AttentionRules rules{.options = cuda_options(config)};
  if (device == DeviceKind::hip) return rules;
  constexpr int kDevelopedWith = 91900, kHopper = 90;
  rules.cudnn = gpu_platform() == &kCuda ? cuda_attention_version() : kDevelopedWith;
  const std::vector<CudaGpu> gpus = gpus_for(device);
  rules.capability = gpus.empty() ? kHopper : gpus.front().capability;
  return rules;
}

std::unique_ptr<Communicator> make_device_world(const ParallelismConfig& config,
                                                Communicator& world, Arena& arena) {
  Device& device = arena.device();
  if (device.uuid().empty()) return nullptr;
  if (prefers_nccl(config, world)) {
    if (have_own_gpus(world, device)) return make_nccl(world, arena, config.timeout_seconds);
    if (config.transport == TransportKind::nccl)
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
