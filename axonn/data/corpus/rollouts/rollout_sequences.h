#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/data/corpus/rollouts/rollout_lines.h"
#include "axonn/data/corpus/sequences.h"

namespace axonn {

/// How the answers of a generation become steps.
struct GenerationSteps {
  std::int64_t answers = 0;     ///< of a step
  std::int64_t parts = 1;       ///< steps into which a generation is divided
  std::int64_t iterations = 1;  ///< times that these are done, one after the other
  /// Of answers that the run writes: the file has those of the current generation alone. 0: of
  /// recorded ones.
  std::int64_t generations = 0;
  /// Tokens of answers that do not count (Rollout::counts) are no targets.
  bool only_counting = false;

  std::int64_t steps() const { return parts * iterations; }
  std::int64_t of_generation() const { return parts * answers; }
  /// The generation of step n, and the first of its answers in that step.
  std::int64_t generation(std::int64_t n) const { return n / steps(); }
  std::int64_t first(std::int64_t n) const { return n % parts * answers; }
};

/// A sequence for each answer to a prompt: n / answers is its step, and own_number() that of the
/// answer among all of the file, which begins again at its end. Steps are whole: a file's answers
/// beyond its last generation are left out.
class RolloutSequences : public Sequences {
 public:
  /// Of recorded answers: throws UsageError, with the answer and the remedy, for one that is longer
  /// than seq_len, and if the file has less than a generation.
  RolloutSequences(std::shared_ptr<const RolloutFile> file, std::int64_t seq_len,
                   const GenerationSteps& steps);

  std::int64_t count() const override;
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t n) const override;
  std::int64_t own_number(std::int64_t n) const override;
  std::string where(std::int64_t n) const override;
  std::vector<std::string> notes() const override;

  const GenerationSteps& steps() const { return steps_; }
  /// The number of the first answer of generation g.
  std::int64_t first_of(std::int64_t g) const;

 private:
  std::int64_t generations() const;

  std::shared_ptr<const RolloutFile> file_;
  std::int64_t seq_len_;
  GenerationSteps steps_;
};

}  // namespace axonn
