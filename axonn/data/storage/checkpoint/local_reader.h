#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/data/storage/checkpoint/local_shard.h"

namespace axonn {

/// This rank's shard of the newest local checkpoint of the run after step `after` that is whole: an
/// intact shard of each rank, of the same start, lies on some node. A shard that is not on its
/// rank's node is sent there. The reader has this rank's values and rank 0's texts. Nothing if no
/// local checkpoint is whole.
///
/// Adds a line for each newer one that is not, and for each damaged shard, to `told` on all ranks.
/// Collective. Reads each shard of the checkpoint and its copy once to verify them.
std::optional<CheckpointReader> newest_local(Communicator& world, const LocalStore& store,
                                             std::int64_t after, std::vector<std::string>& told);

}  // namespace axonn
