#pragma once

#include <string>
#include <vector>

#include "axonn/io/checkpoint.h"
#include "axonn/train/session.h"

namespace axonn {

/// What a run goes on from.
struct Resumed {
  CheckpointReader reader;
  LoadCost cost;
  std::vector<std::string> warnings;  ///< a line for each newer checkpoint that was passed over
};

/// Loads everything from the checkpoint at path, a folder DIR/step-N, which must be good; or, where
/// path is DIR, from the newest one there that is: damage that shows only when its data are read
/// has the one before it taken, too. Collective over the session's world.
/// Errors: UsageError, the same on all ranks, of the checkpoint that was tried first.
Resumed resume(Session& session, const std::string& path);

}  // namespace axonn
