#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/data/storage/checkpoint/local_saver.h"
#include "axonn/run/config/config.h"

namespace axonn {

/// Bytes of local checkpoints that a rank accounts for, if its shard has so many.
struct LocalBytes {
  std::int64_t stored = 0;  ///< on its node: two shards, and two copies of another node's
  std::int64_t sent = 0;    ///< with each, to another node
  std::int64_t memory = 0;  ///< of the host: the snapshot, and what is stored below /dev/shm
};
/// All 0 without local checkpoints. If all ranks are on one node, half is stored and nothing sent.
LocalBytes local_bytes(const Config& config, std::int64_t shard);

/// The local checkpoints of a training run (checkpoint.local_every), on one rank. All ranks make
/// the same calls, all of which are collective. Without local_every they do nothing.
///
/// output.dir/local.json names the run whose local checkpoints continue it. A start that goes on
/// with anything else takes a new name, so that those of another course are never taken.
class LocalState {
 public:
  LocalState(const Config& config, Communicator& world);

  /// This rank's part of the newest local checkpoint behind step `after`, if the run may go on with
  /// one: checkpoint.resume is auto. Lines of what is not whole, for warnings, are added to `told`.
  std::optional<CheckpointReader> find(std::int64_t after, std::vector<std::string>& told);

  /// Before the first step. `bytes`: of this rank's shard. Throws Error if the nodes lack room for
  /// two. Returns a line about the local checkpoints; "" without.
  std::string start(std::int64_t bytes);

  /// Whether one is written after this step.
  bool is_due(std::int64_t steps_done) const;
  /// Waits for the one that was begun, if any, and begins one. Return why it failed; "" if not.
  std::string finish();
  std::string begin(std::int64_t step, std::span<const StateBlock> blocks, const StateTexts& texts,
                    const std::function<void()>& compare);

  /// At the end of a run that has its last checkpoint. Returns a line about the cost; "" without.
  std::string end();

  /// Whether the run goes on with a local checkpoint.
  bool resumed() const { return resumed_ >= 0; }

 private:
  const Config& config_;
  Communicator& world_;
  LocalStore store_;     // without a run until it is known
  std::string earlier_;  // the run that output.dir names
  std::int64_t resumed_ = -1;
  std::unique_ptr<LocalSaver> saver_;
};

}  // namespace axonn
