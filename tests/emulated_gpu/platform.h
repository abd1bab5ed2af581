#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "cuda_runtime_api.h"

// GPUs that a CPU emulates, for tests: the CUDA backend, its tests and whole trainings run on a
// machine without a GPU. Headers of the names of CUDA's, cuBLASLt's and NCCL's declare the part of
// these libraries that the project calls; the sources beside this file define it.
//
//   runtime.cpp   devices, errors (with runtime.h, shared with the next three)
//   memory.cpp    device memory, pinned memory, copies
//   streams.cpp   streams, events, the order of work
//   graphs.cpp    captures of streams
//   executor.cpp  kernels: blocks of threads
//   blas.cpp      cuBLASLt (its loops in blas_products.cpp, what they share in blas.h)
//   nccl.cpp      NCCL: calls of the host (work of streams: nccl_launch.cpp, data: nccl_data.cpp)
//
// This header is what they share. Work is done by host threads that wait for some of it (or query
// it), one at a time, under one lock: a random stream's first work that may run, as events allow.
// So a missing wait changes results for some seed. What a program must not do is a violation.
//
// The sources here are compiled without ThreadSanitizer, and linked so that functions that they
// share with the program, as inline ones, are theirs. For ThreadSanitizer each stream, each node of
// a graph and each thread of a block (more or less: executor.cpp) is a thread of its own, ordered
// with others only as CUDA promises: by what was enqueued before on the same stream, events, the
// begin and end of a kernel, and barriers of a block. What the sources here read and write for the
// program, they report (reads(), writes()).
//
// Calls that allocate or free device memory, or pinned memory, wait for all work of the device.
// With AXONN_EMULATED_HOLD=1 they wait for that of all devices, and calls of other threads wait for
// them. CUDA permits both.
//
// With AXONN_EMULATED_PROTECT=1, host code that accesses device memory ends the process, too,
// unless work runs at that moment.
namespace emulated_gpu {

/// Ends the process with a message: the program has broken one of CUDA's rules.
[[noreturn]] void violation(const std::string& message);

/// One step of a stream.
struct Work {
  std::string what;  ///< for messages: "kernel add_rows", "ncclAllReduce"
  /// Called once, or, in a graph, once in each launch. Under the lock, as the stream's thread for
  /// ThreadSanitizer. It enqueues nothing and waits for nothing.
  std::function<void()> run;
  /// Whether it may run now that it is the stream's first, such as a collective whose other ranks
  /// have arrived. Null: always. Called under the lock.
  std::function<bool()> may_run = {};
  double seconds = 1e-5;  ///< how long it takes by the stream's time
};

/// How long a collective of NCCL takes when all ranks have arrived.
constexpr double kCollectiveSeconds = 5e-5;

/// The time of the stream whose work runs: when the work before it was done, in seconds. Work that
/// waits for other streams sets it. Events tell it, so that tests see overlap and waits.
double& stream_seconds();

/// Enqueues work on a stream, or adds it to the graph that captures the stream. Errors: those of a
/// capture that is invalid.
cudaError_t enqueue(cudaStream_t stream, Work work);

/// The lock of everything that is emulated. Recursive. Library calls hold it while they touch what
/// ranks share.
void lock();
void unlock();
struct Locked {
  Locked() { lock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { unlock(); }
};

/// Random numbers for the order of work, from AXONN_EMULATED_SEED (0 by default). Under the lock.
std::mt19937_64& random_numbers();

/// Checks that the bytes are within one live allocation that a GPU may access (device memory, or
/// pinned host memory), and reports the access to ThreadSanitizer. `what` is for messages. Called
/// by work that runs.
void reads(const void* from, std::size_t bytes, const char* what);
void writes(void* to, std::size_t bytes, const char* what);

/// Whether this call is to fail (fail_call()); every function of the libraries asks, with its name.
bool injected(const char* function);
/// Makes the nth call from now (1: the next) of the function fail once, with its library's error:
/// "cudaMalloc" with cudaErrorMemoryAllocation, others with an unspecified failure.
void fail_call(const std::string& function, int nth);
/// Forgets the failures that have not happened. Returns whether there were any.
bool forget_failures();
/// How often each function was called.
std::map<std::string, std::int64_t> calls();

/// maxCTAs of NCCL's latest communicator that was made with a config; 0: it was not set.
int latest_nccl_blocks();

/// How many products were to use so many multiprocessors of a GPU; 0: all.
std::map<int, std::int64_t> products_by_multiprocessors();

/// Keeps an error, if it is one, for cudaGetLastError(), and returns it. For functions of CUDA's
/// runtime.
cudaError_t returned(cudaError_t error);

/// The number of GPUs is AXONN_EMULATED_GPUS (8 by default), each with AXONN_EMULATED_BYTES of
/// memory (4 GiB). Their name is "Emulated GPU", which device = "auto" leaves alone, or
/// AXONN_EMULATED_NAME.
int device_count();

/// The calling thread's device.
int current_device();
/// The device of a stream.
int device_of(cudaStream_t stream);

/// The threads of a block, and the bytes of shared memory that its launch gives it.
struct BlockOf {
  BlockOf(dim3 all, std::size_t bytes = 0) : threads(all), shared_bytes(bytes) {}
  BlockOf(int count) : BlockOf(dim3(static_cast<unsigned>(count))) {}
  dim3 threads;
  std::size_t shared_bytes;
};
/// Runs `thread` once for each thread of each block of the grid, which it finds in threadIdx and
/// blockIdx. Called by work that runs. Blocks run one after the other, in random order; the threads
/// of a block are fibers, and after each barrier or exchange a random one continues.
void run_kernel(const std::string& name, dim3 blocks, const BlockOf& block,
                const std::function<void()>& thread);

// ThreadSanitizer's view, without effect in other builds.

/// A thread of ThreadSanitizer; it begins after everything that its creator has done.
class Context {
 public:
  Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();
  /// Makes the calling host thread continue as this one, without ordering them.
  void enter() const;
  /// The one that the calling host thread runs as.
  static void* current();
  static void enter(void* context);

 private:
  void* fiber_ = nullptr;
};

/// While one lives, ThreadSanitizer sees nothing of the calling thread. For loops that work on what
/// was reported: it intercepts functions such as memcpy in sources without it, too.
struct Unseen {
  Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
  ~Unseen();
};

/// What is done before release(x) in one thread happens before what follows acquire(x) in another.
void release(const void* x);
void acquire(const void* x);

}  // namespace emulated_gpu
