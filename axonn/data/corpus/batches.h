#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "axonn/data/corpus/batch_stages.h"
#include "axonn/data/corpus/sequences.h"

namespace axonn {

/// Consecutive sequences in host memory, row after row: R = sequences · seq_len. The last ones may
/// be padding, whose rows all have kPaddingTarget.
struct MicroBatch {
  std::int64_t first = 0;  ///< number of its first sequence among all sequences of the run
  std::int64_t sequences = 0;
  bool may_pad = false;  ///< some micro-batch of the run has sequences of padding
  Sequence rows;         ///< ids, targets and, for packed sequences, positions and starts; (R) each
  std::vector<std::int64_t> numbers = {};  ///< Sequences::own_number of each
  int further = 0;                         ///< so many tokens beyond the next one are predicted
};

/// The sequences that a (z, data) coordinate computes in one step.
struct Batch {
  std::vector<MicroBatch> micro_batches;
  std::int64_t counted = 0;  ///< targets of these micro-batches that count in the loss
  std::int64_t targets = 0;  ///< as `counted`, including those that the mask leaves out
  std::int64_t inputs = 0;   ///< inputs of these micro-batches that are not padding
  /// Of the whole step, over all coordinates: targets, including those that the mask leaves
  /// out, and inputs that are not padding; upper bounds if counts_by_reading().
  Sequences::Size whole{};
  std::int64_t end = 0;  ///< number of the sequence after the step's last; padding from there on
};

/// The sequences of a run from a step on.
struct BatchSource {
  std::string name = {};
  std::int64_t first_step = 0;
  std::shared_ptr<const Sequences> sequences;
  SequenceMask mask = {};
  /// Number of this source's sequences that fill one batch row of BatchOptions::seq_len tokens.
  std::int64_t in_one = 1;
};

struct BatchOptions {
  std::int64_t seq_len = 0;       ///< inputs of a sequence
  std::int64_t global_batch = 0;  ///< sequences of a step
  /// Batches in place of global_batch. Empty: global_batch in all steps.
  std::vector<BatchStage> stages = {};
  std::int64_t micro_batch = 0;         ///< sequences of a micro-batch
  int further = 0;                      ///< MicroBatch::further
  int coordinate = 0, coordinates = 1;  ///< this (z, data) coordinate and their number
  /// If positive: sequences from this number on have no targets, and steps() covers those before
  /// it. 0: steps have no end.
  std::int64_t end = 0;
  int ahead = 2;  ///< number of steps to read ahead; 0: none, and at() reads itself
};

/// The batches of one (z, data) coordinate. Step n has the batch_of(n) sequences from first_of(n)
/// on, and each coordinate has a run of them, so that a batch depends on the sequences, the
/// options, begin_at() and n alone. All runs have the same number of whole micro-batches, as few as
/// hold the batch; where it is smaller, the last runs end with padding or have nothing else.
///
/// A run may have several sources. Each has an order of its own, which goes on from its first step
/// until that of the next source. batch_of() and consumed_before() count sequences of
/// BatchOptions::seq_len, first_of() and done() those of the source.
///
/// A thread of its own reads the next steps' batches, so that slow storage delays a step only if
/// reading takes longer than computing.
class Batches {
 public:
  Batches(std::shared_ptr<const Sequences> sequences, SequenceMask mask,
          const BatchOptions& options);
  /// Sources rise by first step. Several cannot have an end.
  Batches(std::vector<BatchSource> sources, const BatchOptions& options);
  ~Batches();
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  /// The batch of step n; waits until it is read. Any n may follow any other, but reading ahead
  /// expects n + 1. Throws what reading it threw, such as a UsageError for an unknown token, and
  /// UsageError if no source has begun.
  std::shared_ptr<const Batch> at(std::int64_t n);

  /// Makes each source go on with the sequence that `done` states for it, from step `step` on, or
  /// from its first step if that is later. `consumed` sequences were consumed before step `step`,
  /// by which stages are chosen. Without this call step 0 begins with sequence 0.
  void begin_at(std::int64_t step, std::int64_t consumed, std::vector<std::int64_t> done);
  /// begin_at() for one source that was never begun anew.
  void begin_at(std::int64_t step, std::int64_t sequence) { begin_at(step, sequence, {sequence}); }
  std::int64_t first_step() const { return first_step_; }  ///< the step that begin_at() named
  /// The number of step n's first sequence, in the order of its source.
  std::int64_t first_of(std::int64_t n) const { return done(source_index(n), n); }
  /// The number of the first sequence of step n that this coordinate has; padding from that of the
  /// next step on.
  std::int64_t first_here(std::int64_t n) const {
    return first_of(n) + options_.coordinate * sequences_here(n);
  }
  /// The number of the next sequence of source s before step n. Throws Error if there is no source.
  std::int64_t done(std::size_t s, std::int64_t n) const;
  /// The sequences of step n, and those of all steps before it.
  std::int64_t batch_of(std::int64_t n) const { return stages_.batch_of(n); }
  std::int64_t consumed_before(std::int64_t n) const { return stages_.consumed_before(n); }

  const std::vector<BatchSource>& sources() const { return sources_; }
  /// The source of step n, or the first if none has begun.
  const BatchSource& source_of(std::int64_t n) const { return sources_[source_index(n)]; }
  const BatchOptions& options() const { return options_; }
  /// Whether only reading shows how many inputs count.
  bool counts_inputs_by_reading() const;
  /// Whether only reading shows how many targets count.
  bool counts_by_reading() const;
  /// Number of steps that cover the sequences before options.end.
  std::int64_t steps() const;

 private:
  struct Read {
    std::shared_ptr<const Batch> batch;  // null if reading failed
    std::exception_ptr error;
  };
  std::shared_ptr<const Batch> read(std::int64_t n) const;
  /// Reads sequence i, or padding if i is not less than end.
  void read_sequence(const BatchSource& source, std::int64_t i, std::int64_t end,
                     Sequence& to) const;
  /// Of the source, in step n, with padding.
  std::int64_t sequences_here(std::int64_t n) const;
  void read_ahead();
  void end_reading();
  /// The next step to read ahead, if any. Needs the lock.
  std::optional<std::int64_t> next() const;

  std::size_t source_index(std::int64_t n) const;

  std::vector<BatchSource> sources_;
  BatchOptions options_;
  BatchStages stages_;
  bool may_pad_ = false;  // some stage's batch is no multiple of micro_batch · coordinates
  std::int64_t first_step_ = 0;
  std::vector<std::int64_t> done_;  // before first_step_, of each source
  std::mutex lock_;
  std::condition_variable changed_;
  std::map<std::int64_t, Read> ready_;  // by step
  std::int64_t wanted_ = -1;            // the step that at() was last called for; -1: none
  bool ends_ = false;
  std::thread reader_;  // started by the first at()
};

}  // namespace axonn
