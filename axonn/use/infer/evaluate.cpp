#include "axonn/use/infer/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/data/corpus/packed_stream.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/use/infer/logits.h"

namespace axonn {

namespace {

/// The tokens [begin, begin + count) of a text, begin > 0, as targets: first tokens of documents
/// that are not joined are -1.
std::vector<std::int32_t> targets_of(const EvaluationText& text, std::int64_t begin,
                                     std::int64_t count) {
  DocumentRule rule = text.documents;
  if (rule.mode == DocumentMode::packed) rule.end_of_text = -1;  // only the source's documents
  Sequence read{.ids = std::vector<std::int32_t>(count),
                .targets = std::vector<std::int32_t>(count)};
  text.tokens->read(begin - 1, read.ids);
  text.tokens->read(begin, read.targets);
  divide_documents(*text.tokens, begin - 1, rule, read);
  return read.targets;
}

/// Returns the bytes of all targets; empty if the tokenizer does not know one of the tokens.
std::optional<std::int64_t> bytes_of_targets(const EvaluationText& text, std::int64_t vocab,
                                             const Tokenizer* tokenizer) {
  constexpr std::int64_t kTokensAtOnce = 1 << 16;
  const TokenSource& source = *text.tokens;
  std::vector<std::int64_t> bytes;
  for (std::int32_t token = 0; tokenizer && token < tokenizer->vocab_size(); ++token)
    bytes.push_back(tokenizer->is_special(token) ? 0 : std::ssize(tokenizer->bytes_of(token)));
  bool known = tokenizer != nullptr;
  std::int64_t total = 0;
  std::vector<std::int32_t> tokens(1);
  for (std::int64_t begin = 0; begin < source.size(); begin += std::ssize(tokens)) {
    if (begin > 0) tokens.resize(std::min(kTokensAtOnce, source.size() - begin));
    source.read_checked(begin, tokens, vocab);
    for (const std::int32_t token : tokens) known = known && token < std::ssize(bytes);
    if (!known || begin == 0) continue;
    for (const std::int32_t target : targets_of(text, begin, std::ssize(tokens)))
      if (target >= 0) total += bytes[target];
  }
  if (!known) return std::nullopt;
  return total;
}

/// The text has a beginning-of-text token, if there is one, and no end-of-text token; lines of JSON
/// have both.
EvaluationText open_text(const std::string& path, const Tokenizer& tokenizer, std::int64_t vocab,
                         const DocumentRule& documents, const TokenizeReport& report) {
  const bool lines = is_json_lines(path);
  EvaluationText result{
      .tokens = tokenize_in_memory({path}, tokenizer, {.ends = lines, .report = report}),
      .target_bytes = {},
      .documents = documents};
  if (result.tokens->size() == 0) return result;
  if (lines || !is_stored_as_text(path) || documents.mode != DocumentMode::joined) {
    result.target_bytes = bytes_of_targets(result, vocab, &tokenizer);
    return result;
  }
  const InputFile file(path);
  const std::int32_t first_token = result.tokens->at(0);
  const std::string first = tokenizer.decode({&first_token, 1});
  std::string begin(std::min<std::size_t>(first.size(), file.bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  result.target_bytes = file.bytes() - (begin == first ? std::ssize(first) : 0);
  return result;
}

/// Sequences as a rank's tokens. Rows without a target have target -1.
struct Batch {
  Rows rows;
  std::vector<std::int32_t> ids, targets, positions, starts, lengths;
};

/// Makes the rows of a sequence, from the row `begin` on, those of its documents.
void add_places(const Sequence& sequence, std::int64_t begin, Batch& batch) {
  if (sequence.starts.empty()) return;
  if (batch.starts.empty()) {  // all other sequences are one document each
    batch.starts.assign(batch.ids.size(), 0);
    for (std::size_t row = 0; row < batch.ids.size(); ++row)
      batch.positions.push_back(static_cast<std::int32_t>(row % batch.rows.positions));
  }
  std::ranges::copy(sequence.positions, batch.positions.begin() + begin);
  std::ranges::copy(sequence.starts, batch.starts.begin() + begin);
}

/// The sequence, which is number n. Throws Error if it cannot be scored.
const ScoredSequence& checked(const ScoredSequence& one, std::int64_t vocab, std::int64_t n) {
  const bool divided = !one.divided.ids.empty();
  const std::int64_t inputs = divided ? std::ssize(one.divided.ids) : std::ssize(one.tokens) - 1;
  AXONN_CHECK(inputs >= 0 && one.scored >= 0 && (divided || one.scored <= inputs),
              "score: sequence ", n, " has ", one.tokens.size(), " tokens, of which ", one.scored,
              " are scored; wanted fewer than there are");
  AXONN_CHECK(one.positions >= inputs, "score: sequence ", n, " computes ", one.positions,
              " positions of ", inputs, "; wanted ScoredSequence::positions of at least as many");
  for (const std::int32_t token : divided ? one.divided.ids : one.tokens)
    AXONN_CHECK(token >= 0 && token < vocab, "score: sequence ", n, " has token ", token,
                ", but the model's vocabulary has ", vocab);
  return one;
}

/// Reads sequences [first, first + count), as long as the longest of them and a multiple of `unit`.
/// Those beyond the last have no targets.
Batch read_batch(const ScoredSequences& sequences, std::int64_t first, std::int64_t count,
                 std::int64_t unit, std::int64_t vocab) {
  std::vector<ScoredSequence> read;
  std::int64_t length = 1;
  for (std::int64_t n = first; n < std::min(first + count, sequences.count); ++n)
    length = std::max(length, checked(read.emplace_back(sequences.at(n)), vocab, n).positions);
  length = (length + unit - 1) / unit * unit;
  Batch batch{.rows = {count, length}};
  batch.ids.assign(count * length, 0);
  batch.targets.assign(count * length, -1);
  batch.lengths.assign(count * length, 0);
  std::int64_t row = 0;
  for (const auto& [tokens, scored, positions, divided] : read) {
    const std::int64_t inputs =
        divided.ids.empty() ? std::ssize(tokens) - 1 : std::ssize(divided.ids);
    std::fill_n(batch.lengths.begin() + row, length, static_cast<std::int32_t>(inputs));
    if (divided.ids.empty()) {
      std::copy_n(tokens.begin(), inputs, batch.ids.begin() + row);
      std::copy_n(tokens.end() - scored, scored, batch.targets.begin() + row + inputs - scored);
    } else {
      std::ranges::copy(divided.ids, batch.ids.begin() + row);
      std::ranges::copy(divided.targets, batch.targets.begin() + row);
      add_places(divided, row, batch);
    }
    row += length;
  }
  return batch;
}

/// A target of a batch.
struct TargetPlace {
  std::int64_t sequence, position;  ///< of its input
};

/// The figures of a target: its loss and greedy flag, or its record.
using TakeTarget = std::function<void(TargetPlace at, std::span<const float> figures)>;

/// Computes the sequences in batches, and calls `take` for every target that this rank counts,
/// those of a sequence in order. If `records` are given, the figures are these. Collective.
void each_target(LoadedModel& model, const ScoredSequences& sequences, const ScoreOptions& options,
                 const std::shared_ptr<TokenRecords>& records, const TakeTarget& take) {
  AXONN_CHECK(options.batch > 0, "score: ", options.batch,
              " sequences at a time; options.batch must be at least 1");
  AXONN_CHECK(sequences.count == 0 || sequences.at, "score: there is no function `at` that gives ",
              sequences.count, " sequences");
  const Grid& grid = model.grid();
  const std::int64_t round = options.batch * grid.batch_coordinates();
  const bool counts = grid.coord(Axis::x) == 0 && grid.coord(Axis::y) == 0;
  const std::int64_t unit = unit_of_cut(grid.shape().context);
  StepState state;
  Context ctx = model.context();
  ctx.own_scheduling().step = &state;
  check_kept_form(model, options.kept);
  ctx.attach(std::make_shared<KeptForm>(options.kept));
  if (records) ctx.attach(records);
  const std::int64_t columns = records ? records->columns() : 2;
  for (std::int64_t first = 0; first < sequences.count; first += round) {
    // Every rank computes in every round, because the weights are gathered over z.
    const std::int64_t mine = first + grid.batch_coordinate() * options.batch;
    const Batch batch =
        read_batch(sequences, mine, options.batch, unit, model.config().model.vocab);
    state.prefetcher.begin_pass();
    const Tokens tokens = make_tokens(ctx, batch.ids, batch.targets, batch.rows,
                                      {.positions = batch.positions,
                                       .starts = batch.starts,
                                       .lengths = batch.lengths,
                                       .short_sequences = model.config().model.short_sequences()});
    const Tensor figures = model.model().target_losses(ctx, tokens);
    if (figures.cols() != columns)
      refuse(
          "this model gives no records of tokens; its target_losses() must return TokenRecords "
          "if they are attached, as LanguageModel does");
    std::vector<float> host(figures.count());
    ctx.device().copy_to_host(host.data(), figures.view().data, figures.bytes());
    if (counts)
      tokens.rows.for_each_run([&](std::int64_t begin, std::int64_t count, std::int64_t number) {
        const std::int64_t length = batch.rows.positions;
        for (std::int64_t row = begin; row < begin + count; ++row, ++number)
          if (batch.targets[number] >= 0)
            take({mine + number / length, number % length},
                 std::span(host).subspan(row * columns, columns));
      });
    if (options.report && grid.world().rank() == 0)
      options.report(std::min(first + round, sequences.count));
  }
}

}  // namespace

std::vector<SequenceScore> score(LoadedModel& model, const ScoredSequences& sequences,
                                 const ScoreOptions& options) {
  enum Sum : std::int64_t { nats, targets, greedy, kSums };  // of each sequence
  std::vector<double> sums(sequences.count * kSums);
  each_target(model, sequences, options, nullptr,
              [&](TargetPlace at, std::span<const float> figures) {
                double* sum = &sums[at.sequence * kSums];
                sum[nats] += figures[0];
                sum[targets] += 1;
                sum[greedy] += figures[1];
              });
  // Only one rank has a sequence's sums and the others have zeros, so the order of the sum changes
  // no bit, unless ranks share sequences.
  model.grid().world().all_reduce(buffer(std::span(sums)), "scores").wait();

  std::vector<SequenceScore> scores(sequences.count);
  for (std::size_t n = 0; n < scores.size(); ++n) {
    const double* sum = &sums[n * kSums];
    AXONN_CHECK(std::isfinite(sum[nats]), "score: the losses of sequence ", n, " add up to ",
                sum[nats], "; the model's parameters are damaged");
    scores[n] = {sum[nats], std::llround(sum[targets]), std::llround(sum[greedy])};
  }
  return scores;
}

namespace {

/// The figures of all targets on every rank, those of one after another.
struct GatheredFigures {
  std::int64_t columns;
  std::vector<std::int64_t> begins;  ///< first target of each sequence, and the end
  std::vector<float> values;

  std::span<const float> of(std::int64_t target) const {
    return std::span(values).subspan(target * columns, columns);
  }
};

GatheredFigures gather_figures(LoadedModel& model, const ScoredSequences& sequences,
                               const ScoreOptions& options,
                               const std::shared_ptr<TokenRecords>& records) {
  GatheredFigures all{records ? records->columns() : 2, {0}, {}};
  std::vector<std::int64_t> first;  // of the inputs that have targets
  for (std::int64_t n = 0; n < sequences.count; ++n) {
    const ScoredSequence one = sequences.at(n);
    AXONN_CHECK(one.divided.ids.empty(), "score_targets: sequence ", n, " has documents");
    first.push_back(std::ssize(one.tokens) - 1 - one.scored);
    all.begins.push_back(all.begins.back() + one.scored);
  }
  all.values.resize(all.begins.back() * all.columns);
  each_target(
      model, sequences, options, records, [&](TargetPlace at, std::span<const float> figures) {
        const std::int64_t target = all.begins[at.sequence] + at.position - first[at.sequence];
        std::ranges::copy(figures, all.values.begin() + target * all.columns);
      });
  // One rank has a target's values and the others have zeros.
  model.grid().world().all_reduce(buffer(std::span(all.values)), "scores of targets").wait();
  return all;
}

}  // namespace

std::vector<TargetScores> score_targets(LoadedModel& model, const ScoredSequences& sequences,
                                        const ScoreOptions& options) {
  const GatheredFigures all = gather_figures(model, sequences, options, nullptr);
  std::vector<TargetScores> scores(sequences.count);
  for (std::int64_t n = 0; n < sequences.count; ++n)
    for (std::int64_t target = all.begins[n]; target < all.begins[n + 1]; ++target) {
      scores[n].losses.push_back(all.of(target)[0]);
      scores[n].greedy.push_back(all.of(target)[1] != 0);
    }
  return scores;
}

std::vector<std::vector<TargetRecord>> record_targets(LoadedModel& model,
                                                      const ScoredSequences& sequences,
                                                      std::span<const SamplingPolicy> policies,
                                                      const ScoreOptions& options) {
  const auto records = std::make_shared<TokenRecords>();
  records->policies.assign(policies.begin(), policies.end());
  const GatheredFigures all = gather_figures(model, sequences, options, records);
  std::vector<std::vector<TargetRecord>> of_sequences(sequences.count);
  for (std::int64_t n = 0; n < sequences.count; ++n)
    for (std::int64_t target = all.begins[n]; target < all.begins[n + 1]; ++target) {
      const std::span<const float> figures = all.of(target),
                                   log_q = figures.subspan(TokenRecords::kFigures);
      of_sequences[n].push_back({.log_p = figures[0],
                                 .rank = std::llround(figures[1]),
                                 .mean = figures[2],
                                 .variance = figures[3],
                                 .log_q = {log_q.begin(), log_q.end()}});
    }
  return of_sequences;
}

std::int64_t usual_batch(const Grid& grid, std::int64_t length, std::int64_t count) {
  constexpr std::int64_t kRowsAtOnce = 2048;
  const std::int64_t coordinates = grid.batch_coordinates();
  return std::max<std::int64_t>(std::min(std::max<std::int64_t>(kRowsAtOnce / length, 1),
                                         (count + coordinates - 1) / coordinates),
                                1);
}

EvaluationText open_evaluation_text(const std::string& path,
                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                    std::int64_t vocab, const DataConfig& data,
                                    const TokenizeReport& report) {
  const bool is_tokens = TokenFile::recognises(path, data.token_type);
  if (!is_tokens && !tokenizer)
    refuse(path, " is a text, but the model's tokenizer is not known; name it with --tokenizer");
  if (!is_tokens) check_rows(*tokenizer, vocab);
  if (!is_tokens && holds_answers(path))
    return {.tokens = nullptr,
            .target_bytes = {},
            .documents = {.mode = DocumentMode::packed},
            .examples = open_examples(path, data, tokenizer, {.report = report}),
            .excess_length = data.excess_length};
  EvaluationText result{.tokens = nullptr,
                        .target_bytes = {},
                        .documents = document_rule(data, tokenizer.get(), vocab)};
  if (is_tokens) {
    result.tokens = std::make_shared<TokenFile>(path, data.token_type);
    if (result.tokens->size() > 0)
      result.target_bytes = bytes_of_targets(result, vocab, tokenizer.get());
  } else {
    result = open_text(path, *tokenizer, vocab, result.documents, report);
  }
  check_documents(result.documents, *result.tokens, tokenizer.get());
  if (result.tokens->size() < 2)
    refuse(path, " has ", result.tokens->size(),
           " tokens; it needs at least two tokens: one input and one target");
  return result;
}

std::optional<double> TextScore::bits_per_byte() const {
  if (!bytes || *bytes == 0) return std::nullopt;
  return nats / std::numbers::ln2 / static_cast<double>(*bytes);
}

namespace {

/// The packed documents or examples of a text; null if they are not packed.
std::unique_ptr<Sequences> packed_sequences(const EvaluationText& text, std::int64_t seq_len,
                                            std::int64_t vocab) {
  if (!text.tokens)
    return std::make_unique<PackedDocuments>(text.examples, seq_len, vocab, text.excess_length);
  if (text.documents.mode != DocumentMode::packed) return nullptr;
  const std::vector<TokenStream> all{{.source = text.tokens, .end = text.tokens->size()}};
  return std::make_unique<PackedStream>(all, seq_len, vocab);
}

}  // namespace

std::int64_t evaluation_windows(const EvaluationText& text, std::int64_t seq_len) {
  if (const auto packed = packed_sequences(text, seq_len, 0)) return packed->count();
  return (text.tokens->size() - 2) / seq_len + 1;
}

TextScore evaluate(LoadedModel& model, const EvaluationText& text, std::int64_t seq_len,
                   const ScoreOptions& options) {
  const std::int64_t positions = model.config().model.positions;
  if (seq_len < 1 || seq_len > positions)
    refuse("windows of ", seq_len, " tokens (--seq-len) do not fit the model, which has ",
           positions, " positions");
  AXONN_CHECK(text.tokens || text.examples.documents,
              "evaluate: the text has no tokens; open_evaluation_text() opens one");
  const auto packed = packed_sequences(text, seq_len, model.model().vocab());
  const auto window = [&](std::int64_t n) {
    if (packed) {
      ScoredSequence read{.positions = seq_len};
      packed->read(n, read.divided);
      return read;
    }
    const TokenSource& tokens = *text.tokens;
    const std::int64_t targets = std::min(seq_len, tokens.size() - 1 - n * seq_len);
    ScoredSequence read{
        .tokens = std::vector<std::int32_t>(targets + 1), .scored = targets, .positions = targets};
    tokens.read_checked(n * seq_len, read.tokens, model.model().vocab());
    if (text.documents.mode != DocumentMode::joined) {
      read.divided = {.ids = {read.tokens.begin(), read.tokens.end() - 1},
                      .targets = {read.tokens.begin() + 1, read.tokens.end()}};
      divide_documents(tokens, n * seq_len, text.documents, read.divided);
    }
    return read;
  };
  TextScore result{.bytes = text.target_bytes};
  const std::int64_t count = evaluation_windows(text, seq_len);
  for (const SequenceScore& one : score(model, {.count = count, .at = window}, options)) {
    result.nats += one.nats;
    result.tokens += one.targets;
  }
  if (result.tokens == 0)
    refuse(text.tokens->name(),
           " has no targets: every token is the first of its document; join them "
           "with --document-mode joined");
  return result;
}

}  // namespace axonn
