#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/sequences.h"
#include "axonn/study/documents.h"

namespace axonn {

/// The training steps into which a study's documents are injected.
struct InjectionPlan {
  std::int64_t steps = 0, warmup_steps = 0;  ///< nothing is injected in the warm-up
  std::int64_t batch = 0;                    ///< sequences of a step
  std::uint64_t seed = 1;
};

/// Plans the sequences after the warm-up: for each, the document injected there, or -1 for other
/// text. Document d occurs epochs[d] times: once in each of epochs[d] equal parts of the steps, at
/// about a place drawn with the seed, since the injected sequences are spaced evenly. Throws
/// UsageError if they do not fit; the message says how many steps are needed.
std::vector<std::int32_t> injections(const InjectionPlan& plan,
                                     std::span<const std::int64_t> epochs);

/// The training sequences of a study: other sequences and, after the warm-up, documents among
/// them. A document is a sequence of its own that starts with its first token.
class InjectedSequences : public Sequences {
 public:
  /// epochs: one number per document. Documents must have 2 to seq_len + 1 tokens. Throws as
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
  /// The document that sequence n holds, or -1 and the sequence's index among the others.
  std::pair<std::int32_t, std::int64_t> place(std::int64_t n) const;

  std::unique_ptr<const Sequences> others_;
  std::shared_ptr<const std::vector<StudyDocument>> documents_;
  std::int64_t first_, seq_len_;
  bool packed_;                         // the other sequences hold positions and document starts
  std::vector<std::int32_t> injected_;  // from first_ on
  std::vector<std::int64_t> earlier_;   // number of other sequences before each of these
};

}  // namespace axonn
