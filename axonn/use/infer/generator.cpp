#include "axonn/use/infer/generator.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/host.h"
#include "axonn/network/nn/adapters/adapter.h"
#include "axonn/network/nn/attention/delta_net.h"
#include "axonn/network/nn/attention/latent_attention.h"
#include "axonn/network/nn/loss.h"
#include "axonn/ranks/parallel/block.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/use/infer/decode_graphs.h"
#include "axonn/use/infer/draft_model.h"
#include "axonn/use/infer/generation_schedule.h"
#include "axonn/use/infer/logits.h"
#include "axonn/use/infer/score_words.h"
#include "axonn/use/infer/token_choice.h"

namespace axonn {

namespace {

/// Passes with more rows are padded to a multiple of this, so that products have few different
/// shapes.
constexpr std::int64_t kRowsStep = 32;

std::int64_t filled_up(std::int64_t rows) {
  if (rows <= kRowsStep) return std::max<std::int64_t>(rows, 1);
  return (rows + kRowsStep - 1) / kRowsStep * kRowsStep;
}

/// With a window, the most rows of a cached sequence in one pass; slots have as many entries, less
/// one, beyond the window.
constexpr std::int64_t kBeyondWindow = 64;

/// Gathers the values of each (z, data) coordinate, in the order of coordinates: data · Gz + z.
std::vector<std::int32_t> gather_places(const Grid& grid, std::vector<std::int32_t> mine) {
  for (Axis axis : {Axis::z, Axis::data}) {
    Communicator& along = grid.along(axis);
    std::vector<std::int32_t> all(mine.size() * along.size());
    along.all_gather(buffer(std::span(all)), buffer(std::span(mine)), "tokens").wait();
    mine = std::move(all);
  }
  return mine;
}

/// The words of the scores that a pass of these parts has.
std::size_t words_of(const std::vector<PassPart>& parts) {
  std::size_t sum = 0;
  for (const PassPart& part : parts) sum += part.scored() * score_words(part.sequence->likeliest());
  return sum;
}

}  // namespace

std::string_view name_of(FinishReason reason) {
  constexpr std::string_view kNames[] = {"max_tokens", "stop_token", "stop_string",
                                         "context",    "not_finite", "no_token"};
  return kNames[static_cast<int>(reason)];
}

/// What follows a row of a pass.
struct Generator::AfterRow {
  std::vector<std::int32_t> tokens = {};  ///< drawn; none: the prompt has the next one
  std::vector<std::int32_t> score = {};   ///< words; empty: it was not asked for
};

/// A row with logits, or all rows of a part with a draft.
struct Generator::RowResult {
  const PassPart* part;
  std::int64_t ahead;  ///< rows of the part from this one on
  std::size_t first;   ///< of the pass's rows with logits
  AfterRow after = {};
};

/// The results of a pass, by coordinate.
struct Generator::Drawn {
  std::vector<std::int32_t> tokens;  ///< of each coordinate's slots, `each`; -1: none was drawn
  std::vector<std::int32_t> scores;  ///< of each coordinate, equally many words
  std::ptrdiff_t each = 1;           ///< most tokens of a slot

  std::span<const std::int32_t> of(std::int64_t slot) const {
    return std::span(tokens).subspan(slot * each, each);
  }
};

/// A forward pass that has begun.
struct Generator::Pass {
  Context ctx;
  Tokens tokens;
};

struct Generator::Rows {
  std::vector<std::int32_t> ids, positions, slots, starts, lengths;
  std::vector<std::int64_t> needed;  // rows whose logits are needed
  std::int64_t real = 0;             // rows of sequences, of which padding follows
  bool drafts = false;               // whether there are any
  AdapterRows adapters;
  std::int64_t trained_positions = 0;  // as Options::trained_positions

  /// `aligned`: the part begins at a multiple of kSequenceBlock rows.
  void add(const PassPart& part, bool aligned) {
    if (aligned) pad((std::ssize(ids) + kSequenceBlock - 1) / kSequenceBlock * kSequenceBlock);
    const auto start = static_cast<std::int32_t>(ids.size());
    if (const std::int64_t adapter = part.sequence->options.adapter; adapter >= 0) {
      auto& runs = adapters.runs;
      if (runs.empty() || runs.back().choice != adapter)
        runs.push_back({.choice = adapter, .first = start});
      runs.back().count += part.count;
    }
    for (std::int64_t i = 0; i < part.count + std::ssize(part.draft); ++i) {
      const std::size_t position = part.sequence->cached + i;
      ids.push_back(i < part.count ? part.tokens()[part.sequence->begin + position]
                                   : part.draft[i - part.count]);
      positions.push_back(static_cast<std::int32_t>(position));
      slots.push_back(part.slot);
      starts.push_back(start);
      const auto length = static_cast<std::int64_t>(part.sequence->in_context());
      lengths.push_back(
          static_cast<std::int32_t>(trained_positions > 0 ? trained_positions : length));
    }
    for (std::int64_t i = part.rows_with_logits(); i > 0; --i)
      needed.push_back(std::ssize(ids) - i);
    real = std::ssize(ids);
    drafts = drafts || !part.draft.empty();
  }
  void fill_up() { pad(filled_up(std::ssize(ids))); }
  /// Pads with rows of no sequence, each of which sees only itself.
  void pad(std::int64_t count) {
    for (std::int64_t row = std::ssize(ids); row < count; ++row)
      starts.push_back(static_cast<std::int32_t>(row));
    ids.resize(count, 0);
    positions.resize(count, 0);
    lengths.resize(count, 0);
    slots.resize(count, -1);
  }
};

Generator::Generator(LoadedModel& loaded, const Options& options)
    : model_(loaded), options_(options), state_(std::make_unique<StepState>()) {
  const ModelConfig& model = loaded.config().model;
  context_ = options.context > 0 ? options.context : model.positions;
  AXONN_CHECK(options.batch >= 0 && options.context >= 0, "Generator: a batch of ", options.batch,
              ", a context of ", options.context);
  if (context_ > model.positions)
    refuse("a context of ", context_, " tokens, but the model has ", model.positions, " positions");
  check_kept_form(loaded, options.kept);
  AXONN_CHECK(options.trained_positions == 0 || !options.integer_products,
              "Generator: the scores of a training with products of integers");
  if (options.integer_products) use_integer_products(loaded, options.drafts > 0);
  AXONN_CHECK(options.trained_positions == 0 || options.kept.kind == Quantization::none,
              "Generator: the scores of a training with keys and values as codes");
  vocab_ = loaded.model().vocab();
  if (options.tokenizer) vocab_ = std::min(vocab_, options.tokenizer->vocab_size());
  heads_ = {model.heads, model.kv_heads, model.head_width(), model.widest_window()};
  const GridShape& shape = loaded.grid().shape();
  slots_.coordinates = std::int64_t{shape.z} * shape.data;
  slots_.window = heads_.window < context_ ? heads_.window : 0;
  slots_.entries =
      slots_.window > 0 ? std::min(context_, slots_.window + kBeyondWindow - 1) : context_;
  slots_.slots = 0;
  slots_.short_sequences = options.trained_positions > 0 ? 0 : model.short_sequences();
  slots_.caches = loaded.model().caches();
  slots_.recurrent = !model.delta_layers.empty();
  schedule_ = std::make_unique<GenerationSchedule>(
      slots_, options.draft_model ? DraftLimits() : draft_limits());
  if (options.tokenizer)
    constraints_ = std::make_unique<ConstraintCache>(*options.tokenizer, vocab_);
}

Generator::~Generator() = default;

std::int64_t Generator::coordinate() const {
  const Grid& grid = model_.grid();
  return std::int64_t{grid.coord(Axis::data)} * grid.extent(Axis::z) + grid.coord(Axis::z);
}

/// Whether latent attention caches latents. They change the rounding of scores, so not where these
/// are training's; and adapters of the product that they are absorbed in differ by row.
bool Generator::keeps_latents() const {
  const ModelConfig& model = model_.config().model;
  return model.kv_lora_rank > 0 && options_.trained_positions == 0 && model.lora.rank == 0;
}

/// Bytes that all layers keep for a slot.
std::int64_t Generator::bytes_of_slot() const {
  const ModelConfig& model = model_.config().model;
  const DType dtype = model_.context().dtype;
  const auto recurrent = std::ssize(model.delta_layers);
  const std::int64_t position =
      keeps_latents()
          ? bytes_of(dtype) * LatentAttention::cached_columns({.key_rank = model.kv_lora_rank,
                                                               .rotated = model.qk_rope_head_dim})
          : KeyValueCache::kept_heads(heads_, model_.grid()) *
                options_.kept.bytes(heads_.head_dim, dtype);
  std::int64_t bytes =
      (model.layers - recurrent - model.shared_kv_layers) * slots_.entries * position;
  if (recurrent > 0) bytes += recurrent * DeltaNet::slot_bytes(model.delta, model_.grid(), dtype);
  return bytes;
}

DraftLimits Generator::draft_limits() const {
  const bool any = slots_.caches && !slots_.recurrent && options_.trained_positions == 0;
  return {any ? options_.drafts : 0, context_, slots_.short_sequences};
}

std::int64_t Generator::reserve(std::size_t prompts, std::int64_t beams) {
  constexpr std::int64_t kMost = 64;
  AXONN_CHECK(schedule_->idle(), "Generator: reserve() while prompts are being generated");
  const std::int64_t bytes = slots_.caches ? bytes_of_slot() : 1;
  const std::int64_t fit = options_.cache_bytes / (bytes * beams),
                     most = options_.batch > 0 ? options_.batch
                                               : std::min(std::max<std::int64_t>(fit, 1),
                                                          std::max<std::int64_t>(kMost / beams, 1));
  const std::int64_t wanted =
      beams * std::min(most, (static_cast<std::int64_t>(prompts) + slots_.coordinates - 1) /
                                 slots_.coordinates);
  if (wanted > slots_.slots) {
    if (slots_.caches)
      cache_ = std::make_shared<KeyValueCache>(
          KeyValueCache::Options{.slots = wanted,
                                 .entries = slots_.entries,
                                 .inputs = DeltaNet::kept_inputs(model_.config().model.delta),
                                 .latents = keeps_latents(),
                                 .form = options_.kept});
    slots_.slots = wanted;
    slots_.last.clear();
    if (options_.draft_model && draft_limits().most > 0)
      drafter_ = std::make_unique<DraftModel>(
          *options_.draft_model, DraftModel::Options{.slots = wanted,
                                                     .limits = draft_limits(),
                                                     .hold_weights = options_.hold_weights,
                                                     .tokenizer = options_.tokenizer});
    if (cache_ && options_.hold_weights && DecodeGraphs::possible(model_))
      graphs_ = std::make_unique<DecodeGraphs>(filled_up(wanted));
  }
  return slots_.slots * slots_.coordinates;
}

void Generator::check(const std::vector<std::int32_t>& prompt,
                      const GenerationOptions& options) const {
  AXONN_CHECK(options.max_tokens >= 0, "Generator: ", options.max_tokens, " tokens");
  AXONN_CHECK(!(options.slides && options.score_prompt),
              "Generator: the scores of a prompt whose first tokens are dropped");
  if ((!options.stop_strings.empty() || !options.form.empty()) && !options_.tokenizer)
    refuse("stop strings and forms need a tokenizer, and this model has none");
  AXONN_CHECK(options.pooling == Pooling::none || !options.slides,
              "Generator: the embedding of a prompt whose first tokens are dropped");
  if (options.pooling != Pooling::none && model_.config().model.hidden < 1)
    refuse("embeddings need the model's width, and its config has no model.hidden");
  if (options.beams != BeamOptions()) check_beams(options);
  AXONN_CHECK(options.adapter >= -1 && options.adapter < adapters(), "Generator: adapter ",
              options.adapter, " of ", adapters());
  if (prompt.empty()) refuse("the prompt is empty: give at least one token to continue from");
  for (const std::int32_t token : prompt)
    if (token < 0 || token >= model_.model().vocab())
      refuse("the prompt has token ", token, ", but the model's vocabulary has ",
             model_.model().vocab());
  if (std::ssize(prompt) > context_ && !options.slides)
    refuse("the prompt has ", prompt.size(), " tokens, but the context has only ", context_);
}

std::size_t Generator::add(const std::vector<std::int32_t>& prompt,
                           const GenerationOptions& options) {
  check(prompt, options);
  GeneratedSequence sequence{
      .number = next_number_, .options = options, .tokens = prompt, .prompt_size = prompt.size()};
  if (options.beams.beams > 1) sequence.search = make_search(prompt, options);
  if (options_.tokenizer) sequence.text.emplace(decoder_of(*options_.tokenizer, options));
  if (!options.form.empty()) {
    sequence.constraint = constraints_->find(options.form);
    sequence.state = sequence.constraint->start();
  }
  if (std::ssize(prompt) > context_) sequence.begin = prompt.size() - (context_ + 1) / 2;
  schedule_->add(std::move(sequence));
  return next_number_++;
}

void Generator::cancel(std::size_t number) { schedule_->remove(number); }

bool Generator::idle() const { return schedule_->empty(); }

std::int64_t Generator::adapters() const { return std::ssize(model_.config().model.lora.choices); }

/// Begins a forward pass of the rows. `cache`: null: none is read or written.
Generator::Pass Generator::begin(const Rows& rows, std::shared_ptr<KeyValueCache> cache,
                                 KeyValueCache::Reads reads) {
  Context ctx = model_.context();
  if (cache) ctx.attach(cache);
  if (options_.logit_factor != 1)
    ctx.attach(std::make_shared<LogitFactor>(LogitFactor{options_.logit_factor}));
  if (adapters() > 0) ctx.attach(std::make_shared<AdapterRows>(rows.adapters));
  Scheduling& scheduling = ctx.own_scheduling();
  scheduling.run.sequence_parallel = false;  // few rows, and slots do not move between ranks
  scheduling.run.chunks = 1;
  scheduling.run.recompute = {};
  scheduling.step = state_.get();
  state_->prefetcher.begin_pass();
  if (cache) cache->begin_pass(ctx, rows.slots, rows.positions, reads);
  Tokens tokens = make_tokens(ctx, rows.ids, {}, {1, std::ssize(rows.ids)},
                              {.positions = rows.positions,
                               .starts = rows.starts,
                               .lengths = rows.lengths,
                               .short_sequences = model_.config().model.short_sequences(),
                               .reach = context_,
                               .whole = true});
  return {std::move(ctx), std::move(tokens)};
}

/// Returns this rank's piece of the logits, (n, V/Gx), of the rows that need them.
Tensor Generator::logits(const Rows& rows, const Pass& pass, KeyValueCache::Reads reads) {
  const std::vector<std::int64_t> any{0};
  const auto& from = rows.needed.empty() ? any : rows.needed;
  const auto compute = [&](const Tokens& tokens) {
    return model_.model().next_logits(pass.ctx, tokens, from);
  };
  const auto wanted = std::ssize(rows.needed);
  const bool decodes = reads == KeyValueCache::Reads::kept && wanted > 0 && !rows.drafts &&
                       rows.needed.back() == wanted - 1 && rows.real == wanted;
  return graphs_ && decodes ? graphs_->run(pass.ctx, *cache_, pass.tokens, wanted, compute)
                            : compute(pass.tokens);
}

/// Sets the scores of drawn tokens to minus their losses by this rank's piece of the logits.
void Generator::score_as_trained(const Pass& pass, const Tensor& logits,
                                 std::vector<RowResult>& rows) const {
  std::vector<std::int32_t> targets;
  for (const RowResult& row : rows)
    targets.push_back(row.after.tokens.empty() ? -1 : row.after.tokens[0]);
  const Tensor losses =
      losses_of_logits(pass.ctx, logits, pass.ctx.on_device(targets), model_.model().vocab());
  const std::vector<float> values = host_values(model_.context(), losses);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (targets[i] >= 0 && !rows[i].after.score.empty())
      rows[i].after.score.front() = std::bit_cast<std::int32_t>(-values[i]);
}

/// Computes this coordinate's embeddings (H): appends them to the scores of `drawn`.
void Generator::embed(const GenerationPass& work, Drawn& drawn) {
  const auto& parts = work.of_coordinate[coordinate()];
  Rows rows{.trained_positions = options_.trained_positions};
  for (const PassPart& part : parts) rows.add(part, false);
  rows.fill_up();
  const Pass pass = begin(rows, nullptr, work.reads);
  const Tensor states = model_.model().hidden_states(pass.ctx, pass.tokens);
  const std::vector<float> values = host_values(model_.context(), states);
  const std::int64_t piece = states.cols();
  std::vector<float> pooled;
  std::int64_t row = 0;
  for (const PassPart& part : parts) {
    const bool mean = part.sequence->options.pooling == Pooling::mean;
    const std::int64_t count = mean ? part.count : 1, end = row + part.count;
    for (std::int64_t column = 0; column < piece; ++column) {
      double sum = 0;
      for (std::int64_t i = end - count; i < end; ++i) sum += values[i * piece + column];
      pooled.push_back(static_cast<float>(sum / static_cast<double>(count)));
    }
    row = end;
  }
  pooled = gather_columns(model_.grid().along(Axis::y), std::move(pooled), std::ssize(parts),
                          "embeddings");
  AXONN_CHECK(std::ssize(pooled) == std::ssize(parts) * model_.config().model.hidden,
              "embeddings: ", parts.size(), " have ", pooled.size(),
              " values, but model.hidden is ", model_.config().model.hidden);
  for (const float value : pooled) drawn.scores.push_back(std::bit_cast<std::int32_t>(value));
}

/// What follows a row of a pass with logits (V), which it changes: draws a token, or scores the one
/// that the prompt has there. `ahead`: rows of the part from this one on.
Generator::AfterRow Generator::after_row(const PassPart& part, std::int64_t ahead,
                                         std::span<float> logits) const {
  const GeneratedSequence& sequence = *part.sequence;
  const GenerationOptions& options = sequence.options;
  const std::span<float> known = logits.first(model_.model().vocab());
  AfterRow after;
  if (sequence.search && part.last()) {
    append(after.score, score_of(beam_row(known, part, vocab_), options));
    return after;
  }
  const auto score = [&](std::span<const float> of, std::int32_t token) {
    append(after.score, score_of(of, token, options.likeliest, vocab_));
  };
  if (ahead > 1 || !part.last()) {  // the prompt's next token is known
    score(known, sequence.tokens[sequence.begin + sequence.cached + part.count - ahead + 1]);
    return after;
  }
  std::vector<float> raw;  // without the penalty
  if (options.likeliest >= 0) raw.assign(known.begin(), known.end());
  after.tokens = {draw(sequence, logits)};
  if (!raw.empty()) score(raw, std::max(after.tokens[0], 0));
  return after;
}

/// Threads that choose tokens from so many logits: one where the compute threads keep the cores.
int Generator::host_threads(std::size_t values) const {
  constexpr std::size_t kEach = 100'000;  // fewer take less time than to start a thread
  if (model_.backend().device().memory() != Memory::gpu) return 1;
  return std::clamp(static_cast<int>(values / kEach), 1, std::max(model_.threads(), 1));
}

/// Computes this coordinate's parts: appends its tokens and scores to those of `drawn`.
void Generator::compute(const GenerationPass& work, Drawn& drawn) {
  const auto& parts = work.of_coordinate[coordinate()];
  Rows rows{.trained_positions = options_.trained_positions};
  const bool aligned =
      options_.trained_positions > 0 && work.reads == KeyValueCache::Reads::own_rows;
  for (const PassPart& part : parts) rows.add(part, aligned);
  rows.fill_up();
  const Pass pass = begin(rows, cache_, work.reads);
  const Tensor mine = logits(rows, pass, work.reads);
  std::vector<float> all = gather_columns(
      model_.grid().along(Axis::x), host_values(model_.context(), mine), mine.rows(), "logits");
  const std::size_t each = all.size() / std::max<std::size_t>(rows.needed.size(), 1);
  std::vector<RowResult> with_logits;
  std::size_t first = 0;
  for (const PassPart& part : parts) {
    const auto at_once = std::ssize(part.draft) + 1;
    for (std::int64_t i = part.rows_with_logits(); i > 0; i -= at_once, first += at_once)
      with_logits.push_back({.part = &part, .ahead = i, .first = first});
  }
  // Rows may share a form, which keeps what it computed and is for one thread.
  const bool forms = std::ranges::any_of(
      parts, [](const PassPart& part) { return part.sequence->constraint != nullptr; });
  parallel_for(with_logits.size(), forms ? 1 : host_threads(all.size()), [&](std::size_t i) {
    RowResult& row = with_logits[i];
    const std::size_t count = row.part->draft.size() + 1;
    const auto of_row = std::span(all).subspan(each * row.first, each * count);
    if (count == 1)
      row.after = after_row(*row.part, row.ahead, of_row);
    else
      row.after.tokens = draw_along_draft(*row.part, of_row);
  });
  if (options_.trained_positions > 0 && !with_logits.empty())
    score_as_trained(pass, mine, with_logits);
  for (const RowResult& row : with_logits) {
    std::ranges::copy(row.after.tokens, drawn.tokens.begin() + row.part->slot * drawn.each);
    std::ranges::copy(row.after.score, std::back_inserter(drawn.scores));
  }
}

Generator::Drawn Generator::pass(const GenerationPass& work) {
  const std::ptrdiff_t each = work.drafted + 1;
  Drawn drawn{
      .tokens = std::vector<std::int32_t>(slots_.slots * each, -1), .scores = {}, .each = each};
  // A rank without rows must still take part when weights are gathered over z, and when it has
  // experts for other ranks' rows.
  const Grid& grid = model_.grid();
  const bool others_need_it = !options_.hold_weights || grid.shape().experts > 1;
  if (others_need_it || !work.of_coordinate[coordinate()].empty())
    work.embeds ? embed(work, drawn) : compute(work, drawn);
  std::size_t words = 0;
  for (const auto& parts : work.of_coordinate)
    words = std::max(words,
                     work.embeds ? parts.size() * model_.config().model.hidden : words_of(parts));
  drawn.tokens = gather_places(model_.grid(), std::move(drawn.tokens));
  drawn.scores.resize(words);
  if (words > 0) drawn.scores = gather_places(model_.grid(), std::move(drawn.scores));
  return drawn;
}

/// Ends the sequences of a pass of embeddings.
void Generator::step_embeddings(const GenerationPass& work, const Drawn& drawn,
                                const Callbacks& to) {
  const auto width = static_cast<std::size_t>(model_.config().model.hidden);
  for (std::size_t coordinate = 0; coordinate < work.of_coordinate.size(); ++coordinate) {
    std::size_t at = drawn.scores.size() / slots_.coordinates * coordinate;
    for (const PassPart& part : work.of_coordinate[coordinate]) {
      Generation result;
      for (const std::int32_t word : std::span(drawn.scores).subspan(at, width))
        result.embedding.push_back(std::bit_cast<float>(word));
      at += width;
      stats_.prompt_tokens += part.count;
      end(part.sequence->number, std::move(result), to);
    }
  }
}

void Generator::step(const OnText& on_text, const OnEnd& on_end) {
  AXONN_CHECK(slots_.slots > 0 && !idle(),
              "Generator::step: there is no prompt; call reserve() and add() first");
  if (options_.hold_weights && !held_)
    held_ = std::make_unique<HeldWeights>(model_.context(), model_.model().groups());
  GenerationPass work = schedule_->next();
  const double start = now_seconds();
  if (drafter_ && work.reads == KeyValueCache::Reads::kept && !work.embeds) drafter_->write(work);
  const Drawn drawn = pass(work);
  const bool prompts_read = work.reads == KeyValueCache::Reads::own_rows;
  (prompts_read ? stats_.prompt_seconds : stats_.seconds) += now_seconds() - start;
  const Callbacks to{on_text, on_end};
  if (work.embeds) return step_embeddings(work, drawn, to);
  for (std::int64_t coordinate = 0; coordinate < slots_.coordinates; ++coordinate) {
    const std::size_t words = drawn.scores.size() / slots_.coordinates;
    auto scores = std::span(drawn.scores).subspan(coordinate * words, words);
    std::vector<TokenScore> of_sequence;
    for (const PassPart& part : work.of_coordinate[coordinate]) {
      const auto tokens = drawn.of(coordinate * slots_.slots + part.slot);
      const std::int64_t kept = kept_of_draft(part, tokens);
      stats_.drafted += std::ssize(part.draft);
      stats_.kept += kept;
      (prompts_read ? stats_.prompt_tokens : stats_.tokens) += part.count + kept;
      GeneratedSequence& sequence = *part.sequence;
      const bool draws = part.last();
      for (std::int64_t i = part.scored(); i > 0; --i)
        of_sequence.push_back(take_score(scores, sequence.likeliest()));
      if (!part.ends_sequence()) continue;
      if (cache_) sequence.cached += part.count + kept;
      if (!part.draft.empty())
        sequence.draft_length = next_draft_length(std::ssize(part.draft), kept, options_.drafts);
      auto mine = std::exchange(of_sequence, {});
      if (!sequence.search)
        step_tokens(sequence, tokens.first(kept + 1), std::move(mine), to);
      else if (draws)
        step_beams(sequence, coordinate, mine, to);
    }
  }
}

std::vector<Generation> Generator::generate(const std::vector<std::vector<std::int32_t>>& prompts,
                                            const GenerationOptions& options,
                                            const OnText& on_text) {
  stats_ = {};
  std::vector<Generation> results(prompts.size());
  if (prompts.empty()) return results;
  for (std::size_t i = 0; i < prompts.size(); ++i) try {
      check(prompts[i], options);
    } catch (const UsageError& error) {
      refuse("prompt ", i, ": ", error.what());
    }
  reserve(prompts.size(), options.beams.beams);
  const std::size_t first = next_number_;
  GenerationOptions mine = options;
  for (const auto& prompt : prompts) {
    add(prompt, mine);
    ++mine.random_stream;
  }
  const struct Release {
    Generator& of;
    ~Release() {
      if (of.graphs_) of.graphs_->forget();  // they read the weights where they lie
      of.held_.reset();
    }
  } release{*this};
  OnText on_mine;
  if (on_text)
    on_mine = [&](std::size_t number, std::string_view text, const Generation& so_far) {
      on_text(number - first, text, so_far);
    };
  while (!idle())
    step(on_mine, [&](std::size_t number, Generation result) {
      results[number - first] = std::move(result);
    });
  return results;
}

}  // namespace axonn
