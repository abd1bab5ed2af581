#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cluster/disk.h"
#include "tests/cluster/message_fault.h"
#include "tests/cluster/scheduler.h"

namespace axonn::cluster {

/// What befalls one start of a job. Points and calls for files are counted from 1; 0: never.
struct Faults {
  enum class End {
    none,
    killed,      ///< all ranks at once, as by SIGKILL
    power_lost,  ///< on all nodes: changes of files that are not synced may be lost
  };
  End end = End::none;
  std::int64_t end_point = 0, end_file_call = 0;
  std::int64_t stop_point = 0;  ///< SIGUSR1, which asks for a checkpoint and an end
  int frozen_rank = -1;         ///< makes no step from then on
  std::int64_t frozen_point = 0;

  struct Pause {
    std::int64_t point;
    int rank;
    double seconds;
  };
  std::vector<Pause> pauses;  ///< of a slow node
  struct Jump {
    std::int64_t point;
    double seconds;  ///< of the time of day, forward or back
  };
  std::vector<Jump> jumps;
  std::vector<DiskFault> disk;
  std::vector<MessageFault> messages;
  ForgottenSyncs forgotten;
};

struct Start {
  std::vector<std::string> words;  ///< of the command axonn
  std::string folder;              ///< whose files are simulated; absolute, exists
  std::string spare;               ///< an empty folder beside it, for files of the simulation
  ScheduleOptions schedule;
  Faults faults;
  int mpi_ranks = 0;  ///< processes of MPI, each with the command; 0: one process, without MPI
};

inline constexpr int kKilled = 137;
/// Seconds of real time after which a start is ended, with the exit code 142.
inline constexpr int kRealSeconds = 120;

struct Ended {
  int code = 0;  ///< 128 + N after the signal N
  std::string output;
  Account account;
};

/// Runs the command in a process of its own. The calling process has one thread.
Ended run(const Start& start);

}  // namespace axonn::cluster
