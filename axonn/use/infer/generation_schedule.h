#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/grammar/constraint.h"
#include "axonn/data/text/stream_decoder.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/network/nn/attention/attention.h"
#include "axonn/use/infer/beam_search.h"
#include "axonn/use/infer/drafts.h"
#include "axonn/use/infer/generator.h"

namespace axonn {

/// One of the texts of a beam search, and the slot in which its keys and values are.
struct BeamText {
  std::int32_t slot = 0;
  std::vector<std::int32_t> tokens = {};           ///< the prompt's, then the generated ones
  std::shared_ptr<const StreamDecoder> text = {};  ///< of the generated ones; null: no stop strings
  Constraint::State state = {};                    ///< in the form
};

/// Tokens with their log-probabilities, the likeliest first.
using LikeliestTokens = std::vector<std::pair<std::int32_t, float>>;

/// What may follow the text of a beam.
struct BeamRow {
  BeamSearch::Candidates candidates = {};
  LikeliestTokens likeliest = {};  ///< so many as options.likeliest says, before penalties
};

/// A prompt and the tokens generated after it.
struct GeneratedSequence {
  std::size_t number = 0;
  GenerationOptions options = {};
  /// The prompt's, then the generated ones; with a beam search those of the best text.
  std::vector<std::int32_t> tokens = {};
  std::size_t prompt_size = 0;
  std::optional<StreamDecoder> text = {};
  std::size_t begin = 0;          ///< first token that is still in the context
  std::size_t cached = 0;         ///< tokens from there on whose keys and values are cached
  std::int64_t draft_length = 1;  ///< most tokens of its next draft
  Generation result = {};         ///< so far
  std::shared_ptr<Constraint> constraint = {};  ///< of options.form, shared; null: none
  Constraint::State state = {};                 ///< in the form
  std::optional<BeamSearch> search = {};        ///< of options.beams; empty: one beam
  /// Of the search, once there is a slot: as many as it has beams, of one coordinate. Before the
  /// search branches, the first one is for the prompt.
  std::vector<BeamText> beams = {};
  /// With options.likeliest, of each step BeamRow::likeliest of the texts that were running.
  std::vector<std::vector<LikeliestTokens>> beams_likeliest = {};

  /// Whether each beam has a text.
  bool branched() const { return search && produced() > 0; }
  /// The likeliest tokens at each position that a pass returns. Of a search, its candidates, and
  /// with options.likeliest their log-probabilities before penalties and the likeliest by these.
  std::int64_t likeliest() const {
    if (!search) return options.likeliest;
    const std::int64_t scored = options.likeliest;
    return search->candidates() + (scored < 0 ? 0 : search->candidates() + scored);
  }
  /// Where the text of a beam is in the form, and its decoder; those of the first step are of an
  /// empty text.
  const Constraint::State& state_at(std::size_t beam) const {
    return branched() ? beams[beam].state : state;
  }
  const StreamDecoder& decoder_at(std::size_t beam) const {
    return branched() && beams[beam].text ? *beams[beam].text : *text;
  }
  std::size_t produced() const { return tokens.size() - prompt_size; }
  std::size_t in_context() const { return tokens.size() - begin; }
  bool embeds() const { return options.pooling != Pooling::none; }
  bool scores_prompt() const { return options.score_prompt && produced() == 0; }
};

/// Makes the text of generated tokens.
StreamDecoder decoder_of(const Tokenizer& tokenizer, const GenerationOptions& options);

/// Tokens of one text that one pass computes: `count` from the first one that is not cached. A pass
/// has all texts of a beam search or none, one after another.
struct PassPart {
  GeneratedSequence* sequence;
  std::int32_t slot;
  std::int64_t count;
  std::size_t beam = 0;
  std::vector<std::int32_t> draft = {};  ///< tokens that may follow the last one, computed after it

  const std::vector<std::int32_t>& tokens() const {
    return sequence->branched() ? sequence->beams[beam].tokens : sequence->tokens;
  }
  /// Whether no further text of its sequence follows in the pass.
  bool ends_sequence() const {
    return !sequence->branched() || beam + 1 == sequence->search->running().size();
  }

  /// Whether the pass reaches the sequence's end, so that its next token is drawn.
  bool last() const { return sequence->cached + count == sequence->in_context(); }
  /// The number of rows, the last of the part, whose logits are needed.
  std::int64_t rows_with_logits() const {
    if (sequence->embeds()) return 0;
    if (sequence->scores_prompt()) return count;
    return last() ? 1 + std::ssize(draft) : 0;
  }
  /// The tokens whose log-probabilities the pass computes: of the prompt, then the drawn one.
  std::int64_t scored() const {
    const bool draws = last() && sequence->likeliest() >= 0;
    return (sequence->scores_prompt() ? count - std::int64_t{last()} : 0) + std::int64_t{draws};
  }
};

/// The parts that every (z, data) coordinate computes in a pass, ordered by their adapters.
struct GenerationPass {
  KeyValueCache::Reads reads = KeyValueCache::Reads::own_rows;
  bool embeds = false;  ///< the parts are whole prompts of embeddings, and no others
  std::vector<std::vector<PassPart>> of_coordinate;
  std::int64_t drafted = 0;  ///< tokens of the longest draft
};

/// Decides which sequences are computed in which pass, and in which slot of which coordinate. Plain
/// bookkeeping, the same on every rank. A coordinate is one of (z, data).
class GenerationSchedule {
 public:
  /// `slots` must outlive it, and has at least one slot when next() is called.
  explicit GenerationSchedule(CacheSlots& slots, const DraftLimits& drafts = {})
      : slots_(slots), drafts_(drafts) {}

  /// Takes a sequence, which waits for a free slot. Its number must be new.
  void add(GeneratedSequence sequence);
  /// Ends a sequence, if there is one with this number, and frees its slot.
  void remove(std::size_t number);
  /// Whether no sequence is running or waiting.
  bool empty() const { return sequences_.empty(); }
  /// Whether none is running, so that slots may change.
  bool idle() const { return sequences_.size() == waiting_.size(); }

  /// Gives free slots to waiting sequences and returns the next pass: the prompts of which nothing
  /// is cached yet, if there are any, otherwise the new tokens of all other sequences. Prompts of
  /// embeddings have passes of their own, in turn with the others.
  GenerationPass next();

 private:
  void admit();
  void take_slots(GeneratedSequence& sequence, std::size_t first);
  bool has_room(std::int64_t coordinate, std::int64_t slots) const;
  /// Adds a sequence's parts to those of its coordinate.
  static void add_parts(std::vector<PassPart>& parts, const PassPart& first);
  void add_drafts(GenerationPass& work) const;
  CacheSlots::Slot left_in(const GeneratedSequence& sequence, std::size_t i) const;
  std::size_t best_slot(const GeneratedSequence& sequence) const;
  std::size_t held_for(const GeneratedSequence& sequence, std::size_t i) const;

  CacheSlots& slots_;
  DraftLimits drafts_;
  std::map<std::size_t, GeneratedSequence> sequences_;  // by number
  std::deque<std::size_t> waiting_;
  std::vector<GeneratedSequence*> in_slot_;  // by coordinate, then slot; null: free
  bool embedded_ = false;                    // in the last pass
};

}  // namespace axonn
