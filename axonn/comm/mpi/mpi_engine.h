#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "axonn/comm/abort_flag.h"
#include "axonn/comm/admission.h"
#include "axonn/comm/mpi/mpi.h"
#include "axonn/comm/mpi/mpi_algorithms.h"
#include "axonn/comm/mpi/mpi_control.h"

namespace axonn {

class MpiEngine;

/// One collective of this rank, from its start to its end.
struct MpiTask final : Work::State {
  explicit MpiTask(MpiEngine& of) : engine(of) {}
  void wait() override;
  bool done() override;

  MpiEngine& engine;
  std::shared_ptr<const MpiGroup> group;
  Call call;
  MpiChannel channel;
  std::int64_t sequence = 0;
  std::unique_ptr<MpiAlgorithm> algorithm;  // used by the progress thread only
  bool finished = false;                    // guarded by the engine's mutex
};

/// This process's progress thread, which makes all MPI calls, and its queue.
///
/// The end of a world: abort(), or a failed collective, sets the flag. The progress thread then
/// tells all other ranks, listens for a moment whether other ranks failed too, stops using buffers,
/// releases the waiting thread of this rank (Aborted), reports the reason if this is the lowest
/// rank that failed, and calls MPI_Abort. A rank that is told of the end releases its waiting
/// thread and waits to be killed.
class MpiEngine {
 public:
  /// Initialises MPI.
  explicit MpiEngine(const MpiOptions& options);
  /// Finalises MPI. The bodies of all ranks must have returned.
  ~MpiEngine();
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::shared_ptr<AbortFlag>& flag() const { return flag_; }
  /// Maximum number of groups, limited by MPI's message tags.
  int max_groups() const { return max_groups_; }

  std::shared_ptr<MpiTask> start(std::shared_ptr<const MpiGroup> group, Call call,
                                 std::int64_t sequence);
  /// Throws Aborted if the world ends.
  void wait(MpiTask& task);
  bool done(const MpiTask& task);

  /// CPU time of the progress thread.
  double processor_seconds();

  /// Records that this rank's body has returned.
  void note_returned();
  /// Ends the world. The job's exit code will be `code`.
  void abort(const std::string& reason, int code) noexcept;
  /// Waits for the end of the job, after abort() or Aborted.
  [[noreturn]] void await_end();

 private:
  using Lock = std::unique_lock<std::mutex>;

  void run();
  void initialise();
  void loop();
  bool take_requests(double sleep_seconds);
  bool advance_tasks();
  void begin_waiting();
  void begin(const std::shared_ptr<MpiTask>& task);
  void delay();
  void end_world();
  void report_end() const;
  void release_waiters();
  /// Probes the task's group. Aborts the world if a member has returned or the timeout has passed;
  /// does not throw.
  void watch(Lock& lock, const MpiTask& task, double waited_seconds);

  const MpiOptions options_;
  int rank_ = 0, size_ = 1, max_groups_ = 0;
  std::shared_ptr<AbortFlag> flag_;

  std::mutex mutex_;
  std::condition_variable for_progress_, for_callers_;
  bool initialised_ = false, stopping_ = false, quiet_ = false, returned_ = false;
  int exit_code_ = 1;
  std::vector<std::shared_ptr<MpiTask>> requests_;
  std::vector<std::shared_ptr<MpiProbe>> probes_;

  // Used by the progress thread only.
  MpiContext context_;
  MPI_Comm control_comm_ = MPI_COMM_NULL;
  std::optional<MpiControl> control_;
  std::list<std::shared_ptr<MpiTask>> waiting_, active_;  // waiting_ in call order
  Admission admission_;
  std::uint64_t delays_ = 0;
  int lowest_that_failed_ = -1;  // among the other ranks; -1: none

  std::thread thread_;
};

}  // namespace axonn
