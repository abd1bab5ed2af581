#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tests/emulated_gpu/nccl_comm.h"
#include "tests/emulated_gpu/platform.h"

namespace emulated_gpu::nccl {

namespace {

/// The order of the ring: the same in every run of a seed.
std::vector<int> order_of(const Group& group) {
  const char* const text = std::getenv("AXONN_EMULATED_SEED");
  std::vector<std::uint32_t> from{static_cast<std::uint32_t>(text ? std::atoi(text) : 0)};
  for (const ncclComm* member : group.members) from.push_back(member->device);
  std::seed_seq seeds(from.begin(), from.end());
  std::mt19937_64 engine(seeds);
  std::vector<int> order(group.ranks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), engine);
  return order;
}

void erase(std::deque<Launch*>& from, Launch* launch) {
  from.erase(std::remove(from.begin(), from.end(), launch), from.end());
}

bool may_arrive(Launch* launch) {
  const ncclComm& comm = *launch->comm;
  const Gpu& gpu = everything().gpus[comm.device];
  if (comm.life == Life::aborted) return true;
  if (comm.running) return false;  // a communicator's launches run one after the other
  if (!launch->captured && comm.waiting.front() != launch) return false;
  if (!everything().implicit_order) return gpu.running.empty();
  return launch->captured || gpu.waiting.front() == launch;
}

/// Ends the process if launches wait for each other: each holds its GPU until others arrive, whose
/// GPUs are held by the next. `path` are launches of which each waits for the next.
void find_deadlock(std::vector<Launch*>& path) {
  for (const auto& [key, exchange] : path.back()->exchanges)
    for (std::size_t party = 0; party < exchange->launches.size(); ++party) {
      if (exchange->launches[party]) continue;
      const Group& group = *path.back()->comm->group;
      const auto [from, to, number] = key;
      const int rank = from < 0 ? static_cast<int>(party) : party == 0 ? from : to;
      for (Launch* const holder : everything().gpus[group.members[rank]->device].running) {
        if (holder == path.front()) {
          std::string text = "NCCL: kernels of different communicators wait for each other:";
          for (const Launch* launch : path)
            text += "\n  " + launch->calls[0].text() + " of " + about(launch->comm);
          violation(text + "\nSet NCCL_LAUNCH_ORDER_IMPLICIT=1");
        }
        if (std::find(path.begin(), path.end(), holder) != path.end()) continue;
        path.push_back(holder);
        find_deadlock(path);
        path.pop_back();
      }
    }
}

/// The launch's rank joins an exchange.
void join(Launch* launch, const NcclCall& call) {
  ncclComm& comm = *launch->comm;
  Group& group = *comm.group;
  const bool pair = call.operation == Operation::pair;
  const int from = !pair      ? -1
                   : call.inp ? comm.rank
                              : call.peer,
            to = !pair      ? -1
                 : call.inp ? call.peer
                            : comm.rank;
  const std::size_t party = !pair ? comm.rank : call.inp ? 0 : 1;
  // A rank that sends to itself counts the send and the receive apart.
  std::int64_t& number = !pair ? comm.collectives : comm.messages[{from, call.inp ? to : -1 - to}];
  const Key key{from, to, number++};
  auto& exchange = group.exchanges[key];
  if (!exchange) {
    exchange = std::make_shared<Exchange>();
    exchange->missing = pair ? 2 : group.ranks;
    exchange->calls.resize(exchange->missing);
    exchange->launches.resize(exchange->missing);
    exchange->numbers.resize(exchange->missing);
  }
  for (std::size_t other = 0; other < exchange->launches.size(); ++other)
    if (exchange->launches[other] && !call.agrees(exchange->calls[other]))
      violation("NCCL: calls of ranks differ: " + call.text() + " by " + about(&comm) + "; " +
                exchange->calls[other].text() + " by " + about(exchange->launches[other]->comm));
  exchange->calls[party] = call;
  exchange->calls[party].device = comm.device;
  exchange->launches[party] = launch;
  exchange->numbers[party] = launch->number;
  --exchange->missing;
  exchange->seconds = std::max(exchange->seconds, stream_seconds());
  launch->exchanges.emplace_back(key, exchange);
  release(exchange.get());
}

void arrive(Launch* launch) {
  const Unseen unseen;
  ncclComm& comm = *launch->comm;
  if (comm.life == Life::aborted) return;
  Gpu& gpu = everything().gpus[comm.device];
  erase(gpu.waiting, launch);
  erase(comm.waiting, launch);
  comm.running = launch;
  gpu.running.insert(launch);
  for (const NcclCall& call : launch->calls) join(launch, call);
  std::vector<Launch*> path{launch};
  if (!everything().implicit_order) find_deadlock(path);
}

bool may_complete(Launch* launch) {
  if (launch->comm->life == Life::aborted) return true;
  return std::all_of(launch->exchanges.begin(), launch->exchanges.end(), [](const auto& entry) {
    return entry.second->moved || (entry.second->missing == 0 && !entry.second->dead);
  });
}

/// Checks that GPUs have launched this exchange and others in the same order.
void check_order(const Exchange& exchange) {
  const auto differs = [&](std::size_t a, std::size_t b) {
    auto& order = everything().orders[{exchange.calls[a].device, exchange.calls[b].device}];
    const auto [here, added] = order.emplace(exchange.numbers[a], exchange.numbers[b]);
    const auto next = std::next(here);
    const bool wrong = here->second != exchange.numbers[b] ||
                       (here != order.begin() && std::prev(here)->second >= here->second) ||
                       (next != order.end() && next->second <= here->second);
    if (added && order.size() > 256) order.erase(order.begin());
    return wrong;
  };
  for (std::size_t party = 1; party < exchange.calls.size(); ++party)
    if (exchange.calls[0].device != exchange.calls[party].device && differs(0, party))
      violation("NCCL: " + about(exchange.launches[0]->comm) + " and " +
                about(exchange.launches[party]->comm) +
                " call the collectives of different communicators in different orders, at " +
                exchange.calls[0].text());
}

void complete(Launch* launch) {
  const Unseen unseen;
  ncclComm& comm = *launch->comm;
  if (!launch->captured) --comm.outstanding;
  if (comm.life == Life::aborted) return acquire(&*comm.group);  // of data that have moved
  for (const auto& [key, exchange] : launch->exchanges) {
    acquire(exchange.get());
    stream_seconds() = std::max(stream_seconds(), exchange->seconds);
    if (!exchange->moved) {
      check_order(*exchange);
      move_data(exchange->calls, order_of(*comm.group));
      exchange->moved = true;
      comm.group->exchanges.erase(key);
    }
    release(exchange.get());
    release(&*comm.group);
  }
  launch->exchanges.clear();
  comm.running = nullptr;
  everything().gpus[comm.device].running.erase(launch);
}

}  // namespace

Everything& everything() {
  static auto* all = new Everything;  // outlives the threads
  return *all;
}

std::string about(const ncclComm* comm) {
  return "rank " + std::to_string(comm->rank) + " of communicator " + comm->group->name + " (GPU " +
         std::to_string(comm->device) + ')';
}

ncclResult_t enqueue_launch(const std::shared_ptr<Launch>& launch) {
  ncclComm& comm = *launch->comm;
  Gpu& gpu = everything().gpus[comm.device];
  cudaStreamCaptureStatus capture{};
  if (cudaStreamIsCapturing(launch->stream, &capture) != cudaSuccess)
    return failed(ncclUnhandledCudaError, "cudaStreamIsCapturing");
  launch->captured = capture != cudaStreamCaptureStatusNone;
  launch->number = gpu.launches++;
  if (launch->captured) {
    comm.captured.push_back(launch);
  } else {
    gpu.waiting.push_back(launch.get());
    comm.waiting.push_back(launch.get());
    comm.streams.insert(launch->stream);
    ++comm.outstanding;
  }
  const std::string what = launch->calls[0].text();
  const cudaError_t arrival =
      enqueue(launch->stream, {.what = "arrival at " + what,
                               .run = [launch] { arrive(launch.get()); },
                               .may_run = [launch] { return may_arrive(launch.get()); },
                               .seconds = 0});
  if (arrival == cudaSuccess &&
      enqueue(launch->stream, {.what = what,
                               .run = [launch] { complete(launch.get()); },
                               .may_run = [launch] { return may_complete(launch.get()); },
                               .seconds = kCollectiveSeconds}) == cudaSuccess)
    return ncclSuccess;
  erase(gpu.waiting, launch.get());
  erase(comm.waiting, launch.get());
  if (!launch->captured) --comm.outstanding;
  return failed(ncclUnhandledCudaError, "the stream refuses " + what);
}

/// Ends the host's and the GPU's use of a communicator.
void drop(ncclComm* comm) {
  Gpu& gpu = everything().gpus[comm->device];
  for (Launch* const launch : comm->waiting) erase(gpu.waiting, launch);
  comm->waiting.clear();
  if (Launch* const launch = std::exchange(comm->running, nullptr)) {
    gpu.running.erase(launch);
    for (const auto& [key, exchange] : launch->exchanges) exchange->dead = true;
    launch->exchanges.clear();
  }
  comm->pending.reset();
}

}  // namespace emulated_gpu::nccl
