#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "axonn/foundation/grid/grid_shape.h"

#include "tests/cluster/draws.h"
#include "tests/cluster/start.h"

namespace axonn::cluster {

/// A training that a seed draws, and how it is spread over nodes.
struct Job {
  std::vector<std::string> words;  ///< of axonn train, but for grids and folders
  bool mpi = false;                ///< its ranks are processes of MPI, not threads
  bool checks_messages = false;
  int steps = 0;
  int every = 0, local_every = 0;  ///< steps between checkpoints; 0: none
  struct Layout {
    GridShape grid;
    int node_ranks = 1;  ///< neighbouring ranks that are a node
    int nodes() const { return grid.ranks() / node_ranks; }
  };
  Layout layout;
  std::optional<Layout> other;  ///< on which it goes on after the first failure

  /// The words of a start whose files are below this folder.
  std::vector<std::string> command(const Layout& on, const std::string& folder) const;
};

struct JobOptions {
  bool mpi = false;
  bool forgets_checks = false;  ///< a planted fault: messages that should have checksums have none
};
Job draw_job(Draws& draws, const JobOptions& options);

/// How far a start without faults comes.
struct Extent {
  std::int64_t points = 0, file_calls = 0, messages = 0;
};

/// Faults of one start, at moments of that extent. `folder` has the shared and the local files.
Faults draw_faults(Draws& draws, const Job& job, const Job::Layout& on, const Extent& extent,
                   const std::string& folder);
ScheduleOptions draw_schedule(Draws& draws);

inline constexpr double kTimeoutSeconds = 2;  // parallelism.timeout_seconds of all jobs, virtual

}  // namespace axonn::cluster
