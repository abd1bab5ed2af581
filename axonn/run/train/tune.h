#pragma once

#include <functional>
#include <string>

#include "axonn/foundation/base/log.h"
#include "axonn/run/records/matmul_choices.h"

namespace axonn {

class Training;

struct TuneOptions {
  std::string cache = {};      ///< file of MatmulCache; "": none
  bool again = false;          ///< times every product, even if the cache knows it
  MatmulChoices earlier = {};  ///< of the resumed run: they override the cache's
  /// Called on rank 0 with one line at a time: how many were timed, what was skipped.
  std::function<void(const std::string& line)> report = {};
  ProgressTarget progress = {};  ///< shows on rank 0 how far timing is
};

/// Chooses how each matrix product of this run's step is computed, and makes the backend
/// compute it so from now on. Finds the products by running up to two micro-batches forward and
/// backward. Ways that neither the resumed run nor the cache knows are timed on all ranks at once,
/// since ranks share a machine's memory in a step too. Rank 0 decides for all. Collective.
/// Parameters must be set; they do not change.
MatmulChoices tune(Training& training, const TuneOptions& options);

}  // namespace axonn
