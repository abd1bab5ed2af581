#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace axonn {

/// The position of a run in the training data of one stage.
struct StagePosition {
  std::string name = {};          ///< "" in a run without stages
  std::int64_t samples_done = 0;  ///< of the stage's order: the number of the next sample
  std::int64_t seq_len = 0;
  std::string fingerprint = {};  ///< of the corpus; "": unknown
  /// The hashes of the documents that the stage leaves out (ForgottenDocument), sorted.
  std::vector<std::string> forgotten = {};
};

/// The position of a run in its training data, and what fixes the data and the order of samples.
struct DataPosition {
  /// Sequences of training.seq_len that the run has consumed, in all stages.
  std::int64_t consumed = 0;
  std::int64_t seed = 0;
  bool shuffle = true;
  std::vector<StagePosition> stages = {};  ///< also those of an earlier run that this one lacks
};

}  // namespace axonn
