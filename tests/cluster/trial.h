#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace axonn::cluster {

/// What became of a seed.
struct Trial {
  std::string fault;               ///< which promise was broken; "": none
  std::vector<std::string> story;  ///< the job, its starts and their faults, in lines
  std::uint64_t schedule = 0;      ///< a hash of all that the starts did
  int starts = 0, killed = 0, power_lost = 0, frozen = 0, stopped = 0, disk_faults = 0,
      nodes_lost = 0, damaged = 0, moved = 0, usage_errors = 0;
  int late = 0, altered = 0;  ///< starts with late messages; with one that was cut, torn or lost
};

/// A fault of the simulation, or of a job's configuration, which trials must find.
enum class Planted {
  none,
  forgotten_file_syncs,
  forgotten_folder_syncs,
  lost_wakes,
  unchecked_messages
};
std::optional<Planted> planted_of(const std::string& name);

struct TrialOptions {
  Planted planted = Planted::none;
  bool mpi = false;  ///< ranks are processes of a simulated MPI, not threads
};

/// Draws a job and its faults, runs it until it ends, and compares it with an undisturbed run.
/// `folder` is replaced.
Trial run_trial(std::uint64_t seed, const std::string& folder, const TrialOptions& options);

}  // namespace axonn::cluster
