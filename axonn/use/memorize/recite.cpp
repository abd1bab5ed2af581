#include "axonn/use/memorize/recite.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/log.h"
#include "axonn/use/infer/evaluate.h"
#include "axonn/use/infer/generator.h"
#include "axonn/use/memorize/near_recite.h"
#include "axonn/use/memorize/reading.h"
#include "axonn/use/memorize/references.h"

namespace axonn {

namespace {

/// Tokens that are scored at a time if the caller sets no batch: scoring needs memory for each.
constexpr std::int64_t kRowsAtOnce = 8192;

/// Questions of a round for each batch coordinate, at least: so many the generator writes at once.
constexpr std::int64_t kQuestionsAtOnce = 64;

/// Tokens at the prompt's end that a report shows.
constexpr std::int64_t kShownBefore = 120;

/// A document and a prompt that it is long enough for.
struct QuestionIndex {
  std::int32_t document, prompt;  // prompt: index into prompt_lengths
};

/// What a question asks of a document of this many tokens; the suffix follows the prompt.
struct QuestionShape {
  std::int64_t begin, taken, suffix;  // begin: of the prompt in the document
  bool possible;                      // the document is long enough
};

/// One document to recite from a prompt of one length.
struct Question {
  std::int64_t document, length;         // length: index into prompt_lengths
  bool whole;                            // the prompt is all that is before the suffix
  StudyDocument of;                      // which the spans refer to
  std::span<const std::int32_t> before;  // the prompt, which gets a begin-of-text token if cut
  std::span<const std::int32_t> suffix;
  std::span<const std::int32_t> begin;

  std::vector<std::int32_t> prompt() const {
    std::vector<std::int32_t> tokens(begin.begin(), begin.end());
    tokens.insert(tokens.end(), before.begin(), before.end());
    return tokens;
  }
};

/// Tokens of the suffix of a prompt.
std::int64_t suffix_of(const ReciteOptions& options, std::size_t prompt) {
  return prompt < options.prompt_suffixes.size() ? options.prompt_suffixes[prompt]
                                                 : options.suffix_tokens;
}

QuestionShape shape_of(const ReciteOptions& options, std::size_t prompt, std::int64_t tokens) {
  const std::int64_t wanted = options.prompt_lengths[prompt], suffix = suffix_of(options, prompt);
  const std::int64_t offset =
      prompt < options.prompt_offsets.size() ? options.prompt_offsets[prompt] : kBeforeSuffix;
  if (offset != kBeforeSuffix)  // the suffix follows the prompt, whatever comes then
    tokens = std::min(tokens, offset + wanted + suffix);
  const std::int64_t before = tokens - suffix, taken = wanted == kWholePrompt ? before : wanted;
  return {
      .begin = before - taken,
      .taken = taken,
      .suffix = suffix,
      .possible = before >= std::max<std::int64_t>(taken + std::max<std::int64_t>(offset, 0), 1)};
}

/// All documents of the first prompt first.
std::vector<QuestionIndex> questions_of(const StudyDocuments& documents,
                                        const ReciteOptions& options) {
  std::vector<QuestionIndex> questions;
  for (std::size_t p = 0; p < options.prompt_lengths.size(); ++p)
    for (std::int64_t d = 0; d < documents.size(); ++d)
      if (shape_of(options, p, documents.length(d)).possible)
        questions.push_back({static_cast<std::int32_t>(d), static_cast<std::int32_t>(p)});
  return questions;
}

Question question_at(const QuestionIndex& index, const StudyDocuments& documents,
                     const Tokenizer& tokenizer, const ReciteOptions& options) {
  Question question{.document = index.document,
                    .length = index.prompt,
                    .whole = is_whole(options, index.prompt),
                    .of = documents[index.document]};
  const std::span<const std::int32_t> tokens = question.of.tokens;
  const QuestionShape shape = shape_of(options, index.prompt, std::ssize(tokens));
  question.before = tokens.subspan(shape.begin, shape.taken);
  question.suffix = tokens.subspan(shape.begin + shape.taken, shape.suffix);
  if (shape.begin > 0) question.begin = tokenizer.begin_of_text();
  return question;
}

/// Positions of the longest question: the last token of a suffix is only a target.
std::int64_t most_positions(std::span<const QuestionIndex> questions,
                            const StudyDocuments& documents, const Tokenizer& tokenizer,
                            const ReciteOptions& options) {
  std::int64_t most = 1;
  for (const QuestionIndex& one : questions) {
    const QuestionShape shape = shape_of(options, one.prompt, documents.length(one.document));
    const std::int64_t begin = shape.begin > 0 ? std::ssize(tokenizer.begin_of_text()) : 0;
    most = std::max(most, begin + shape.taken + shape.suffix - 1);
  }
  return most;
}

/// Decoded, after other text.
std::string text_of(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer) {
  return tokenizer.decode(tokens, {.skip_special = true, .continues = true});
}

/// The prompt, with its true suffix as targets; a whole prompt is one, too.
ScoredSequence scored_sequence(const Question& one, std::int64_t most_positions) {
  constexpr std::int64_t kStep = 32;  // rounds up, so that products have few different shapes
  ScoredSequence result{.tokens = one.prompt(), .scored = std::ssize(one.suffix)};
  result.tokens.insert(result.tokens.end(), one.suffix.begin(), one.suffix.end());
  const std::int64_t inputs = std::ssize(result.tokens) - 1;
  if (one.whole) result.scored = inputs;
  result.positions = std::min((inputs + kStep - 1) / kStep * kStep, most_positions);
  return result;
}

/// The result of a question without what the model wrote. `records`: of the prompt's last targets,
/// if there are any, and of the suffix.
Recitation record_of(const Question& question, std::span<const TargetRecord> records,
                     const Tokenizer& tokenizer) {
  const StudyDocument& document = question.of;
  const std::span<const TargetRecord> suffix = records.last(question.suffix.size());
  double nats = 0;
  for (const TargetRecord& one : suffix) nats -= one.log_p;
  AXONN_CHECK(std::isfinite(nats), "recite: the losses of ", document.name, " add up to ", nats,
              "; the model's parameters are damaged");
  Recitation result{.document = question.document,
                    .prompt = question.length,
                    .loss = nats / static_cast<double>(suffix.size()),
                    .record = suffix_record(suffix)};
  result.exact = result.record->greedy_exact;  // unless the model writes
  if (!question.whole) return result;
  result.scores =
      membership_scores(records, tokenizer.decode(document.tokens, {.skip_special = true}));
  if (document.bits_of > 0 && document.bits_of <= std::ssize(records)) {
    Information& information = result.information.emplace(Information{.bits = document.bits});
    for (const TargetRecord& one : records.last(document.bits_of))
      information.coded -= one.log_p / std::numbers::ln2;
  }
  return result;
}

void add_texts(const Question& question, std::span<const std::int32_t> written,
               const Tokenizer& tokenizer, Recitation& result) {
  compare_tokens(question.suffix, written, result);
  const std::vector<std::int32_t> prompt = question.prompt();
  const auto shown = std::min<std::size_t>(prompt.size(), kShownBefore);
  result.texts->before = tokenizer.decode(
      std::span(prompt).last(shown), {.skip_special = true, .continues = shown < prompt.size()});
  result.texts->truth = text_of(question.suffix, tokenizer);
  result.texts->written = text_of(written, tokenizer);
}

std::string found_note(const char* what, const FoundDocuments& documents) {
  std::string note = fmt::format("{} of {} {} were tested", documents.documents.size(),
                                 format_count(documents.found), what);
  if (documents.too_short > 0) note += fmt::format("; {} are too short", documents.too_short);
  if (documents.repeated > 0) note += fmt::format("; {} are duplicates", documents.repeated);
  return note;
}

}  // namespace

void add_sweeps(ReciteOptions& options, std::span<const std::int64_t> offsets,
                std::span<const std::int64_t> suffixes) {
  const std::vector<std::int64_t> lengths = options.prompt_lengths;
  options.prompt_offsets.assign(lengths.size(), kBeforeSuffix);
  for (const std::int64_t offset : offsets)
    for (const std::int64_t length : lengths)
      if (length != kWholePrompt) {
        options.prompt_lengths.push_back(length);
        options.prompt_offsets.push_back(offset);
      }
  const std::vector<std::int64_t> all = options.prompt_lengths, begins = options.prompt_offsets;
  options.prompt_suffixes.assign(all.size(), options.suffix_tokens);
  for (const std::int64_t suffix : suffixes) {
    options.prompt_lengths.insert(options.prompt_lengths.end(), all.begin(), all.end());
    options.prompt_offsets.insert(options.prompt_offsets.end(), begins.begin(), begins.end());
    options.prompt_suffixes.insert(options.prompt_suffixes.end(), all.size(), suffix);
  }
}

bool is_whole(const ReciteOptions& options, std::int64_t prompt) {
  return options.prompt_lengths.at(prompt) == kWholePrompt &&
         suffix_of(options, prompt) == options.suffix_tokens;
}

namespace {

/// Asks questions round by round.
class Reciter {
 public:
  /// longest: positions of the longest question.
  Reciter(LoadedModel& model, const Tokenizer& tokenizer, const ReciteOptions& options,
          std::int64_t longest)
      : model_(model),
        tokenizer_(tokenizer),
        batch_(options.batch > 0 ? options.batch
                                 : std::max<std::int64_t>(kRowsAtOnce / longest, 1)),
        policies_(parse_policies(options.policies, "policies")) {
    if (options.writes)
      generator_.emplace(model, Generator::Options{.batch = options.batch,
                                                   .context = longest,
                                                   .hold_weights = options.hold_weights,
                                                   .tokenizer = &tokenizer});
  }

  /// Questions between progress reports: whole batches, and no more, since a kill loses them.
  std::int64_t round() const {
    return (kQuestionsAtOnce + batch_ - 1) / batch_ * batch_ * model_.grid().batch_coordinates();
  }

  std::vector<Recitation> ask(std::span<const Question> questions) {
    const auto sequence = [&](std::int64_t n) {
      return scored_sequence(questions[n], model_.config().model.positions);
    };
    const auto records = record_targets(model_, {.count = std::ssize(questions), .at = sequence},
                                        policies_, {.batch = batch_});
    std::vector<Recitation> made;
    for (std::size_t q = 0; q < questions.size(); ++q)
      made.push_back(record_of(questions[q], records[q], tokenizer_));
    if (!generator_) return made;
    std::vector<std::vector<std::int32_t>> prompts;
    for (const Question& one : questions) prompts.push_back(one.prompt());
    const auto size_of = [](const Question& one) { return std::ssize(one.suffix); };
    const std::int64_t longest = std::ranges::max(questions | std::views::transform(size_of));
    const auto written = generator_->generate(prompts, {.max_tokens = longest});
    for (std::size_t q = 0; q < questions.size(); ++q) {
      const std::span<const std::int32_t> tokens = written[q].tokens;
      add_texts(questions[q], tokens.first(std::min(tokens.size(), questions[q].suffix.size())),
                tokenizer_, made[q]);
    }
    return made;
  }

 private:
  LoadedModel& model_;
  const Tokenizer& tokenizer_;
  std::int64_t batch_;
  std::vector<SamplingPolicy> policies_;
  std::optional<Generator> generator_;
};

/// Recitations that exist, the first of which has this number among all.
std::vector<Recitation> known_recitations(std::span<const QuestionIndex> indices,
                                          std::int64_t first, const AuditPart* part) {
  std::vector<Recitation> known;
  for (const QuestionIndex& index : indices) {
    known.push_back(part ? part->recitation(first + std::ssize(known)) : Recitation());
    known.back().document = index.document;
    known.back().prompt = index.prompt;
  }
  return known;
}

}  // namespace

std::vector<Recitation> recite(LoadedModel& model, const Tokenizer& tokenizer,
                               const StudyDocuments& documents, const ReciteOptions& options) {
  const std::vector<QuestionIndex> questions = questions_of(documents, options);
  if (questions.empty()) return {};
  const std::int64_t positions = model.config().model.positions,
                     most = most_positions(questions, documents, tokenizer, options);
  if (most > positions)
    refuse("a document has ", most + 1, " tokens, but the model has only ", positions,
           " positions; cut the documents (--seq-len, or in a study training.seq_len)");
  Reciter reciter(model, tokenizer, options, most);
  std::vector<Recitation> all;
  all.reserve(questions.size());
  for (std::int64_t first = 0; first < std::ssize(questions); first += reciter.round()) {
    const auto indices = std::span(questions).subspan(
        first, std::min(reciter.round(), std::ssize(questions) - first));
    std::vector<Recitation> some;
    if (options.kept && first + std::ssize(indices) <= options.kept->recitations) {
      some = known_recitations(indices, first, options.part);
    } else {
      std::vector<Question> asked;
      for (const QuestionIndex& index : indices)
        asked.push_back(question_at(index, documents, tokenizer, options));
      some = reciter.ask(asked);
      if (options.part) options.part->append(first, some);
      if (options.progress && model.grid().world().rank() == 0)
        options.progress(kRecitations, first + std::ssize(indices), std::ssize(questions));
    }
    for (Recitation& one : some) {
      if (options.kept) one.texts.reset();
      all.push_back(std::move(one));
    }
  }
  return all;
}

namespace {

void set_blind_scores_against(std::int64_t control, const StudyDocuments& documents,
                              std::span<const std::int64_t> controls,
                              std::span<Recitation> recitations) {
  std::array<std::vector<Recitation*>, 2> kinds;  // members, others
  for (Recitation& r : recitations)
    if (r.scores && controls[r.group] == control) kinds[r.group == control ? 1 : 0].push_back(&r);
  auto& [all, others] = kinds;
  const std::int64_t members = std::ssize(all);
  if (members < 2 || others.size() < 2) return;
  all.insert(all.end(), others.begin(), others.end());
  const auto tokens = [&](std::int64_t n) { return documents[all[n]->document].tokens; };
  const std::vector<double> scores = blind_scores(members, std::ssize(others), tokens);
  for (std::size_t i = 0; i < scores.size(); ++i) all[i]->scores->blind = scores[i];
}

}  // namespace

void set_blind_scores(const StudyDocuments& documents, std::span<const std::int64_t> controls,
                      std::span<Recitation> recitations) {
  for (std::int64_t group = 0; group < std::ssize(controls); ++group)
    if (controls[group] == group) set_blind_scores_against(group, documents, controls, recitations);
}

namespace {

/// before: values that the audit makes before these.
void set_ratios(LoadedModel& model, const StudyDocuments& documents, const ReciteOptions& options,
                std::int64_t before, std::span<Recitation> recitations) {
  using Scores = MembershipScores;
  std::vector<Scores*> scores(documents.size());
  for (Recitation& one : recitations)
    if (one.scores) scores[one.document] = &*one.scores;
  const auto set = [&](std::int64_t n, double ratio, double windows) {
    if (!scores[n]) return;
    scores[n]->ratio = ratio;
    scores[n]->windows = windows;
  };
  const std::int64_t known =
      options.kept ? std::max<std::int64_t>(options.kept->values - before, 0) : 0;
  for (std::int64_t n = 0; options.part && n < known; ++n) {
    const std::vector<double> values = options.part->values(before + n);
    set(n, values.at(0), values.at(1));
  }
  compare_losses(model, *options.reference, documents, known,
                 [&](std::int64_t first, const TokenLosses& own, const TokenLosses& by_other) {
                   std::vector<std::vector<double>> made;
                   for (std::size_t i = 0; i < own.size(); ++i) {
                     Scores one;
                     set_ratio(own[i], std::vector<double>(by_other[i].begin(), by_other[i].end()),
                               one);
                     set(first + static_cast<std::int64_t>(i), one.ratio, one.windows);
                     made.push_back({one.ratio, one.windows});
                   }
                   if (options.part) options.part->append_values(before + first, made);
                   if (options.progress && model.grid().world().rank() == 0)
                     options.progress(kComparisons, first + std::ssize(made), documents.size());
                 });
}

}  // namespace

MemorizationReport audit_model(LoadedModel& model, const Tokenizer& tokenizer,
                               const FoundDocuments& documents, const FoundDocuments& control,
                               const ReciteOptions& options) {
  const StudyDocuments all(documents.documents, control.documents);
  MemorizationReport report{.title = "Memorization audit",
                            .notes = {found_note("documents", documents)},
                            .groups = {"documents"},
                            .group_sizes = {documents.documents.size()},
                            .documents = all,
                            .suffix_tokens = options.suffix_tokens,
                            .prompt_lengths = options.prompt_lengths,
                            .prompt_offsets = options.prompt_offsets,
                            .prompt_suffixes = options.prompt_suffixes};
  if (!control.documents.empty()) {
    report.controls = {1, 1};
    report.groups.push_back("control");
    report.group_sizes.push_back(control.documents.size());
    report.notes.push_back(found_note("control documents", control));
  }

  const double start = now_seconds();
  RecitationRun run{.variant = "", .trial = 1, .seed = 0, .policies = options.policies};
  run.recitations = recite(model, tokenizer, all, options);
  const std::int64_t near = add_near(model, tokenizer, all, options, run.recitations);
  run.test_seconds = now_seconds() - start;
  for (Recitation& one : run.recitations) one.group = one.document >= report.group_sizes[0];
  set_blind_scores(all, report.controls, run.recitations);
  run.readings = readings_of(model, tokenizer, all, options, run.recitations);
  if (options.reference) set_ratios(model, all, options, near, run.recitations);
  if (options.part)
    run.kept = [part = options.part](std::int64_t n) { return part->recitation(n); };
  report.runs.push_back(std::move(run));
  return report;
}

void compare_tokens(std::span<const std::int32_t> truth, std::span<const std::int32_t> written,
                    Recitation& recitation) {
  AXONN_CHECK(!truth.empty(), "compare_tokens: the true text has no tokens");
  const std::size_t n = truth.size(), m = written.size();
  std::int64_t same = 0, longest = 0;
  for (std::size_t i = 0; i < std::min(n, m); ++i) same += truth[i] == written[i];

  // Dynamic programming, one row at a time: lengths of the common runs that end at (i, j), and
  // edit distances of the first i and j tokens.
  std::vector<std::int64_t> runs(m + 1, 0), distance(m + 1);
  std::iota(distance.begin(), distance.end(), 0);
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t run_before = 0, distance_before = distance[0];
    distance[0] = static_cast<std::int64_t>(i) + 1;
    for (std::size_t j = 0; j < m; ++j) {
      const bool equal = truth[i] == written[j];
      const std::int64_t run = equal ? run_before + 1 : 0;
      const std::int64_t least =
          std::min({distance_before + (equal ? 0 : 1), distance[j] + 1, distance[j + 1] + 1});
      run_before = std::exchange(runs[j + 1], run);
      distance_before = std::exchange(distance[j + 1], least);
      longest = std::max(longest, run);
    }
  }
  recitation.exact = std::ranges::equal(truth, written);
  recitation.longest_run = longest;
  recitation.token_accuracy = static_cast<double>(same) / static_cast<double>(n);
  recitation.edit_distance = distance[m];
}

}  // namespace axonn
