#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "axonn/nn/attention.h"
#include "axonn/text/generated_text.h"

namespace axonn {

/// A prompt and the tokens generated after it.
struct GeneratedSequence {
  std::size_t prompt = 0;            ///< number of the prompt
  std::vector<std::int32_t> tokens;  ///< the prompt's, then the generated ones
  std::size_t prompt_size = 0;
  std::optional<GeneratedText> text = {};
  std::string written = {};  ///< the output of `text` so far
  std::size_t begin = 0;     ///< first token that is still in the context
  std::size_t cached = 0;    ///< tokens from there on whose keys and values are cached

  std::size_t produced() const { return tokens.size() - prompt_size; }
  std::size_t in_context() const { return tokens.size() - begin; }
};

/// The slots of each (z, data) coordinate in which the keys and values of sequences are cached.
struct CacheSlots {
  std::int64_t places = 1, slots = 1;
  std::int64_t entries = 0;  ///< positions of a sequence that a slot holds
  std::int64_t window = 0;   ///< positions that attention sees; 0: all
  /// Per slot, in the order of places: the tokens whose keys and values it last held.
  std::vector<std::vector<std::int32_t>> tokens = {};

  /// Returns how many of the first tokens of `wanted` need not be computed again because slot `i`
  /// holds their keys and values; 0 if that would be wrong or would save less than half of them.
  std::size_t held(std::size_t i, const std::vector<std::int32_t>& wanted) const;
};

/// Tokens of one sequence that one pass computes: `count` from the first one that is not cached.
struct PassPart {
  GeneratedSequence* sequence;
  std::int32_t slot;
  std::int64_t count;

  /// Whether the pass reaches the sequence's end, so that its next token is drawn.
  bool last() const { return sequence->cached + count == sequence->in_context(); }
};

/// The parts that every (z, data) coordinate computes in a pass.
struct PassPlan {
  KeyValueCache::Reads reads = KeyValueCache::Reads::own_rows;
  std::vector<std::vector<PassPart>> of_place;
};

/// Decides which sequences are computed in which pass, and in which slot of which place. Plain
/// bookkeeping, the same on every rank. A place is a (z, data) coordinate.
class GenerationSchedule {
 public:
  /// `slots` must outlive it.
  GenerationSchedule(std::vector<GeneratedSequence> sequences, CacheSlots& slots);

  bool done() const { return running_ == 0 && next_ == sequences_.size(); }
  /// Gives free slots to waiting sequences and returns the next pass: the prompts of which nothing
  /// is cached yet, if there are any, otherwise the new tokens of all other sequences. Throws if
  /// done().
  PassPlan next();
  /// The sequence in a slot of a place, which must not be free.
  GeneratedSequence& at(std::int64_t place, std::int64_t slot) const;
  /// Ends the sequence in this slot and frees the slot.
  void finish(std::int64_t place, std::int64_t slot);

  const std::vector<GeneratedSequence>& sequences() const { return sequences_; }

 private:
  void admit();
  std::int64_t most_new(const GeneratedSequence& sequence) const;

  std::vector<GeneratedSequence> sequences_;
  CacheSlots& slots_;
  std::vector<GeneratedSequence*> in_slot_;  // by place, then slot; null: free
  std::size_t next_ = 0, running_ = 0;
};

}  // namespace axonn
