#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "axonn/train/loaded_model.h"

namespace axonn {

/// Token sequences with targets, whose likelihood a model is to score. The same on every rank.
/// Several threads may read at once.
class ScoredSequences {
 public:
  virtual ~ScoredSequences() = default;

  virtual std::int64_t count() const = 0;

  /// Number of positions that sequence n is computed with. It may include padding at the end, so
  /// that products have few different shapes.
  virtual std::int64_t length(std::int64_t n) const = 0;

  /// Writes sequence n. Both spans have the same length, at least length(n), and are filled with 0
  /// (ids) and -1 (targets, meaning no target) before the call.
  virtual void read(std::int64_t n, std::span<std::int32_t> ids,
                    std::span<std::int32_t> targets) const = 0;
};

/// The score of one sequence.
struct SequenceScore {
  double nats = 0;  ///< sum of the losses of its targets
  std::int64_t targets = 0;
  std::int64_t greedy = 0;  ///< targets that are the likeliest token

  bool operator==(const SequenceScore&) const = default;
};

struct ScoreOptions {
  std::int64_t batch = 1;  ///< sequences that a (z, data) coordinate computes at a time
  /// Called on rank 0 with the number of sequences that are done.
  std::function<void(std::int64_t done)> report = {};
};

/// Returns the score of every sequence, the same on every rank of the model. Each (z, data)
/// coordinate computes other batches of `batch` consecutive sequences. The losses of a sequence are
/// added in f64 in the order of its positions, whatever the grid and the batch.
///
/// Collective over the model's ranks. Communication in addition to the forward passes: an
/// all-reduce of 24 bytes per sequence over all ranks. Throws Error if a loss is NaN or infinite.
std::vector<SequenceScore> score(LoadedModel& model, const ScoredSequences& sequences,
                                 const ScoreOptions& options);

}  // namespace axonn
