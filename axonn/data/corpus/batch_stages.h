#pragma once

#include <cstdint>
#include <vector>

namespace axonn {

/// The most sequences of a batch that one of so many coordinates computes: the batch over the
/// coordinates, rounded up. Each coordinate has as many, but the last ones, which have fewer or
/// none.
constexpr std::int64_t batch_share(std::int64_t batch, std::int64_t coordinates) {
  return batch / coordinates + (batch % coordinates != 0 ? 1 : 0);
}

/// A part of a run with a batch of its own.
struct BatchStage {
  std::int64_t batch = 0;  ///< sequences of a step
  std::int64_t until = 0;  ///< the next stage begins when the run has consumed this many sequences
};

/// Whether some batch is filled up with padding: is no multiple of `unit`, the sequences of a
/// micro-batch on all coordinates.
bool any_padded(const std::vector<BatchStage>& stages, std::int64_t unit);

/// The batch of each step of a run, and the sequences that the run has consumed before it. The
/// sequences consumed decide the batch, so that a run that resumes with other stages continues
/// with the batch of its coordinate.
class BatchStages {
 public:
  /// `until` must rise from stage to stage; that of the last stage, which has no end, is ignored.
  /// Throws Error if there is no stage or a batch is not positive.
  explicit BatchStages(std::vector<BatchStage> stages);

  /// Makes step `step` begin when `consumed` sequences are consumed. Without this call step 0
  /// begins with none consumed.
  void begin_at(std::int64_t step, std::int64_t consumed);

  /// The sequences of step n; n must not come before begin_at()'s.
  std::int64_t batch_of(std::int64_t n) const { return part_of(n).batch; }
  /// The sequences consumed before step n. Steps before begin_at()'s count as that one.
  std::int64_t consumed_before(std::int64_t n) const;

 private:
  /// Steps of one batch; a stage may have none.
  struct Part {
    std::int64_t step, consumed, batch;
  };
  const Part& part_of(std::int64_t n) const;

  std::vector<BatchStage> stages_;
  std::vector<Part> parts_;  // by step
};

}  // namespace axonn
