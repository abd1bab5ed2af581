#pragma once

#include <functional>
#include <string>

#include "axonn/train/matmul_choices.h"
#include "axonn/train/session.h"

namespace axonn {

struct TuneOptions {
  std::string cache = {};      ///< file of MatmulCache; "": none
  bool again = false;          ///< times everything, whatever the cache holds
  MatmulChoices earlier = {};  ///< of the run that is resumed: they come before the cache's
  /// Told on rank 0, a line each: what is timed, what was passed over.
  std::function<void(const std::string& line)> report = {};
};

/// Chooses how the products of this session's step are computed, and has them computed so from now
/// on. They are those of a micro-batch that is run once for it, forward and backward; ways that
/// nobody knows yet are timed, on all ranks at once, since they share a machine's memory in a step
/// too. Rank 0 decides for all. Collective; parameters are set and do not change.
MatmulChoices tune(Session& session, const TuneOptions& options);

}  // namespace axonn
