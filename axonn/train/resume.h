#pragma once

#include <string>
#include <vector>

#include "axonn/storage/checkpoint/checkpoint.h"
#include "axonn/train/session.h"

namespace axonn {

/// The checkpoint that a run was resumed from.
struct Resumed {
  CheckpointReader reader;
  LoadCost cost;
  std::vector<std::string> warnings;  ///< one line for each newer checkpoint that was skipped
};

/// Loads everything from the checkpoint at path, a folder DIR/step-N, which must be valid. If path
/// is DIR, loads the newest valid checkpoint in it; if damage shows only while data are read, tries
/// the one before it. Collective over the session's world. Throws UsageError, the same on all
/// ranks, about the checkpoint that was tried first.
Resumed resume(Session& session, const std::string& path);

}  // namespace axonn
