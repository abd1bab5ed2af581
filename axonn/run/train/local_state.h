#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/data/storage/checkpoint/local_saver.h"
#include "axonn/foundation/grid/grid_shape.h"
#include "axonn/run/config/config.h"

namespace axonn {

/// Bytes of local checkpoints that a rank accounts for, if its shard has so many.
struct LocalBytes {
  std::int64_t shard = 0;   ///< of the rank
  std::int64_t stored = 0;  ///< on its node: two shards, and two copies of another node's
  std::int64_t sent = 0;    ///< with each, to another node
  std::int64_t memory = 0;  ///< of the host: the snapshot, and what is stored below /dev/shm
};
/// All 0 without local checkpoints. If all ranks are on one node, half is stored and nothing sent.
LocalBytes local_bytes(const Config& config, std::int64_t shard);

/// The local checkpoints of a training run (checkpoint.local_every), on one rank. All ranks make
/// the same calls, all of which are collective. Without local_every they do nothing.
///
/// output.dir/local.json names the run whose local checkpoints continue it, and its grid. A start
/// that goes on with anything else, or on another grid, takes a new name, so that those of another
/// course are never taken. That of another grid stays, with the step from which this one went on,
/// until there is a local checkpoint of this grid.
class LocalState {
 public:
  LocalState(const Config& config, Communicator& world);

  /// The newest local checkpoint behind step `after`, as newest_local() finds it, if the run may go
  /// on with one: checkpoint.resume is auto. Lines of what is not whole, for warnings, are added to
  /// `told`.
  std::optional<CheckpointReader> find(std::int64_t after, std::vector<std::string>& told);

  /// Before the first step. `bytes`: of this rank's shard. Throws Error if the nodes lack room for
  /// two. Returns a line about the local checkpoints; "" without.
  std::string start(std::int64_t bytes);

  /// Whether one is written after this step.
  bool is_due(std::int64_t steps_done) const;
  /// Waits for the one that was begun, if any, and begins one. Return why it failed; "" if not.
  std::string finish();
  std::string begin(std::int64_t step, std::span<const StateBlock> blocks, const StateTexts& texts,
                    const IsWhole& is_whole);

  /// At the end of a run that has its last checkpoint. Returns a line about the cost; "" without.
  std::string end();

  /// Whether the run goes on with a local checkpoint.
  bool resumed() const { return resumed_ >= 0; }

 private:
  /// A run on one grid, as local.json names it; it has no name if there is none.
  struct OnGrid {
    std::string run, grid;
    std::int64_t until = INT64_MAX;  // the step from which it was continued on another grid
  };
  std::vector<OnGrid> named_in_file() const;
  std::optional<CheckpointReader> find(const OnGrid& one, std::int64_t after,
                                       std::vector<std::string>& told);
  bool same_grid() const { return from_.grid == with_factors(config_.parallelism.grid()); }
  LocalStore store_of(const std::string& run) const { return {store_.folder, store_.node, run}; }

  const Config& config_;
  Communicator& world_;
  LocalStore store_;           // without a run until it is known
  std::vector<OnGrid> named_;  // in output.dir: the newest one first
  OnGrid from_;                // that of the local checkpoint with which the run goes on
  std::int64_t resumed_ = -1;
  std::string until_whole_;  // the run of another grid that stays until then
  std::unique_ptr<LocalSaver> saver_;
};

}  // namespace axonn
