#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace axonn {

/// How a job is kept going.
struct SupervisorOptions {
  /// Its words. In each, {nodes} stands for the names of a start's nodes with commas, {count} for
  /// their number, {start} for the number of the start, from 1 on.
  std::vector<std::string> command;
  std::vector<std::string> nodes = {};  ///< of the allocation; empty: the command has its own
  int spares = 0, least = 0;            ///< see NodePool
  /// A shell's command with {node}, which fails on a node that cannot take part; "": there is none.
  std::string probe = {};
  double probe_seconds = 30;  ///< after which a probe has failed
  std::string run = {};       ///< the run's output.dir; "": not known
  int failures = 3;           ///< in a row without a new step, after which it gives up
  double most_wait = 60;      ///< seconds before a start after failures without a new step, at most
  /// Seconds without a new step after which a start is ended, as a launcher may hang; 0: never.
  double hang = 0;
  std::string log = {};  ///< a file that gets a line of JSON for each start; "": none
};

/// Starts the command, and again at once after each failure, until it ends with 0 (done), with
/// kUsageError, which another start would repeat, or with kStoppedEarly; or until it fails
/// `failures` times in a row without a step that no start before had reached, as the metrics of
/// `run` tell, or too few nodes are left.
///
/// After a failure every node is probed, all at the same time, and one that fails is left out of
/// further starts; so is a node that the run's own error (run_end.h) names for the second time.
/// A start that hangs gets SIGTERM, and SIGKILL if that does not end it within 30 s; it has failed.
/// `stop` sends SIGUSR1 to the command, once: launchers pass it on to ranks. `say` gets a line for
/// the user. Returns the exit code of the command, 128 + N if the signal N ended it. Throws
/// UsageError for options that do not fit, and if the command cannot be started.
int supervise(const SupervisorOptions& options, const std::atomic<bool>& stop,
              const std::function<void(const std::string&)>& say);

}  // namespace axonn
