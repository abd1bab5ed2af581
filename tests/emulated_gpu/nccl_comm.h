#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <nccl.h>

#include "tests/emulated_gpu/nccl_data.h"

// What nccl.cpp (calls of the host) and nccl_launch.cpp (work of streams) share. Under the lock.
//
// A launch (the calls of one group on one communicator) is two works of its stream. With the first,
// the rank arrives at the launch's exchanges: its collectives and messages. The second may run when
// the other parties of all these have arrived. Whichever of them runs first moves the data.
//
// As in NCCL, the first exchange of a kind connects the ranks, for which all of them must call it:
// until then the call is in progress, or blocks. A call of a non-blocking communicator is enqueued
// only when ncclCommGetAsyncError() says that it is no longer in progress.

namespace emulated_gpu::nccl {

/// A collective (from = to = -1) or a message of a communicator: its number in the rank's order.
using Key = std::tuple<int, int, std::int64_t>;

struct Launch;

struct Exchange {
  std::vector<NcclCall> calls;    // by party: a rank, or sender and receiver
  std::vector<Launch*> launches;  // by party; null until it arrives
  std::vector<std::int64_t> numbers;
  std::size_t missing = 0;
  bool moved = false, dead = false;  // dead: a party was aborted
  double seconds = 0;                // when the last party arrived, by its stream's time
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
};

/// What a call waits for on the host, and its end.
struct Pending {
  std::function<bool()> ready;
  std::function<ncclResult_t()> finish;
};

enum class Life { alive, finalized, aborted, destroyed };

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
Everything& everything();

std::string about(const ncclComm* comm);
/// Keeps the text for ncclGetLastError() and returns the result.
ncclResult_t failed(ncclResult_t result, const std::string& text);

/// Enqueues a launch on its stream.
ncclResult_t enqueue_launch(const std::shared_ptr<Launch>& launch);
/// Ends the launches of a communicator that is aborted.
void drop(ncclComm* comm);

}  // namespace emulated_gpu::nccl

struct ncclComm {
  std::shared_ptr<emulated_gpu::nccl::Group> group;
  int rank = 0, device = 0;
  bool blocking = true;
  emulated_gpu::nccl::Life life = emulated_gpu::nccl::Life::alive;
  ncclResult_t error = ncclSuccess;
  std::optional<emulated_gpu::nccl::Pending> pending = {};
  int polls = 0;                  // of a pending call, before it may end
  std::thread::id grouping = {};  // the thread that has grouped calls on it
  std::int64_t collectives = 0, splits = 0;
  std::map<std::pair<int, int>, std::int64_t> messages = {};
  emulated_gpu::nccl::Launch* running = nullptr;
  std::deque<emulated_gpu::nccl::Launch*> waiting = {};  // have not arrived; without captured ones
  std::set<cudaStream_t> streams = {};
  int outstanding = 0;
  std::vector<std::weak_ptr<emulated_gpu::nccl::Launch>> captured = {};
};
