#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/compute/tensor/arena.h"
#include "axonn/foundation/base/log.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/local_state.h"
#include "axonn/run/train/samples.h"

namespace axonn {

/// The memory that ranks may take.
struct MemoryLimits {
  std::string device = {};        ///< "this machine", "a GPU (NVIDIA H100)"
  std::int64_t device_bytes = 0;  ///< for arenas; 0: unknown, which is enough
  int ranks_on_device = 1;        ///< that share device_bytes
  std::int64_t free_bytes = 0;    ///< of device_bytes, now; 0: unknown
  std::int64_t host_bytes = 0;    ///< of the machine, for copies and data; 0: unknown
  int ranks_on_host = 1;
  bool one = true;              ///< the device's memory is the host's
  bool counts_data = true;      ///< whether tables of data are part of what the host holds
  double node_bytes_per_s = 0;  ///< a rank's share of its node's links to others; 0: unknown
};

/// The limits of this machine for the ranks of config that run on it: all, or under a launcher
/// those that it has started here.
MemoryLimits limits_here(const Config& config);

/// The bytes that a rank's arena may take within the limits, if the copy of a checkpoint has its
/// share of them: data do not count, whose tables are known when they are read.
std::int64_t arena_limit(const PreparedRun& run, const MemoryLimits& limits);

struct DryRunOptions {
  TextSamplerMaker make_text_sampler = {};
  MemoryLimits limits = {};
  ProgressTarget progress = {};
};

/// The result of `axonn train --dry-run`.
struct DryRun {
  std::int64_t parameters = 0;        ///< of the whole model, unpadded
  std::int64_t trained = 0;           ///< number of trained parameters, including adapters
  std::string rank;                   ///< "rank 5 (x 1, y 0, z 1, data 0)"
  ArenaStats memory;                  ///< of that rank: see DryStep
  std::int64_t sample_bytes = 0;      ///< of that rank while samples are written; 0: there are none
  std::int64_t rollout_bytes = 0;     ///< of that rank while answers of [rl] are written; 0: none
  std::int64_t rollouts_at_once = 0;  ///< answers that all ranks write at a time
  std::int64_t snapshot_bytes = 0;    ///< host memory of that rank for the copy of a checkpoint
  std::int64_t offloaded_bytes = 0;   ///< of that rank in a file of offload.dir, that copy included
  LocalBytes local;                   ///< of that rank's local checkpoints
  double local_seconds = 0;           ///< least time for sending one to another node; 0: unknown
  std::int64_t data_bytes = 0;        ///< host memory of a rank for its data
  std::int64_t share = 0;             ///< parameters that this rank reads from a model's files
  std::int64_t checkpoint_bytes = 0;  ///< size of one checkpoint
  std::int64_t disk_bytes = 0;        ///< most that the run's checkpoints need at once
  std::int64_t disk_free = 0;
  std::string needs;                     ///< memory of all ranks against the limits, or ""
  std::string weights;                   ///< path of the files that were compared with the model
  std::int64_t steps = 0;                ///< of the whole run; 0: unknown, without its data
  double epochs = 0;                     ///< over the whole run, if it has no stages
  std::vector<std::string> stages = {};  ///< a line for each
  std::string resumes_from;              ///< path of a checkpoint, or ""
  std::int64_t steps_done = 0;           ///< of that checkpoint
  std::string sample;                    ///< which sample is the rank's first, and where it is from
  std::string input, target;  ///< that sample as the loss sees it: text, or token numbers
  std::vector<std::string> warnings;
  std::string fault;  ///< why the run would fail here and now, a line for each reason, or ""

  /// Whether the checkpoint has all steps.
  bool nothing_to_do() const { return !resumes_from.empty() && steps > 0 && steps_done >= steps; }
};

/// Checks everything that a run needs, for one rank of its grid, without training, without other
/// ranks, and without writing anything (except the cache of tokenised text, if it exists): memory
/// against the limits, disk, weights and checkpoint against the model, data. Files and data that
/// the run would refuse are faults of the result, which still has all that is known without them.
/// Throws UsageError if there is no such rank, or if the grid cannot cut the model.
DryRun dry_run(const PreparedRun& run, int rank, const DryRunOptions& options = {});

/// Returns the result as lines of text.
std::string to_text(const DryRun& result, const PreparedRun& run);

/// Throws Error if the memory of the ranks that share this machine or a GPU of it cannot hold their
/// arenas in a step: what dry_step() counts of rank 0, for each. Does nothing if no dry step of the
/// model can be done, or if another program registered it.
void refuse_too_large(const PreparedRun& run, const MemoryLimits& limits);

}  // namespace axonn
