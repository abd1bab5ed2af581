#include "axonn/infer/generator.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/random.h"
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

namespace {

/// Most prompt tokens of one pass of several prompts, so that short prompts share one gather of the
/// weights.
constexpr std::int64_t kPromptTokens = 1024;

/// Most tokens of one sequence in a pass that reads the cache. It bounds the pass's memory.
constexpr std::int64_t kNewTokens = 512;

/// Passes with more rows are padded to a multiple of this, so that products have few different
/// shapes.
constexpr std::int64_t kRowsStep = 32;

/// With a window, the most rows of a cached sequence in one pass; slots have as many entries, less
/// one, beyond the window.
constexpr std::int64_t kBeyondWindow = 64;

/// Keeps weights gathered while it lives.
class Held {
 public:
  Held(const Context& ctx, std::vector<ParameterGroup*> groups) : groups_(std::move(groups)) {
    for (ParameterGroup* group : groups_) group->acquire(ctx);
  }
  ~Held() {
    for (ParameterGroup* group : groups_) group->release();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  std::vector<ParameterGroup*> groups_;
};

/// Gathers the values of each (z, data) coordinate, in the order of places: data · Gz + z.
std::vector<std::int32_t> gather_places(const Grid& grid, std::vector<std::int32_t> mine) {
  for (Axis axis : {Axis::z, Axis::data}) {
    Communicator& along = grid.along(axis);
    std::vector<std::int32_t> all(mine.size() * along.size());
    along.all_gather(buffer(std::span(all)), buffer(std::span(mine)), "tokens").wait();
    mine = std::move(all);
  }
  return mine;
}

/// Decides which sequences are computed in which pass, and in which slot of which place. Plain
/// bookkeeping, the same on every rank. A place is a (z, data) coordinate.
class GenerationSchedule {
 public:
  /// `slots` must outlive it.
  GenerationSchedule(std::vector<GeneratedSequence> sequences, CacheSlots& slots)
      : sequences_(std::move(sequences)), slots_(slots), in_slot_(slots.places * slots.slots) {
    slots_.tokens.resize(in_slot_.size());
  }

  bool done() const { return running_ == 0 && next_ == sequences_.size(); }
  /// Gives free slots to waiting sequences and returns the next pass: the prompts of which nothing
  /// is cached yet, if there are any, otherwise the new tokens of all other sequences.
  PassPlan next() {
    admit();
    const bool fresh = std::ranges::any_of(in_slot_, [](const GeneratedSequence* sequence) {
      return sequence && sequence->cached == 0;
    });
    const std::int64_t most_new =
        slots_.window > 0 ? std::min(kNewTokens, slots_.entries - slots_.window + 1) : kNewTokens;
    PassPlan plan;
    plan.reads = fresh ? KeyValueCache::Reads::own_rows : KeyValueCache::Reads::kept;
    for (std::int64_t place = 0; place < slots_.places; ++place) {
      auto& parts = plan.of_place.emplace_back();
      std::int64_t rows = 0;
      for (std::int64_t slot = 0; slot < slots_.slots; ++slot) {
        GeneratedSequence* sequence = in_slot_[place * slots_.slots + slot];
        if (!sequence || (sequence->cached == 0) != fresh) continue;
        const auto left = static_cast<std::int64_t>(sequence->in_context() - sequence->cached);
        const std::int64_t count = fresh ? left : std::min(left, most_new);
        if (fresh && rows > 0 && rows + count > kPromptTokens) break;
        parts.push_back({sequence, static_cast<std::int32_t>(slot), count});
        rows += count;
      }
    }
    return plan;
  }
  /// Ends the sequence in this slot and frees the slot.
  void finish(std::int64_t place, std::int64_t slot) {
    const std::size_t i = place * slots_.slots + slot;
    const GeneratedSequence& sequence = *in_slot_[i];
    const auto first = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.begin);
    slots_.tokens[i].assign(first, first + static_cast<std::ptrdiff_t>(sequence.cached));
    in_slot_[i] = nullptr;
    --running_;
  }

 private:
  /// Fills slots in turn over places, so that all places have equally many sequences.
  void admit() {
    for (std::int64_t slot = 0; slot < slots_.slots; ++slot)
      for (std::int64_t place = 0; place < slots_.places && next_ < sequences_.size(); ++place) {
        const std::size_t i = place * slots_.slots + slot;
        if (in_slot_[i]) continue;
        GeneratedSequence& sequence = sequences_[next_++];
        if (sequence.begin == 0) sequence.cached = slots_.held(i, sequence.tokens);
        in_slot_[i] = &sequence;
        ++running_;
      }
  }

  std::vector<GeneratedSequence> sequences_;
  CacheSlots& slots_;
  std::vector<GeneratedSequence*> in_slot_;  // by place, then slot; null: free
  std::size_t next_ = 0, running_ = 0;
};

Generation finished(GeneratedSequence& sequence, FinishReason reason,
                    const Generator::OnText& on_text) {
  if (sequence.text) {
    const std::string rest = sequence.text->finish();
    sequence.written += rest;
    if (on_text && !rest.empty()) on_text(sequence.prompt, rest);
  }
  const auto first = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.prompt_size);
  return {{first, sequence.tokens.end()}, std::move(sequence.written), reason, sequence.begin > 0};
}

}  // namespace

std::size_t CacheSlots::held(std::size_t i, const std::vector<std::int32_t>& wanted) const {
  const auto& here = tokens[i];
  const std::int64_t size = std::ssize(here),
                     same = std::min(std::ranges::mismatch(here, wanted).in1 - here.begin(),
                                     std::ssize(wanted) - 1),
                     first = window > 0 ? std::max<std::int64_t>(0, same + 1 - window) : 0;
  if (size > entries && first < size - entries) return 0;  // later tokens overwrote needed ones
  return 2 * same >= std::ssize(wanted) ? same : 0;
}

std::string_view name_of(FinishReason reason) {
  constexpr std::string_view kNames[] = {"max_tokens", "stop_token", "stop_string", "context"};
  return kNames[static_cast<int>(reason)];
}

struct Generator::Rows {
  std::vector<std::int32_t> ids, positions, slots, starts;
  std::vector<std::int64_t> drawn_from;  // rows after which a token is drawn

  void add(const PassPart& part) {
    const auto start = static_cast<std::int32_t>(ids.size());
    for (std::int64_t i = 0; i < part.count; ++i) {
      const std::size_t position = part.sequence->cached + i;
      ids.push_back(part.sequence->tokens[part.sequence->begin + position]);
      positions.push_back(static_cast<std::int32_t>(position));
      slots.push_back(part.slot);
      starts.push_back(start);
    }
    if (part.last()) drawn_from.push_back(std::ssize(ids) - 1);
  }
  /// Pads with rows of no sequence, each of which sees only itself.
  void fill_up() {
    std::int64_t count = std::max<std::int64_t>(std::ssize(ids), 1);
    if (count > kRowsStep) count = (count + kRowsStep - 1) / kRowsStep * kRowsStep;
    for (std::int64_t row = std::ssize(ids); row < count; ++row)
      starts.push_back(static_cast<std::int32_t>(row));
    ids.resize(count, 0);
    positions.resize(count, 0);
    slots.resize(count, -1);
  }
};

Generator::Generator(LoadedModel& loaded, const Options& options)
    : model_(loaded), options_(options) {
  const ModelConfig& model = loaded.config().model;
  context_ = options.context > 0 ? options.context : model.positions;
  AXONN_CHECK(options.batch >= 0 && options.context >= 0, "Generator: a batch of ", options.batch,
              ", a context of ", options.context);
  if (context_ > model.positions)
    refuse("a context of ", context_, " tokens, but the model has ", model.positions, " positions");
  vocab_ = loaded.model().vocab();
  if (options.tokenizer) vocab_ = std::min(vocab_, options.tokenizer->vocab_size());
  heads_ = {model.heads, model.kv_heads, model.head_width(), model.window};
  slots_.places = loaded.grid().batch_places();
  slots_.window = heads_.window < context_ ? heads_.window : 0;
  slots_.entries =
      slots_.window > 0 ? std::min(context_, slots_.window + kBeyondWindow - 1) : context_;
  slots_.slots = 0;
}

/// Returns slots for that many prompts at once. Slots of earlier calls are kept if there are
/// enough.
CacheSlots& Generator::slots_for(std::size_t prompts) {
  constexpr std::int64_t kMost = 64;
  const bool caches = model_.model().caches();
  const std::int64_t bytes = caches ? model_.config().model.layers * slots_.entries *
                                          KeyValueCache::elements(heads_, model_.grid()) *
                                          bytes_of(model_.context().dtype)
                                    : 1;
  const std::int64_t most = options_.batch > 0
                                ? options_.batch
                                : std::clamp<std::int64_t>(options_.cache_bytes / bytes, 1, kMost);
  const std::int64_t wanted =
      std::min(most, (static_cast<std::int64_t>(prompts) + slots_.places - 1) / slots_.places);
  if (wanted <= slots_.slots) return slots_;
  if (caches) cache_.emplace(KeyValueCache::Options{.slots = wanted, .entries = slots_.entries});
  slots_.slots = wanted;
  slots_.tokens.clear();
  return slots_;
}

std::vector<GeneratedSequence> Generator::sequences_of(
    const std::vector<std::vector<std::int32_t>>& prompts, const GenerationOptions& options) const {
  const auto& tokenizer = options_.tokenizer;
  if (!options.stop_strings.empty() && !tokenizer)
    refuse("stop strings need a tokenizer, and this model has none");
  std::vector<GeneratedSequence> sequences;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto& tokens = prompts[i];
    if (tokens.empty()) refuse("prompt ", i, " is empty: give at least one token to continue from");
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= model_.model().vocab())
        refuse("prompt ", i, " has token ", token, ", but the model's vocabulary has ",
               model_.model().vocab());
    if (std::ssize(tokens) > context_ && !options.slides)
      refuse("prompt ", i, " has ", tokens.size(), " tokens, but the context has only ", context_);
    GeneratedSequence& sequence = sequences.emplace_back(
        GeneratedSequence{.prompt = i, .tokens = tokens, .prompt_size = tokens.size()});
    if (tokenizer) sequence.text.emplace(*tokenizer, options.stop_strings);
    if (std::ssize(tokens) > context_) sequence.begin = tokens.size() - (context_ + 1) / 2;
  }
  return sequences;
}

/// Returns the logits (n, V) of the rows after which a token is drawn, the same on all ranks of x
/// and y.
std::vector<float> Generator::logits(const Rows& rows, KeyValueCache::Reads reads) {
  Context ctx = model_.context();
  if (cache_) ctx.cache = &*cache_;
  Scheduling& scheduling = ctx.own_scheduling();
  scheduling.run.sequence_parallel = false;  // few rows, and slots do not move between ranks
  scheduling.run.chunks = 1;
  scheduling.run.recompute = false;
  scheduling.step = &state_;
  state_.prefetcher.begin_pass();
  if (cache_) cache_->begin_pass(ctx, rows.slots, rows.positions, reads);
  const Tokens tokens =
      make_tokens(ctx, rows.ids, {}, {1, std::ssize(rows.ids)},
                  {.positions = rows.positions, .starts = rows.starts, .reach = context_});
  const std::vector<std::int64_t> any{0};
  const auto& from = rows.drawn_from.empty() ? any : rows.drawn_from;
  const Tensor mine = model_.model().next_logits(ctx, tokens, from);

  Communicator& across = model_.grid().along(Axis::x);
  const std::int64_t n = mine.rows(), piece = mine.cols(), ways = across.size();
  std::vector<float> here(n * piece), all(n * piece * ways);
  ctx.device().copy_to_host(here.data(), mine.view().data, mine.bytes());
  if (ways == 1) return here;
  across.all_gather(buffer(std::span(all)), buffer(std::span(here)), "logits").wait();
  std::vector<float> whole(n * piece * ways);
  for (std::int64_t x = 0; x < ways; ++x)
    for (std::int64_t row = 0; row < n; ++row)
      std::copy_n(all.begin() + (x * n + row) * piece, piece,
                  whole.begin() + (row * ways + x) * piece);
  return whole;
}

/// Returns the drawn tokens by place, then slot; -1 where none was drawn.
std::vector<std::int32_t> Generator::pass(const PassPlan& plan, const GenerationOptions& options) {
  const Grid& grid = model_.grid();
  const auto& parts = plan.of_place[grid.batch_place()];
  std::vector<std::int32_t> drawn(slots_.slots, -1);
  Rows rows;
  for (const PassPart& part : parts) rows.add(part);
  // A rank without rows must still take part when weights are gathered over z.
  if (!parts.empty() || !options_.hold_weights) {
    rows.fill_up();
    std::vector<float> all = logits(rows, plan.reads);
    const std::size_t each = all.size() / std::max<std::size_t>(rows.drawn_from.size(), 1);
    const Random random(options.seed, "generate");
    std::size_t i = 0;
    for (const PassPart& part : parts) {
      if (!part.last()) continue;
      const GeneratedSequence& sequence = *part.sequence;
      const std::span<float> mine(all.data() + each * i++, vocab_);
      penalise(mine, std::span(sequence.tokens).subspan(sequence.begin),
               options.sampling.repetition_penalty);
      const std::uint64_t draw = std::uint64_t{sequence.prompt} << 32 | sequence.produced();
      drawn[part.slot] = sample(mine, options.sampling, random.uniform(draw));
    }
  }
  return gather_places(grid, std::move(drawn));
}

/// Appends a token to the sequence. Returns the reason if the sequence ends with it.
std::optional<FinishReason> Generator::accept(GeneratedSequence& sequence, std::int32_t token,
                                              const GenerationOptions& options,
                                              const OnText& on_text) const {
  if (std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end())
    return FinishReason::stop_token;
  sequence.tokens.push_back(token);
  if (sequence.text) {
    const std::string text = sequence.text->push(token);
    sequence.written += text;
    if (on_text) on_text(sequence.prompt, text);
    if (sequence.text->stopped()) return FinishReason::stop_string;
  }
  if (static_cast<std::int64_t>(sequence.produced()) >= options.max_tokens)
    return FinishReason::max_tokens;
  if (static_cast<std::int64_t>(sequence.in_context()) <= context_) return {};
  if (!options.slides) return FinishReason::context;
  sequence.begin = sequence.tokens.size() - (context_ + 1) / 2;
  sequence.cached = 0;
  return {};
}

std::vector<Generation> Generator::generate(const std::vector<std::vector<std::int32_t>>& prompts,
                                            const GenerationOptions& options,
                                            const OnText& on_text) {
  AXONN_CHECK(options.max_tokens > 0, "Generator: ", options.max_tokens, " tokens");
  stats_ = {};
  std::vector<Generation> results(prompts.size());
  if (prompts.empty()) return results;
  GenerationSchedule schedule(sequences_of(prompts, options), slots_for(prompts.size()));
  std::optional<Held> held;
  if (options_.hold_weights) held.emplace(model_.context(), model_.model().groups());
  while (!schedule.done()) {
    const PassPlan plan = schedule.next();
    const double start = now_seconds();
    const std::vector<std::int32_t> drawn = pass(plan, options);
    const bool prompts_read = plan.reads == KeyValueCache::Reads::own_rows;
    (prompts_read ? stats_.prompt_seconds : stats_.seconds) += now_seconds() - start;
    for (std::int64_t place = 0; place < slots_.places; ++place)
      for (const PassPart& part : plan.of_place[place]) {
        (prompts_read ? stats_.prompt_tokens : stats_.tokens) += part.count;
        GeneratedSequence& sequence = *part.sequence;
        if (cache_) sequence.cached += part.count;
        const std::int32_t token = drawn[place * slots_.slots + part.slot];
        if (token < 0) continue;
        const auto reason = accept(sequence, token, options, on_text);
        if (!reason) continue;
        results[sequence.prompt] = finished(sequence, *reason, on_text);
        schedule.finish(place, part.slot);
      }
  }
  return results;
}

}  // namespace axonn
