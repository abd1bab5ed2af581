#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/data/storage/checkpoint/local_shard.h"

namespace axonn {

/// Which local checkpoints of a run are looked for.
struct LocalSearch {
  std::int64_t after = 0;          ///< of later steps,
  std::int64_t until = INT64_MAX;  ///< up to this one
  int other_ranks = 0;             ///< ranks of the other grid that wrote them; 0: this grid did
};

/// The newest local checkpoint of the run that is whole: an intact shard of each rank, of the same
/// start, lies on some node. Nothing if none is. The reader has rank 0's texts, and
///
///   of this grid      this rank's shard. If it is not on the rank's node, it is sent there.
///   of another grid   all shards, where they are: reading values is collective.
///
/// Adds a line for each newer one that is not whole, and for each damaged shard, to `told` on all
/// ranks. Collective. Reads each shard of the checkpoint and its copy once to verify them.
std::optional<CheckpointReader> newest_local(Communicator& world, const LocalStore& store,
                                             const LocalSearch& search,
                                             std::vector<std::string>& told);

}  // namespace axonn
