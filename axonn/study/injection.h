#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/sequences.h"
#include "axonn/study/documents.h"

namespace axonn {

/// When each of a study's documents is learned.
struct InjectionPlan {
  std::int64_t steps = 0, warmup_steps = 0;  ///< nothing is injected in the warm-up
  std::int64_t batch = 0;                    ///< sequences of a step
  std::uint64_t seed = 1;
};

/// Of each sequence from the first after the warm-up to the last: the document that it is, or -1
/// for others. Document d is there epochs[d] times, once in each of as many equal parts of the
/// steps, at a place drawn by seed. Errors: UsageError if there is no room for all of them, which
/// says how many steps there would be.
std::vector<std::int32_t> injections(const InjectionPlan& plan,
                                     std::span<const std::int64_t> epochs);

/// What a study trains on: other sequences, and from the warm-up's end on documents among them,
/// each a sequence of its own from its first token on.
class InjectedSequences : public Sequences {
 public:
  /// epochs: of each document. Documents have at least 2 tokens and at most seq_len + 1. Errors: as
  /// injections().
  InjectedSequences(std::unique_ptr<const Sequences> others,
                    std::shared_ptr<const std::vector<StudyDocument>> documents,
                    std::span<const std::int64_t> epochs, const InjectionPlan& plan,
                    std::int64_t seq_len);

  std::int64_t count() const override;
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t n) const override;
  std::string where(std::int64_t n) const override;

 private:
  /// The document that sequence n is, or -1 and its number among the others.
  std::pair<std::int32_t, std::int64_t> place(std::int64_t n) const;

  std::unique_ptr<const Sequences> others_;
  std::shared_ptr<const std::vector<StudyDocument>> documents_;
  std::int64_t first_, seq_len_;
  bool packed_;                         // others say where their documents begin
  std::vector<std::int32_t> injected_;  // from first_ on
  std::vector<std::int64_t> earlier_;   // others before each of these
};

}  // namespace axonn
