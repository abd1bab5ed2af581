#pragma once

#include <cstdint>

#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/recording.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

struct DryRolloutOptions {
  /// Of each prompt; 0: as many as training.seq_len has room for before rl.max_tokens.
  std::int64_t prompt_tokens = 0;
  std::int64_t answer_tokens = 2;  ///< that are written: memory does not depend on more than 2
  bool recording = false;          ///< record the operations
};

/// Memory and recording of one rank while a run writes answers.
struct DryRollouts {
  /// The peak of writing answers after a step: that of the rank's arena in a run with such prompts,
  /// to the byte, without CUDA graphs.
  ArenaStats memory;
  std::int64_t at_once = 0;  ///< answers that all ranks write at a time, at most
  Recording recording;       ///< of as many answers
};

/// As dry_step() of the answers of [rl]. Takes milliseconds.
DryRollouts dry_rollouts(const PreparedRun& run, int rank, const DryRolloutOptions& options = {});

}  // namespace axonn
