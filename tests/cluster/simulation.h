#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>

#include <dlfcn.h>

#include "tests/cluster/disk.h"
#include "tests/cluster/message_fault.h"
#include "tests/cluster/scheduler.h"

namespace axonn::cluster {

/// What interposed.cpp hands the calls of this process to.
struct Simulation {
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Disk> disk;
  std::unique_ptr<Draws> random;   ///< the values of std::random_device
  std::int64_t wall_clock_ns = 0;  ///< time of day when the virtual time is 0
  /// Called before each call for a file, with the bytes that it writes; may end the process.
  /// Returns how many are written before the process ends; -1: it goes on.
  std::function<std::int64_t(std::int64_t bytes)> at_file_call;
  std::function<void()> end;  ///< ends the process
  struct Mpi {
    int ranks = 0;  ///< of the job; 0: there is no MPI
    /// Called for each message, of the transport's collectives or of its notes: sets what befalls
    /// it, and returns for how many nanoseconds it is on its way.
    std::function<std::int64_t(int from, bool collective, MessageFault::Kind& what)> at_message;
  } mpi;
};

/// Of this process. Threads that the scheduler does not know call the C library itself.
Simulation& simulation();

/// The scheduler of the calling thread; null on other threads, and while the simulation serves a
/// call.
Scheduler* scheduler();

/// The C library's function of this name.
template <typename F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

/// While one lives, the calls of its thread go to the C library. Leaves errno as it is.
class Serving {
 public:
  Serving() : error_(errno), before_(now()) { now() = true; }
  ~Serving() {
    now() = before_;
    errno = error_;
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;
  static bool& now();

 private:
  int error_;
  bool before_;
};

}  // namespace axonn::cluster
