#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "axonn/parallel/key_value_cache.h"
#include "axonn/train/generated_text.h"

namespace axonn {

/// A prompt and what follows it.
struct GeneratedSequence {
  std::size_t prompt = 0;            ///< its number
  std::vector<std::int32_t> tokens;  ///< the prompt's, and those that followed
  std::size_t prompt_size = 0;
  std::optional<GeneratedText> text = {};
  std::string written = {};  ///< what `text` has given so far
  std::size_t begin = 0;     ///< the first token that the context still holds
  std::size_t cached = 0;    ///< tokens from there on whose keys and values are kept

  std::size_t produced() const { return tokens.size() - prompt_size; }
  std::size_t in_context() const { return tokens.size() - begin; }
};

/// Where the keys and values of sequences are kept: slots of each (z, data) coordinate.
struct CacheSlots {
  std::int64_t places = 1, slots = 1;
  std::int64_t entries = 0;  ///< positions of a sequence that a slot keeps
  std::int64_t window = 0;   ///< positions that attention sees; 0: all
  /// Of each place's slots one after another: the tokens that were last kept there.
  std::vector<std::vector<std::int32_t>> tokens = {};

  /// How many of the first of these tokens slot `i` holds already, so that reading the rest alone
  /// is right and pays; 0: read all.
  std::size_t held(std::size_t i, const std::vector<std::int32_t>& wanted) const;
};

/// Tokens of one sequence that go through a pass: `count` from the first that is not kept yet.
struct PassPart {
  GeneratedSequence* sequence;
  std::int32_t slot;
  std::int64_t count;

  /// Whether the token that follows is to be drawn.
  bool last() const { return sequence->cached + count == sequence->in_context(); }
};

/// What every (z, data) coordinate computes in a pass.
struct PassPlan {
  KeyValueCache::Reads reads = KeyValueCache::Reads::own_rows;
  std::vector<std::vector<PassPart>> of_place;
};

/// Which sequences pass when and where. Plain bookkeeping, the same on every rank.
class GenerationSchedule {
 public:
  /// `slots` outlives it.
  GenerationSchedule(std::vector<GeneratedSequence> sequences, CacheSlots& slots);

  bool done() const { return running_ == 0 && next_ == sequences_.size(); }
  /// Gives free slots to the sequences that wait, and says what comes next: prompts that nothing
  /// is kept of yet, if there are any, else what is new of all others. Errors: done().
  PassPlan next();
  /// The sequence in a slot of a place, which has one.
  GeneratedSequence& at(std::int64_t place, std::int64_t slot) const;
  /// It has come to its end: its slot is free.
  void finish(std::int64_t place, std::int64_t slot);

  const std::vector<GeneratedSequence>& sequences() const { return sequences_; }

 private:
  void admit();
  std::int64_t most_new(const GeneratedSequence& sequence) const;

  std::vector<GeneratedSequence> sequences_;
  CacheSlots& slots_;
  std::vector<GeneratedSequence*> in_slot_;  // of each place's slots one after another; null: free
  std::size_t next_ = 0, running_ = 0;
};

}  // namespace axonn
