#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "axonn/train/session.h"

namespace axonn {

/// Token sequences of which each has targets: what a model is to say of them is how likely they
/// are. The same on every rank; read by several threads at once.
class ScoredSequences {
 public:
  virtual ~ScoredSequences() = default;

  virtual std::int64_t count() const = 0;

  /// Positions that sequence n is computed with: those that it has, and any that are added behind,
  /// so that there are few lengths.
  virtual std::int64_t length(std::int64_t n) const = 0;

  /// Fills in sequence n; both spans have the same number of positions, at least length(n). Ids are
  /// 0 and targets -1 where nothing is written.
  virtual void read(std::int64_t n, std::span<std::int32_t> ids,
                    std::span<std::int32_t> targets) const = 0;
};

/// What a model makes of a sequence's targets.
struct SequenceScore {
  double nats = 0;  ///< the sum of their losses
  std::int64_t targets = 0;
  std::int64_t greedy = 0;  ///< those than which no token is likelier

  bool operator==(const SequenceScore&) const = default;
};

struct ScoreOptions {
  std::int64_t batch = 1;  ///< sequences that a (z, data) coordinate computes at a time
  /// Called on rank 0 with the sequences that are through, about as many on every rank.
  std::function<void(std::int64_t done)> report = {};
};

/// The score of every sequence, the same on every rank of the session. Each (z, data) coordinate
/// computes batches of its own, a run of `batch` sequences each; losses of a sequence are added in
/// f64 in the order of its positions, whatever the grid and the batch.
///
/// Collective over the session's ranks. Communication besides the forward passes': 24 bytes a
/// sequence, summed over all ranks. Errors: Error if a loss is NaN or infinite.
std::vector<SequenceScore> score(Session& session, const ScoredSequences& sequences,
                                 const ScoreOptions& options);

}  // namespace axonn
