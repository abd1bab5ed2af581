#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/data/text/tokenizer.h"
#include "axonn/network/nn/attention/attention.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/use/infer/sampling.h"

namespace axonn {

class BeamSearch;
class ConstraintCache;
class DecodeGraphs;
class DraftModel;
class GenerationSchedule;
class HeldWeights;
struct DraftLimits;
struct GeneratedSequence;
struct PassPart;
struct GenerationPass;
struct StepState;

/// What an embedding is made of: the hidden states after the model's last norm.
enum class Pooling : std::uint8_t {
  none,  ///< text is generated
  mean,  ///< of all tokens
  last   ///< that of the last token
};

/// How a text is generated.
struct GenerationOptions {
  std::int64_t max_tokens = 200;  ///< generated per prompt; 0: only computes the prompt
  Sampling sampling = {.temperature = 0};
  /// With several beams, sampling.temperature must be 0, and there are no scores of the prompt,
  /// embeddings and sliding. The text and those beside it come at the end.
  BeamOptions beams = {};
  std::uint64_t seed = 1;
  std::uint64_t random_stream =
      0;  ///< texts of one seed and different streams are drawn independently
  /// Log-probabilities of the generated tokens, and of this number of the likeliest tokens at their
  /// positions; -1: none.
  std::int64_t likeliest = -1;
  /// Likeliest tokens at the prompt's positions but the first. slides must be false. The prompt is
  /// computed anew, in passes of 128 tokens.
  bool score_prompt = false;
  /// Generation ends at one of these. It is not part of the result, unless keeps_stop_token.
  std::vector<std::int32_t> stop_tokens = {};
  bool keeps_stop_token = false;               ///< the last of the tokens, with its score
  std::vector<std::string> stop_strings = {};  ///< the same for texts; requires a tokenizer
  std::int64_t min_tokens = 0;                 ///< generated before a stop token may be
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};  ///< added to logits, by token
  /// What the text must be (grammar/text_form.h); "": anything. Tokens that end a text come only
  /// where it may end, and it ends by itself where it must. Requires a tokenizer.
  std::string form = {};
  std::vector<std::int32_t> shown_tokens = {};  ///< special tokens that the text shows
  /// When the context is full: true drops all but its last half and continues, with positions
  /// counted from the first token that is left; false ends the generation.
  bool slides = false;
  /// Logits that are NaN or infinite: true ends the text; false is an Error.
  bool ends_if_not_finite = false;
  /// Unless none, the prompt's embedding is computed and no text is generated.
  Pooling pooling = Pooling::none;
  std::int64_t adapter = -1;  ///< a number in model.lora.choices; -1: the model without adapters

  bool operator==(const GenerationOptions&) const = default;
};

enum class FinishReason : std::uint8_t {
  max_tokens,
  stop_token,
  stop_string,
  context,
  not_finite,
  no_token  ///< the form allows none, for example because its JSON nests too deep
};

/// "max_tokens".
std::string_view name_of(FinishReason reason);

/// How likely the model finds a token after those before it.
struct TokenScore {
  float log_probability = 0;  ///< nats, before temperature, penalty and the like
  /// The likeliest tokens at its position with their log-probabilities, the likeliest first.
  std::vector<std::pair<std::int32_t, float>> likeliest = {};

  bool operator==(const TokenScore&) const = default;
};

/// The score of `token` by the logits (V) of its position, with the `count` likeliest of the first
/// `known` tokens. Sums in f64. Throws Error if there is no such token.
TokenScore score_of(std::span<const float> logits, std::int32_t token, std::int64_t count,
                    std::int64_t known);

/// The text generated after a prompt.
struct Generation {
  std::vector<std::int32_t> tokens;  ///< without a stop token, but with the tokens of a stop string
  std::string text;                  ///< up to the stop; empty without a tokenizer
  FinishReason reason = FinishReason::max_tokens;
  std::string stop = {};           ///< the stop string, if that is the reason
  bool slid = false;               ///< the context was full, and its first tokens were dropped
  std::int64_t cached_tokens = 0;  ///< first tokens of the prompt that a slot still held
  std::vector<TokenScore> prompt_scores = {};  ///< of its second token and the following
  std::vector<TokenScore> scores = {};         ///< of `tokens`
  std::vector<float> embedding = {};           ///< (H), of any norm; empty without options.pooling
  float beam_score = 0;                        ///< see BeamSearch; 0 without beams
  std::vector<Generation> others = {};         ///< BeamOptions::returned texts but this, the best
};

/// Tokens and seconds of the last call, over all (z, data) coordinates: of passes that read prompts
/// and draw their first tokens, and of passes that generate from all sequences.
struct GenerationStats {
  std::int64_t prompt_tokens = 0, tokens = 0;  ///< read from prompts; generated by the other passes
  double prompt_seconds = 0, seconds = 0;
  std::int64_t drafted = 0, kept = 0;  ///< tokens of drafts, and those of them that were drawn
};

/// The slots of each (z, data) coordinate in which the keys and values of sequences are cached.
struct CacheSlots {
  std::int64_t coordinates = 1, slots = 1;
  std::int64_t entries = 0;  ///< positions of a sequence that a slot holds
  std::int64_t window = 0;   ///< positions that attention sees; 0: all
  /// Keys of longer sequences have other rotary positions than those of shorter ones (longrope); 0:
  /// all have the same.
  std::int64_t short_sequences = 0;
  bool caches = true;  ///< false: nothing is cached, every pass computes whole sequences
  /// Whether there are layers whose states are those after all of a slot's tokens (DeltaNet).
  bool recurrent = false;
  /// What a slot last held.
  struct Slot {
    std::vector<std::int32_t> tokens = {};  ///< whose keys and values they are
    std::int64_t adapter = -1;              ///< with which they were computed
  };
  std::vector<Slot> last = {};  ///< per slot, in the order of coordinates

  /// Whether the keys of sequences of these lengths have different rotary positions.
  bool differ(std::size_t one, std::size_t other) const {
    const auto is_long = [this](std::size_t length) {
      return static_cast<std::int64_t>(length) > short_sequences;
    };
    return short_sequences > 0 && is_long(one) != is_long(other);
  }
  /// Returns how many of the first tokens of `wanted` need not be computed again because slot `i`
  /// holds their keys and values, computed with this adapter; 0 if that would be wrong or would
  /// save less than half of them.
  std::size_t held(std::size_t i, const std::vector<std::int32_t>& wanted,
                   std::int64_t adapter) const;
};

/// Generates text with a model, on any grid, from several prompts at once.
///
/// Each (z, data) coordinate generates from other prompts, `batch` at a time; when one ends, the
/// next takes its slot. A prompt is read in one pass, and several short ones share a pass. After
/// that, every pass computes one token of each sequence, whose keys and values are cached (or the
/// whole sequence, for a model without a cache). All ranks do the same passes and know all tokens.
///
/// generate() does all of that. Where prompts come and go, as in a server, add() and cancel() may
/// be called between calls of step(), in the same order on every rank.
///
/// The token that is drawn depends only on the logits and on (seed, stream, number of the token),
/// not on the batch or the grid. Logits agree over batches and grids up to rounding.
///
/// Communication of a pass: as forward in training, but without the gathers over z if weights are
/// held; an all-gather of logits over x; an all-gather of one token per sequence over z and data,
/// and another of scores where they are asked for. A pass of embeddings has an all-gather of them
/// over y, and over z and data, in place of these.
class Generator {
 public:
  struct Options {
    std::int64_t batch = 0;    ///< sequences per (z, data) coordinate; 0: by cache_bytes
    std::int64_t context = 0;  ///< the longest sequence; 0: the model's positions
    /// If `batch` is 0: bytes of keys and values per rank, for at most 64 sequences.
    std::int64_t cache_bytes = std::int64_t{1} << 30;
    /// true: gathers all blocks over z once and keeps them gathered while generate() runs, or from
    /// the first step() on; takes Gz times the memory of the weights. false: gathers them for
    /// every token.
    bool hold_weights = true;
    /// Makes texts of tokens, and limits the vocabulary to its own. Null: results have tokens only.
    const Tokenizer* tokenizer = nullptr;
    /// Above 0: computes as training on sequences of so many positions does. The score of a
    /// generated token is minus its loss, found as Model::target_losses() finds it, and prompts
    /// that share a pass begin where blocks of attention do. On a backend that is batch invariant,
    /// scores are those losses to the bit.
    std::int64_t trained_positions = 0;
    float logit_factor = 1;  ///< of all logits, by LogitFactor
    /// Most tokens of a text that a pass computes ahead, see DraftLimits. None for beam searches,
    /// texts with scores of likeliest tokens, and models without a cache or with DeltaNet layers,
    /// whose states cannot be taken back.
    std::int64_t drafts = 0;
    KeptForm kept = {};                  ///< of keys and values, see check_kept_form()
    bool integer_products = false;       ///< see use_integer_products()
    LoadedModel* draft_model = nullptr;  ///< writes the drafts; null: they are what stood before
  };
  /// Receives the new text of a prompt, as far as it can be shown, and all that was generated so
  /// far. Called on every rank after every token.
  using OnText =
      std::function<void(std::size_t prompt, std::string_view text, const Generation& so_far)>;
  /// Receives what was generated after a prompt, at its end.
  using OnEnd = std::function<void(std::size_t prompt, Generation)>;

  /// The model must outlive it. Throws UsageError if the context is longer than the model's
  /// positions.
  Generator(LoadedModel& loaded, const Options& options);
  ~Generator();

  /// Generates from each prompt, with a stream for each. Collective; arguments and results are the
  /// same on every rank. Throws as check() does.
  std::vector<Generation> generate(const std::vector<std::vector<std::int32_t>>& prompts,
                                   const GenerationOptions& options, const OnText& on_text = {});

  /// Throws UsageError if the prompt is empty, has a token that the model does not know, or does
  /// not fit in the context and options.slides is false, or if options contradict one another.
  void check(const std::vector<std::int32_t>& prompt, const GenerationOptions& options) const;

  /// Allocates the cache for `prompts` at once, or as many as the options allow, each with as many
  /// slots as it has beams. Returns the number of slots. Only while idle(); the cache of before is
  /// kept if it has room for as many.
  std::int64_t reserve(std::size_t prompts, std::int64_t beams = 1);
  /// The most beams of a prompt: the slots of a (z, data) coordinate.
  std::int64_t most_beams() const { return slots_.slots; }
  /// Adds a prompt to those that step() generates from, and returns its number. Throws as check(),
  /// and UsageError for a form that cannot be compiled, and for more than most_beams().
  std::size_t add(const std::vector<std::int32_t>& prompt, const GenerationOptions& options);
  /// Drops the prompt with this number, if it has not ended; on_end is not called for it.
  void cancel(std::size_t number);
  /// Whether no prompt is left.
  bool idle() const;
  /// Computes a pass. Collective. Requires reserve() before, and prompts.
  void step(const OnText& on_text, const OnEnd& on_end);

  std::int64_t context() const { return context_; }
  /// The number of adapters that a sequence may choose from.
  std::int64_t adapters() const;
  /// Statistics of the last call of generate().
  const GenerationStats& stats() const { return stats_; }

 private:
  struct Rows;  // of one pass, in host memory
  struct AfterRow;
  struct RowResult;
  struct Drawn;
  struct Pass;
  struct Callbacks {
    const OnText& on_text;
    const OnEnd& on_end;
  };
  /// The number of this rank's (z, data) coordinate, whose sequences are whole even where ranks
  /// share those of a training.
  std::int64_t coordinate() const;
  bool keeps_latents() const;
  std::int64_t bytes_of_slot() const;
  DraftLimits draft_limits() const;
  Pass begin(const Rows& rows, std::shared_ptr<KeyValueCache> cache, KeyValueCache::Reads reads);
  Tensor logits(const Rows& rows, const Pass& pass, KeyValueCache::Reads reads);
  void score_as_trained(const Pass& pass, const Tensor& logits, std::vector<RowResult>& rows) const;
  Drawn pass(const GenerationPass& work);
  AfterRow after_row(const PassPart& part, std::int64_t ahead, std::span<float> logits) const;
  std::int32_t draw(const GeneratedSequence& sequence, std::span<float> logits) const;
  std::vector<std::int32_t> draw_along_draft(const PassPart& part, std::span<float> logits) const;
  int host_threads(std::size_t values) const;
  void compute(const GenerationPass& work, Drawn& drawn);
  void embed(const GenerationPass& work, Drawn& drawn);
  void step_embeddings(const GenerationPass& work, const Drawn& drawn, const Callbacks& to);
  std::optional<FinishReason> accept(GeneratedSequence& sequence, std::int32_t token,
                                     const OnText& on_text) const;
  bool step_text(GeneratedSequence& sequence, std::int32_t token, std::vector<TokenScore> scores,
                 const Callbacks& to);
  void step_tokens(GeneratedSequence& sequence, std::span<const std::int32_t> tokens,
                   std::vector<TokenScore> scores, const Callbacks& to);
  void end(std::size_t number, Generation result, const Callbacks& to);
  void check_beams(const GenerationOptions& options) const;
  BeamSearch make_search(const std::vector<std::int32_t>& prompt,
                         const GenerationOptions& options) const;
  void step_beams(GeneratedSequence& sequence, std::int64_t coordinate,
                  std::span<const TokenScore> scores, const Callbacks& to);
  void move_beams(GeneratedSequence& sequence, std::int64_t coordinate);
  Generation text_of(const GeneratedSequence& sequence, std::vector<std::int32_t> tokens,
                     FinishReason reason) const;
  Generation best_texts(const GeneratedSequence& sequence) const;

  LoadedModel& model_;
  Options options_;
  std::int64_t context_;
  std::int64_t vocab_;  ///< number of tokens that may be drawn
  Heads heads_;
  std::shared_ptr<KeyValueCache> cache_;  // null: the model does not use it
  CacheSlots slots_;
  std::unique_ptr<GenerationSchedule> schedule_;
  std::unique_ptr<DraftModel> drafter_;  // null: drafts are looked up
  std::unique_ptr<HeldWeights> held_;
  std::unique_ptr<DecodeGraphs> graphs_;  // null: no pass is captured
  std::size_t next_number_ = 0;
  std::unique_ptr<ConstraintCache> constraints_;  // null without a tokenizer
  std::unique_ptr<StepState> state_;              // of all passes
  GenerationStats stats_;
};

}  // namespace axonn
