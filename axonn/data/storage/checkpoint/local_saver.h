#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "axonn/data/storage/checkpoint/local_shard.h"
#include "axonn/data/storage/checkpoint/state_snapshot.h"
#include "axonn/data/storage/checkpoint/watched_wait.h"

namespace axonn {

/// What this rank's local checkpoints have cost so far.
struct LocalCost {
  std::int64_t written = 0;  ///< number
  std::int64_t bytes = 0;    ///< of the last shard, without its copy
  double write_seconds = 0;  ///< in the background: writing, sending and receiving
  double stall_seconds = 0;  ///< in begin() and finish()
};

/// Writes local checkpoints. Every rank has one, and all ranks make the same calls: begin() after a
/// step, finish() before the next begin() and at the end of the run.
///
/// A rank's thread writes its shard on its node, and sends it to a rank on another one, which
/// writes the copy. The last checkpoint that is whole stays until the next one is whole on all
/// ranks, so at most two are there.
class LocalSaver {
 public:
  /// Collective; `world` must outlive it. `kept`: the step of the local checkpoint that the run was
  /// resumed from, which stays until the first one; -1: none.
  LocalSaver(Communicator& world, LocalStore store, std::int64_t kept);
  /// Joins the thread.
  ~LocalSaver() = default;

  /// Whether copies go to another node; false if all ranks are on one.
  bool has_copies() const { return nodes_.count() > 1; }
  int node_count() const { return nodes_.count(); }

  /// Throws AgreedError unless the folder of each node has room for the shards and copies that will
  /// be there at once, if this rank's shard has so many bytes. `replaced`: bytes on this node that
  /// go when the first local checkpoint is whole. Collective.
  void check_room(std::int64_t bytes, std::int64_t replaced = 0) const;

  /// Takes a snapshot of all slices, owned or not, and starts to write it. Collective; only rank
  /// 0's texts are used. Throws AgreedError if a rank cannot take it, or if `is_whole`, which is
  /// called then, throws.
  void begin(std::int64_t step, std::span<const StateBlock> blocks, const StateTexts& texts,
             const IsWhole& is_whole = {});
  bool pending() const { return pending_; }
  /// Waits for all ranks' shards and copies. Collective. Throws AgreedError if one could not be
  /// written; the checkpoint before stays then, and another begin() may follow.
  void finish();

  const LocalCost& cost() const { return cost_; }

 private:
  void write();
  void remove_older() const;
  LocalShard shard_of(int rank) const { return {step_, rank, start_}; }
  bool leads_view() const { return views_.ranks_on(views_.of(rank_)).front() == rank_; }

  Communicator& world_;
  LocalStore store_;
  int rank_;
  Hosts nodes_, views_;
  std::unique_ptr<Communicator> group_;  // of the thread
  std::string start_;                    // 16 random hex digits
  std::vector<int> clients_;             // whose copies this rank writes
  std::int64_t step_ = -1, kept_;
  bool pending_ = false;
  StateSnapshot snapshot_;
  CheckpointIndex index_;  // of the shard
  StateTexts texts_;
  LocalCost cost_;
  std::string fault_;    // of the thread; read after it is joined
  WatchedWait waits_;    // of the thread
  std::jthread writer_;  // last: it uses the other members
};

}  // namespace axonn
