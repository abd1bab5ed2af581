#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/emulated_gpu/nccl_comm.h"
#include "tests/emulated_gpu/platform.h"

using namespace emulated_gpu;
using namespace emulated_gpu::nccl;

namespace {

thread_local std::string last_error;

ncclResult_t injected_failure(const char* function) {
  return failed(random_numbers()() % 2 ? ncclSystemError : ncclUnhandledCudaError,
                std::string(function) + ": injected");
}

bool two_on_a_gpu(const Group& group) {
  std::set<int> devices;
  for (const ncclComm* member : group.members)
    if (member) devices.insert(member->device);
  return static_cast<int>(devices.size()) < group.joined;
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
  grouped.launches.push_back(std::make_shared<Launch>(Launch{comm, {call}, stream, 0, false, {}}));
  return ncclSuccess;
}

/// Adds a call to the thread's group, or makes it a group.
ncclResult_t call_on(ncclComm* comm, const NcclCall& call, cudaStream_t stream,
                     const char* function) {
  const ncclResult_t added = add_call(comm, call, stream, function);
  if (added != ncclSuccess && grouped.depth > 0) grouped.error = added;
  return added != ncclSuccess || grouped.depth > 0 ? added : end_group();
}

int latest_blocks = 0;

bool blocks(const ncclConfig_t* config, bool otherwise) {
  if (!config) return otherwise;
  if (config->magic != 0xcafebeef) violation("NCCL: a config without NCCL_CONFIG_INITIALIZER");
  const bool limited = config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (limited && config->maxCTAs < 1) violation("NCCL: maxCTAs is below 1");
  latest_blocks = limited ? config->maxCTAs : 0;
  return config->blocking != 0;  // undefined: blocking
}

}  // namespace

int emulated_gpu::latest_nccl_blocks() {
  const Locked locked;
  return latest_blocks;
}

ncclResult_t emulated_gpu::nccl::failed(ncclResult_t result, const std::string& text) {
  last_error = text;
  return result;
}

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
    *comm = add_comm(group, rank, current_device(), blocks(config, true));
    begin(*comm, {.ready = [group = group] { return group->joined == group->ranks; },
                  .finish =
                      [group = group] {
                        return two_on_a_gpu(*group)
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
