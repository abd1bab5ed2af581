#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <nccl.h>

#include "tests/emulated_gpu/nccl_data.h"
#include "tests/emulated_gpu/platform.h"

// A launch (the calls of one group on one communicator) is two works of its stream. With the first,
// the rank arrives at the launch's exchanges: its collectives and messages. The second may run when
// the other parties of all these have arrived. Whichever of them runs first moves the data.
//
// As in NCCL, the first exchange of a kind connects the ranks, for which all of them must call it:
// until then the call is in progress, or blocks. A call of a non-blocking communicator is enqueued
// only when ncclCommGetAsyncError() says that it is no longer in progress.

using namespace emulated_gpu;

namespace {

/// A collective (from = to = -1) or a message of a communicator: its number in the rank's order.
using Key = std::tuple<int, int, std::int64_t>;

struct Launch;

struct Exchange {
  std::vector<NcclCall> calls;    // by party: a rank, or sender and receiver
  std::vector<Launch*> launches;  // by party; null until it arrives
  std::vector<int> devices;       // by party
  std::vector<std::int64_t> numbers;
  std::size_t missing = 0;
  bool moved = false, dead = false;  // dead: a party was aborted
};

struct Group;

struct Launch {
  ncclComm* comm = nullptr;
  std::vector<NcclCall> calls;
  cudaStream_t stream = nullptr;
  std::int64_t number = 0;  // in the order of the device's launches
  bool captured = false;
  std::vector<std::pair<Key, std::shared_ptr<Exchange>>> exchanges;  // while it runs
};

/// The ranks' colors and keys of a split, and the parts made of them.
struct Split {
  std::vector<int> colors, keys;
  int arrived = 0;
  std::map<int, std::shared_ptr<Group>> parts;
};

/// What the ranks of a communicator share.
struct Group {
  std::string name;
  int ranks = 0;
  std::vector<ncclComm*> members;  // null until the rank has joined
  int joined = 0;
  std::map<Key, std::shared_ptr<Exchange>> exchanges;  // not yet moved
  std::map<std::pair<int, int>, std::set<int>> connecting;
  std::map<std::int64_t, Split> splits;

  bool two_on_a_gpu() const;
  std::vector<int> order() const;
};

/// What a call waits for on the host, and its end.
struct Pending {
  std::function<bool()> ready;
  std::function<ncclResult_t()> finish;
};

enum class Life { alive, finalized, aborted, destroyed };

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0, device = 0;
  bool blocking = true;
  Life life = Life::alive;
  ncclResult_t error = ncclSuccess;
  std::optional<Pending> pending = {};
  int polls = 0;                  // of a pending call, before it may end
  std::thread::id grouping = {};  // the thread that has grouped calls on it
  std::int64_t collectives = 0, splits = 0;
  std::map<std::pair<int, int>, std::int64_t> messages = {};
  Launch* running = nullptr;
  std::deque<Launch*> waiting = {};  // have not arrived; without captured ones
  std::set<cudaStream_t> streams = {};
  int outstanding = 0;
  std::vector<std::weak_ptr<Launch>> captured = {};
};

namespace {

struct Gpu {
  std::int64_t launches = 0;
  std::deque<Launch*> waiting;  // have not arrived, in the order of the calls
  std::set<Launch*> running;
};

/// Of the process. Communicators stay, so that their use after their end is found.
struct Everything {
  std::map<std::string, std::shared_ptr<Group>> groups;  // by id
  std::deque<ncclComm> comms;
  std::map<int, Gpu> gpus;
  bool implicit_order = false;
  // For two devices: the number on the one by the number on the other, of recent exchanges.
  std::map<std::pair<int, int>, std::map<std::int64_t, std::int64_t>> orders;
};
Everything& everything() {
  static auto* all = new Everything;  // outlives the threads
  return *all;
}

thread_local std::string last_error;

ncclResult_t failed(ncclResult_t result, const std::string& text) {
  last_error = text;
  return result;
}

ncclResult_t injected_failure(const char* function) {
  return failed(random_numbers()() % 2 ? ncclSystemError : ncclUnhandledCudaError,
                std::string(function) + ": injected");
}

bool Group::two_on_a_gpu() const {
  std::set<int> devices;
  for (const ncclComm* member : members)
    if (member) devices.insert(member->device);
  return static_cast<int>(devices.size()) < joined;
}

/// The order of the ring: the same in every run of a seed.
std::vector<int> Group::order() const {
  const char* const text = std::getenv("AXONN_EMULATED_SEED");
  std::vector<std::uint32_t> from{static_cast<std::uint32_t>(text ? std::atoi(text) : 0)};
  for (const ncclComm* member : members) from.push_back(member->device);
  std::seed_seq seeds(from.begin(), from.end());
  std::mt19937_64 engine(seeds);
  std::vector<int> order(ranks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), engine);
  return order;
}

std::string about(const ncclComm* comm) {
  return "rank " + std::to_string(comm->rank) + " of communicator " + comm->group->name + " (GPU " +
         std::to_string(comm->device) + ')';
}

/// Checks that a function may be called on a communicator now.
ncclResult_t usable(const ncclComm* comm, const char* function) {
  if (!comm) return failed(ncclInvalidArgument, std::string(function) + ": comm is null");
  const std::string name = std::string(function) + " on " + about(comm);
  if (comm->life == Life::aborted || comm->life == Life::destroyed)
    violation(name + ": the communicator has been destroyed or aborted");
  if (comm->pending && comm->blocking) violation(name + ": another thread uses the communicator");
  if (comm->pending)
    violation(name +
              ": its last call is in progress; until ncclCommGetAsyncError says that it has "
              "ended, only ncclCommAbort is allowed");
  if (comm->grouping != std::thread::id() && comm->grouping != std::this_thread::get_id())
    violation(name + ": another thread has begun a group with it");
  return comm->error;
}

/// Begins what a call waits for. Under the lock.
void begin(ncclComm* comm, Pending pending) {
  release(comm);
  comm->pending = std::move(pending);
  comm->polls = static_cast<int>(random_numbers()() % 4);
}

ncclResult_t finish(ncclComm* comm) {
  acquire(comm);
  const Pending pending = *std::exchange(comm->pending, std::nullopt);
  const ncclResult_t result = pending.finish();
  if (result != ncclSuccess) comm->error = result;
  return result;
}

/// The result of a call after begin(). Called without the lock.
ncclResult_t ended(ncclComm* comm) {
  if (!comm->blocking) return ncclInProgress;
  for (;; std::this_thread::yield()) {
    const Locked locked;
    if (comm->life == Life::aborted) return failed(ncclInternalError, "aborted");
    if (comm->pending->ready()) return finish(comm);
  }
}

ncclComm* add_comm(std::shared_ptr<Group> group, int rank, int device, bool blocking) {
  ncclComm& comm = everything().comms.emplace_back();
  group->members[rank] = &comm;
  ++group->joined;
  comm.group = std::move(group);
  comm.rank = rank;
  comm.device = device;
  comm.blocking = blocking;
  return &comm;
}

std::shared_ptr<Group> add_group(std::string name, int ranks) {
  auto group = std::make_shared<Group>();
  group->name = std::move(name);
  group->ranks = ranks;
  group->members.resize(ranks);
  const char* const order = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  everything().implicit_order = order && std::strcmp(order, "1") == 0;
  return group;
}

// What runs on streams.

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
    exchange->devices.resize(exchange->missing);
    exchange->numbers.resize(exchange->missing);
  }
  for (const Launch* other : exchange->launches) {
    if (!other) continue;
    const NcclCall& theirs =
        exchange->calls[std::find(exchange->launches.begin(), exchange->launches.end(), other) -
                        exchange->launches.begin()];
    if (!call.agrees(theirs))
      violation("NCCL: calls of ranks differ: " + call.text() + " by " + about(&comm) + "; " +
                theirs.text() + " by " + about(other->comm));
  }
  exchange->calls[party] = call;
  exchange->launches[party] = launch;
  exchange->devices[party] = comm.device;
  exchange->numbers[party] = launch->number;
  --exchange->missing;
  launch->exchanges.emplace_back(key, exchange);
  release(exchange.get());
}

void arrive(Launch* launch) {
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
    auto& order = everything().orders[{exchange.devices[a], exchange.devices[b]}];
    const auto [here, added] = order.emplace(exchange.numbers[a], exchange.numbers[b]);
    const auto next = std::next(here);
    const bool wrong = here->second != exchange.numbers[b] ||
                       (here != order.begin() && std::prev(here)->second >= here->second) ||
                       (next != order.end() && next->second <= here->second);
    if (added && order.size() > 256) order.erase(order.begin());
    return wrong;
  };
  for (std::size_t party = 1; party < exchange.devices.size(); ++party)
    if (exchange.devices[0] != exchange.devices[party] && differs(0, party))
      violation("NCCL: " + about(exchange.launches[0]->comm) + " and " +
                about(exchange.launches[party]->comm) +
                " call the collectives of different communicators in different orders, at " +
                exchange.calls[0].text());
}

void complete(Launch* launch) {
  ncclComm& comm = *launch->comm;
  if (!launch->captured) --comm.outstanding;
  if (comm.life == Life::aborted) return;
  for (const auto& [key, exchange] : launch->exchanges) {
    acquire(exchange.get());
    if (!exchange->moved) {
      check_order(*exchange);
      move_data(exchange->calls, comm.group->order());
      exchange->moved = true;
      comm.group->exchanges.erase(key);
    }
    release(exchange.get());
  }
  launch->exchanges.clear();
  comm.running = nullptr;
  everything().gpus[comm.device].running.erase(launch);
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
                               .may_run = [launch] { return may_arrive(launch.get()); }});
  if (arrival == cudaSuccess &&
      enqueue(launch->stream, {.what = what,
                               .run = [launch] { complete(launch.get()); },
                               .may_run = [launch] { return may_complete(launch.get()); }}) ==
          cudaSuccess)
    return ncclSuccess;
  erase(gpu.waiting, launch.get());
  erase(comm.waiting, launch.get());
  if (!launch->captured) --comm.outstanding;
  return failed(ncclUnhandledCudaError, "the stream refuses " + what);
}

// Groups of calls.

struct Grouped {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::shared_ptr<Launch>> launches;
  ~Grouped() {
    if (depth > 0) violation("NCCL: a thread ends within ncclGroupStart()");
  }
};
thread_local Grouped grouped;

/// Begins a launch: its ranks connect if it is the first of its kind.
void begin_launch(const std::shared_ptr<Launch>& launch) {
  ncclComm* const comm = launch->comm;
  std::vector<std::pair<std::pair<int, int>, std::size_t>> needs;  // connections and their ranks
  for (const NcclCall& call : launch->calls) {
    const bool pair = call.operation == Operation::pair;
    const std::pair<int, int> key = !pair ? std::pair(-1 - static_cast<int>(call.operation), -1)
                                    : call.inp ? std::pair(comm->rank, call.peer)
                                               : std::pair(call.peer, comm->rank);
    comm->group->connecting[key].insert(comm->rank);
    needs.emplace_back(key, !pair ? comm->group->ranks : key.first == key.second ? 1 : 2);
  }
  begin(comm, {.ready =
                   [comm, needs] {
                     return std::all_of(needs.begin(), needs.end(), [&](const auto& need) {
                       return comm->group->connecting[need.first].size() >= need.second;
                     });
                   },
               .finish = [launch] { return enqueue_launch(launch); }});
}

ncclResult_t end_group() {
  const ncclResult_t error = std::exchange(grouped.error, ncclSuccess);
  const auto launches = std::exchange(grouped.launches, {});
  bool blocking = false, non_blocking = false;
  {
    const Locked locked;
    for (const auto& launch : launches) {
      launch->comm->grouping = {};
      (launch->comm->blocking ? blocking : non_blocking) = true;
    }
    if (error != ncclSuccess) return error;
    if (blocking && non_blocking)
      return failed(ncclInvalidUsage, "a group with blocking and non-blocking communicators");
    for (const auto& launch : launches) begin_launch(launch);
  }
  ncclResult_t result = ncclSuccess;
  for (const auto& launch : launches)
    if (const ncclResult_t now = ended(launch->comm); now != ncclSuccess) result = now;
  return result;
}

ncclResult_t add_call(ncclComm* comm, const NcclCall& call, cudaStream_t stream,
                      const char* function) {
  const Locked locked;
  if (injected(function)) return injected_failure(function);
  if (const ncclResult_t now = usable(comm, function); now != ncclSuccess) return now;
  const std::string name = std::string(function) + " on " + about(comm) + ": ";
  if (comm->life == Life::finalized) violation(name + "the communicator has been finalized");
  const int ranks = comm->group->ranks;
  const bool pair = call.operation == Operation::pair,
             rooted = pair || call.operation == Operation::broadcast;
  if (rooted && (call.peer < 0 || call.peer >= ranks))
    return failed(ncclInvalidArgument, name + "no such rank: " + std::to_string(call.peer));
  if (bytes_of(call.type) == 0 || (call.op != ncclSum && call.op != ncclMax && call.op != ncclMin))
    return failed(ncclInvalidArgument, name + "the type or the reduction is not emulated");
  if (call.count > 0 && !pair && (!call.inp || !call.out))
    return failed(ncclInvalidArgument, name + "a buffer is null");
  if (const std::string trouble = overlap_trouble(call, comm->rank, ranks); !trouble.empty())
    violation(name + trouble);
  if (device_of(stream) != comm->device)
    violation(name + "the stream is of GPU " + std::to_string(device_of(stream)));
  if (call.count == 0) return ncclSuccess;
  for (const auto& launch : grouped.launches)
    if (launch->comm == comm) {
      if (launch->stream != stream)
        violation(name + "a group with several streams is not emulated");
      launch->calls.push_back(call);
      return ncclSuccess;
    }
  comm->grouping = std::this_thread::get_id();
  grouped.launches.push_back(
      std::make_shared<Launch>(Launch{.comm = comm, .calls = {call}, .stream = stream}));
  return ncclSuccess;
}

/// Adds a call to the thread's group, or makes it a group.
ncclResult_t call_on(ncclComm* comm, const NcclCall& call, cudaStream_t stream,
                     const char* function) {
  const ncclResult_t added = add_call(comm, call, stream, function);
  if (added != ncclSuccess && grouped.depth > 0) grouped.error = added;
  return added != ncclSuccess || grouped.depth > 0 ? added : end_group();
}

bool blocks(const ncclConfig_t* config, bool otherwise) {
  if (!config) return otherwise;
  if (config->magic != 0xcafebeef) violation("NCCL: a config without NCCL_CONFIG_INITIALIZER");
  return config->blocking != 0;  // undefined: blocking
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

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  const Locked locked;
  if (injected(__func__)) return injected_failure(__func__);
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {
      "no error",
      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)",
      "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error",
      "NCCL operation in progress"};
  return result <= ncclInProgress ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Locked locked;
  if (injected(__func__)) return injected_failure(__func__);
  std::memset(id, 0, sizeof *id);
  const std::string name = std::to_string(everything().groups.size());
  std::copy(name.begin(), name.end(), id->internal);
  everything().groups[name] = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  {
    const Locked locked;
    if (injected(__func__)) return injected_failure(__func__);
    if (grouped.depth > 0) violation("ncclCommInitRankConfig in a group is not emulated");
    if (ranks < 1 || rank < 0 || rank >= ranks)
      return failed(ncclInvalidArgument, "ncclCommInitRankConfig: no such rank");
    const auto known = everything().groups.find(id.internal);
    if (known == everything().groups.end())
      return failed(ncclInvalidUsage, "the ranks of emulated GPUs must be threads of one process");
    auto& group = known->second;
    if (!group) group = add_group(known->first, ranks);
    if (group->ranks != ranks || group->members[rank])
      violation("ncclCommInitRankConfig: ranks give different sizes, or one rank comes twice");
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess)
      return failed(ncclUnhandledCudaError, "cudaGetDevice");
    *comm = add_comm(group, rank, device, blocks(config, true));
    begin(*comm, {.ready = [group = group] { return group->joined == group->ranks; },
                  .finish =
                      [group = group] {
                        return group->two_on_a_gpu()
                                   ? failed(ncclInvalidUsage, "Duplicate GPU detected")
                                   : ncclSuccess;
                      }});
  }
  return ended(*comm);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  {
    const Locked locked;
    if (injected(__func__)) return injected_failure(__func__);
    if (const ncclResult_t now = usable(comm, __func__); now != ncclSuccess) return now;
    if (grouped.depth > 0) violation("ncclCommSplit in a group is not emulated");
    if (comm->life == Life::finalized) violation("ncclCommSplit after ncclCommFinalize");
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
      return failed(ncclInvalidArgument, "ncclCommSplit: the color is negative");
    *part = nullptr;
    const std::shared_ptr<Group> group = comm->group;
    const std::int64_t number = comm->splits++;
    Split& split = group->splits[number];
    split.colors.resize(group->ranks);
    split.keys.resize(group->ranks);
    split.colors[comm->rank] = color;
    split.keys[comm->rank] = key;
    ++split.arrived;
    const bool blocking = blocks(config, comm->blocking);
    begin(comm, {.ready = [&split, group] { return split.arrived == group->ranks; },
                 .finish =
                     [&split, group, comm, part, color, blocking, number] {
                       if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
                       std::vector<std::pair<int, int>> members;  // key and rank
                       for (int rank = 0; rank < group->ranks; ++rank)
                         if (split.colors[rank] == color)
                           members.emplace_back(split.keys[rank], rank);
                       std::sort(members.begin(), members.end());
                       auto& made = split.parts[color];
                       if (!made)
                         made = add_group(group->name + '.' + std::to_string(number) + '.' +
                                              std::to_string(color),
                                          static_cast<int>(members.size()));
                       const auto mine = std::find(members.begin(), members.end(),
                                                   std::pair(split.keys[comm->rank], comm->rank));
                       *part = add_comm(made, static_cast<int>(mine - members.begin()),
                                        comm->device, blocking);
                       if (!blocking)
                         begin(*part, {.ready = [made] { return made->joined == made->ranks; },
                                       .finish = [] { return ncclSuccess; }});
                       return ncclSuccess;
                     }});
  }
  return ended(comm);
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  const Locked locked;
  if (injected(__func__)) return injected_failure(__func__);
  if (const ncclResult_t now = usable(comm, __func__); now != ncclSuccess) return now;
  *count = comm->group->ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Locked locked;
  if (injected(__func__)) return injected_failure(__func__);
  if (!comm) return failed(ncclInvalidArgument, "ncclCommGetAsyncError: comm is null");
  if (comm->life == Life::aborted || comm->life == Life::destroyed)
    violation("ncclCommGetAsyncError on " + about(comm) + " after its end");
  if (injected("ncclAsync")) {
    comm->error = random_numbers()() % 2 ? ncclRemoteError : ncclSystemError;
    failed(comm->error, "ncclAsync: injected");
    comm->pending.reset();
  }
  *error = comm->error;
  if (!comm->pending || comm->blocking) return ncclSuccess;
  *error = ncclInProgress;
  if (comm->polls-- <= 0 && comm->pending->ready()) *error = finish(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  {
    const Locked locked;
    if (injected(__func__)) return injected_failure(__func__);
    if (const ncclResult_t now = usable(comm, __func__); now != ncclSuccess) return now;
    if (comm->life == Life::finalized) violation("ncclCommFinalize on " + about(comm) + " again");
    comm->life = Life::finalized;
    begin(comm, {.ready = [comm] { return comm->outstanding == 0; },
                 .finish = [] { return ncclSuccess; }});
  }
  return ended(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::set<cudaStream_t> streams;
  {
    const Locked locked;
    if (!comm) return ncclSuccess;
    if (injected(__func__)) return injected_failure(__func__);
    usable(comm, __func__);
    const auto alive = [](const std::weak_ptr<Launch>& launch) { return !launch.expired(); };
    if (std::any_of(comm->captured.begin(), comm->captured.end(), alive))
      violation("ncclCommDestroy on " + about(comm) + " waits forever for a graph with its calls");
    if (comm->outstanding > 0) streams = comm->streams;
  }
  for (const cudaStream_t stream : streams)  // as NCCL, waits for what is enqueued
    if (cudaStreamSynchronize(stream) != cudaSuccess)
      return failed(ncclUnhandledCudaError, "ncclCommDestroy");
  const Locked locked;
  comm->life = Life::destroyed;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Locked locked;
  if (!comm) return ncclSuccess;
  if (injected(__func__)) return injected_failure(__func__);
  if (comm->life == Life::aborted || comm->life == Life::destroyed)
    violation("ncclCommAbort on " + about(comm) + " after its end");
  comm->life = Life::aborted;
  drop(comm);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  const Locked locked;
  if (injected(__func__)) return injected_failure(__func__);
  ++grouped.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  {
    const Locked locked;
    if (grouped.depth == 0) return failed(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
    if (injected(__func__)) grouped.error = injected_failure(__func__);
    if (--grouped.depth > 0) return grouped.error;
  }
  return end_group();
}

ncclResult_t ncclAllReduce(const void* inp, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, {Operation::all_reduce, type, count, inp, out, op}, stream, __func__);
}

ncclResult_t ncclAllGather(const void* inp, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, {Operation::all_gather, type, count, inp, out}, stream, __func__);
}

ncclResult_t ncclReduceScatter(const void* inp, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, {Operation::reduce_scatter, type, count, inp, out, op}, stream, __func__);
}

ncclResult_t ncclBroadcast(const void* inp, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, {Operation::broadcast, type, count, inp, out, ncclSum, root}, stream,
                 __func__);
}

ncclResult_t ncclSend(const void* inp, std::size_t count, ncclDataType_t type, int to,
                      ncclComm_t comm, cudaStream_t stream) {
  if (count > 0 && !inp) return failed(ncclInvalidArgument, "ncclSend: the buffer is null");
  return call_on(comm, {Operation::pair, type, count, inp, nullptr, ncclSum, to}, stream, __func__);
}

ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream) {
  if (count > 0 && !out) return failed(ncclInvalidArgument, "ncclRecv: the buffer is null");
  return call_on(comm, {Operation::pair, type, count, nullptr, out, ncclSum, from}, stream,
                 __func__);
}
