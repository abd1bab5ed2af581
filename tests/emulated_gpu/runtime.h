#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/platform.h"

// What the sources of the emulated runtime share. Everything here is used under the lock.
namespace emulated_gpu {

constexpr int kMostThreads = 1024;  ///< of a block
/// Shared memory that a block has unasked, and at most: that of the GPUs that have least of those
/// that attention has kernels for (compute capability 8.6; gfx90a).
constexpr std::size_t kSharedBytes = (kWarpThreads == 64 ? 64 : 48) << 10,
                      kMostSharedBytes = (kWarpThreads == 64 ? 64 : 99) << 10;

/// What an event waits for: that the stream's work before cudaEventRecord() is done.
struct Record {
  bool done = false;
  double seconds = 0;  ///< of the stream's time
};

/// A piece of captured work.
struct Node {
  Work work;
  int device = 0;
  int lane = 0;            ///< index of the stream that it was captured from
  std::vector<int> after;  ///< nodes that must be done before
};

/// The nodes that streams have been giving since cudaStreamBeginCapture().
struct Capture {
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread = std::this_thread::get_id();
  bool invalidated = false, ended = false;
  int lanes = 0;
  std::vector<Node> nodes;
  std::set<std::pair<int, int>> waits;  ///< lanes: an event of the first, waited for by the second
};

struct Launch;

/// An element of a stream's queue: work, or a launch of a graph. For ThreadSanitizer, `run` belongs
/// to the stream from push() on, and the rest to the host threads that have the lock.
struct Item {
  std::string what;
  std::unique_ptr<std::function<void()>> run;
  std::function<bool()> may_run;
  double seconds = 0;
  std::unique_ptr<Launch> launch;

  explicit Item(Work work);
  explicit Item(std::unique_ptr<Launch> of);
  ~Item();
};

/// Part of a capture. Null: not capturing.
struct Captured {
  std::shared_ptr<Capture> capture;
  std::vector<int> tail;  ///< nodes that the next one comes after
};

}  // namespace emulated_gpu

struct CUstream_st : std::enable_shared_from_this<CUstream_st> {
  int device = 0;
  emulated_gpu::Context context;
  std::deque<std::unique_ptr<emulated_gpu::Item>> queue;
  std::uint64_t enqueued = 0, done = 0;
  std::uint64_t priority = 0;  ///< random; of the streams that can go on, the highest does
  bool destroyed = false;      ///< by the program; its work goes on
  double seconds = 0;          ///< its time: when the work that it has done was done
  emulated_gpu::Captured captured;
  int lane = 0;
};

struct CUevent_st {
  int device = 0;
  bool timed = false;
  std::shared_ptr<emulated_gpu::Record> record;  ///< the latest; null: never recorded
  emulated_gpu::Captured captured;               ///< if last recorded in a capturing stream,
  int lane = 0;                                  ///< and of which lane
};

namespace emulated_gpu {

/// Memory that the program has allocated.
struct Allocation {
  enum class Kind { device, pinned };
  Kind kind = Kind::device;
  char* begin = nullptr;
  std::size_t bytes = 0;
  int device = 0;
};

struct Machine {
  std::vector<std::shared_ptr<CUstream_st>> streams;  ///< also destroyed ones that have work
  std::set<cudaEvent_t> events;
  std::set<std::shared_ptr<Capture>> captures;    ///< under way
  std::map<const char*, Allocation> allocations;  ///< by their end, so upper_bound() finds one
  std::vector<std::size_t> used;                  ///< bytes, of each device
  std::set<std::pair<int, int>> peers;            ///< the first may access the second's memory
  int running_on = -1;                            ///< device of the work that runs; -1: none runs
  double* time = nullptr;                         ///< that of the stream whose work runs
  std::thread::id holder;                         ///< see wait_for_holder(); {}: none
};
Machine& machine();

/// A number from the environment.
long long setting(const char* name, long long otherwise);

/// Bytes of memory of each device.
std::size_t device_bytes();

/// Body of the API function of this name: under the lock, with injected failures and some progress
/// of the streams before it. Keeps its error for cudaGetLastError().
cudaError_t call(const char* function, const std::function<cudaError_t()>& body);

/// Runs some work or none, so that work is sometimes early and sometimes late.
void some_progress();

/// Runs work of all streams until done(). Releases the lock between pieces of work. A violation if
/// the process makes no progress for AXONN_EMULATED_PATIENCE seconds (30 by default).
void wait_until(const std::string& what, const std::function<bool()>& done);

/// Waits for the work that is on the streams now.
void wait_for_streams(const char* function, std::vector<std::shared_ptr<CUstream_st>> streams);
/// Waits for the work that is on the device's streams now.
void wait_for_device(const char* function, int device);
/// As a call that allocates or frees memory at once.
void wait_to_change_memory(const char* function, int device);
/// Waits while another thread is in wait_to_change_memory() with AXONN_EMULATED_HOLD=1.
void wait_for_holder();

/// Ends a wait for work that a host thread has enqueued, or done.
void progressed();

/// The lock, released between lock() and unlock() of all levels.
void wait_for_progress(int milliseconds);
/// How often the calling thread has the lock.
int lock_depth();

/// Checks that it is a stream or event that has not been destroyed. `function` is for messages.
CUstream_st& stream_of(cudaStream_t stream, const char* function);
CUevent_st& event_of(cudaEvent_t event, const char* function);

/// Runs f as the context's thread, as work of the device.
void run_as(const Context& context, int device, const std::function<void()>& f);

/// With AXONN_EMULATED_PROTECT=1: permits or forbids accesses to device memory, for all threads.
void permit_device_memory(bool access);

/// The program may not make this call while it captures: the capture becomes invalid. Null: it may.
cudaError_t refused_by_captures();
cudaError_t invalidate(Capture& capture, cudaError_t error);
/// Adds work to the capture of a stream that is capturing.
cudaError_t capture(CUstream_st& stream, Work work);
/// A stream waits for an event, and the one or the other is captured.
cudaError_t capture_wait(CUstream_st& stream, const CUevent_st& event);

/// Adds to the stream's queue.
void push(CUstream_st& stream, std::unique_ptr<Item> item);

/// Runs a node that can run. False: there is none. Sets done if all have run.
bool run_node(CUstream_st& stream, Item& item, bool& done);

/// For messages: the work, and, of a graph, the nodes whose turn it is.
std::string name_of(const Item& item);

}  // namespace emulated_gpu
