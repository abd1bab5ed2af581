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
#include "axonn/use/memorize/references.h"

namespace axonn {

namespace {

/// Tokens that are scored at a time if the caller sets no batch: scoring needs memory for each.
constexpr std::int64_t kRowsAtOnce = 8192;

/// Tokens at the prompt's end that a report shows.
constexpr std::int64_t kShownBefore = 120;

/// One document to recite from a prompt of one length.
struct Question {
  std::int64_t document, length;         // length: index into prompt_lengths
  bool whole;                            // the prompt is all that is before the suffix
  std::span<const std::int32_t> before;  // the prompt, which gets a begin-of-text token if cut
  std::span<const std::int32_t> suffix;
  std::span<const std::int32_t> begin;

  std::vector<std::int32_t> prompt() const {
    std::vector<std::int32_t> tokens(begin.begin(), begin.end());
    tokens.insert(tokens.end(), before.begin(), before.end());
    return tokens;
  }
  std::int64_t prompt_size() const { return std::ssize(begin) + std::ssize(before); }
};

/// Tokens of the suffix of a prompt.
std::int64_t suffix_of(const ReciteOptions& options, std::size_t prompt) {
  return prompt < options.prompt_suffixes.size() ? options.prompt_suffixes[prompt]
                                                 : options.suffix_tokens;
}

std::vector<Question> questions_of(std::span<const StudyDocument> documents,
                                   const Tokenizer& tokenizer, const ReciteOptions& options) {
  std::vector<Question> questions;
  for (std::size_t p = 0; p < options.prompt_lengths.size(); ++p) {
    const std::int64_t wanted = options.prompt_lengths[p], suffix = suffix_of(options, p);
    const std::int64_t offset =
        p < options.prompt_offsets.size() ? options.prompt_offsets[p] : kBeforeSuffix;
    for (std::size_t d = 0; d < documents.size(); ++d) {
      std::span<const std::int32_t> tokens = documents[d].tokens;
      if (offset != kBeforeSuffix)  // the suffix follows the prompt, whatever comes then
        tokens = tokens.first(std::min(std::ssize(tokens), offset + wanted + suffix));
      const std::int64_t before = std::ssize(tokens) - suffix;
      const std::int64_t taken = wanted == kWholePrompt ? before : wanted;
      if (before < std::max<std::int64_t>(taken + std::max<std::int64_t>(offset, 0), 1)) continue;
      Question question{.document = static_cast<std::int64_t>(d),
                        .length = static_cast<std::int64_t>(p),
                        .whole = is_whole(options, static_cast<std::int64_t>(p)),
                        .before = tokens.subspan(before - taken, taken),
                        .suffix = tokens.subspan(before)};
      if (taken < before) question.begin = tokenizer.begin_of_text();
      questions.push_back(question);
    }
  }
  return questions;
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
                     const StudyDocument& document, const Tokenizer& tokenizer) {
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
  result.before = tokenizer.decode(std::span(prompt).last(shown),
                                   {.skip_special = true, .continues = shown < prompt.size()});
  result.truth = text_of(question.suffix, tokenizer);
  result.written = text_of(written, tokenizer);
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
  const std::vector<std::int64_t> all = options.prompt_lengths, places = options.prompt_offsets;
  options.prompt_suffixes.assign(all.size(), options.suffix_tokens);
  for (const std::int64_t suffix : suffixes) {
    options.prompt_lengths.insert(options.prompt_lengths.end(), all.begin(), all.end());
    options.prompt_offsets.insert(options.prompt_offsets.end(), places.begin(), places.end());
    options.prompt_suffixes.insert(options.prompt_suffixes.end(), all.size(), suffix);
  }
}

bool is_whole(const ReciteOptions& options, std::int64_t prompt) {
  return options.prompt_lengths.at(prompt) == kWholePrompt &&
         suffix_of(options, prompt) == options.suffix_tokens;
}

std::vector<Recitation> recite(LoadedModel& model, const Tokenizer& tokenizer,
                               std::span<const StudyDocument> documents,
                               const ReciteOptions& options) {
  const std::vector<Question> questions = questions_of(documents, tokenizer, options);
  if (questions.empty()) return {};
  const std::int64_t positions = model.config().model.positions;
  std::int64_t most = 1;  // positions of a question: the last token of a suffix is only a target
  for (const Question& question : questions)
    most = std::max(most, question.prompt_size() + std::ssize(question.suffix) - 1);
  if (most > positions)
    refuse("a document has ", most + 1, " tokens, but the model has only ", positions,
           " positions; cut the documents (--seq-len, or in a study training.seq_len)");
  const std::int64_t batch =
      options.batch > 0 ? options.batch : std::max<std::int64_t>(kRowsAtOnce / most, 1);
  const std::vector<SamplingPolicy> policies = parse_policies(options.policies, "policies");
  std::optional<Generator> generator;
  if (options.writes)
    generator.emplace(model, Generator::Options{.batch = options.batch,
                                                .context = most,
                                                .hold_weights = options.hold_weights,
                                                .tokenizer = &tokenizer});
  const std::int64_t round = 32 * batch;  // questions between progress reports
  std::vector<Recitation> all;
  for (std::int64_t first = 0; first < std::ssize(questions); first += round) {
    const std::span<const Question> asked =
        std::span(questions).subspan(first, std::min(round, std::ssize(questions) - first));
    if (first + std::ssize(asked) <= std::ssize(options.known)) {
      for (std::size_t q = 0; q < asked.size(); ++q) {
        all.push_back(options.known[first + q]);
        all.back().document = asked[q].document;
        all.back().prompt = asked[q].length;
      }
      continue;
    }
    const auto sequence = [&](std::int64_t n) { return scored_sequence(asked[n], positions); };
    const auto records = record_targets(model, {.count = std::ssize(asked), .at = sequence},
                                        policies, {.batch = batch});
    for (std::size_t q = 0; q < asked.size(); ++q)
      all.push_back(record_of(asked[q], records[q], documents[asked[q].document], tokenizer));
    if (generator) {
      std::vector<std::vector<std::int32_t>> prompts;
      for (const Question& one : asked) prompts.push_back(one.prompt());
      const auto size_of = [](const Question& one) { return std::ssize(one.suffix); };
      const std::int64_t longest = std::ranges::max(asked | std::views::transform(size_of));
      const auto written = generator->generate(prompts, {.max_tokens = longest});
      for (std::size_t q = 0; q < asked.size(); ++q) {
        const std::span<const std::int32_t> tokens = written[q].tokens;
        add_texts(asked[q], tokens.first(std::min(tokens.size(), asked[q].suffix.size())),
                  tokenizer, all[first + q]);
      }
    }
    const bool leads = model.grid().world().rank() == 0;
    if (options.made && leads) options.made(first, std::span(all).subspan(first));
    if (options.progress && leads)
      options.progress(first + std::ssize(asked), std::ssize(questions));
  }
  return all;
}

namespace {

void set_blind_scores_against(std::int64_t control, std::span<const StudyDocument> documents,
                              std::span<const std::int64_t> controls,
                              std::span<Recitation> recitations) {
  std::array<std::vector<std::span<const std::int32_t>>, 2> kinds;  // members, others
  std::array<std::vector<MembershipScores*>, 2> to;
  for (Recitation& r : recitations) {
    if (!r.scores || controls[r.group] != control) continue;
    const std::size_t kind = r.group == control ? 1 : 0;
    kinds[kind].push_back(documents[r.document].tokens);
    to[kind].push_back(&*r.scores);
  }
  if (kinds[0].size() < 2 || kinds[1].size() < 2) return;
  const std::vector<double> scores = blind_scores(kinds[0], kinds[1]);
  to[0].insert(to[0].end(), to[1].begin(), to[1].end());
  for (std::size_t i = 0; i < scores.size(); ++i) to[0][i]->blind = scores[i];
}

}  // namespace

void set_blind_scores(std::span<const StudyDocument> documents,
                      std::span<const std::int64_t> controls, std::span<Recitation> recitations) {
  for (std::int64_t group = 0; group < std::ssize(controls); ++group)
    if (controls[group] == group) set_blind_scores_against(group, documents, controls, recitations);
}

namespace {

void set_ratios(LoadedModel& model, LoadedModel& reference,
                std::span<const StudyDocument> documents, std::span<Recitation> recitations) {
  const TokenLosses own = token_losses(model, documents), by = token_losses(reference, documents);
  for (Recitation& one : recitations)
    if (one.scores) {
      const std::vector<double> others(by[one.document].begin(), by[one.document].end());
      set_ratio(own[one.document], others, *one.scores);
    }
}

}  // namespace

MemorizationReport audit_model(LoadedModel& model, const Tokenizer& tokenizer,
                               const FoundDocuments& documents, const FoundDocuments& control,
                               const ReciteOptions& options) {
  std::vector<StudyDocument> all = documents.documents;
  all.insert(all.end(), control.documents.begin(), control.documents.end());

  MemorizationReport report{.title = "Memorization audit",
                            .notes = {found_note("documents", documents)},
                            .groups = {"documents"},
                            .group_sizes = {std::ssize(documents.documents)},
                            .suffix_tokens = options.suffix_tokens,
                            .prompt_lengths = options.prompt_lengths,
                            .prompt_offsets = options.prompt_offsets,
                            .prompt_suffixes = options.prompt_suffixes};
  if (!control.documents.empty()) {
    report.controls = {1, 1};
    report.groups.push_back("control");
    report.group_sizes.push_back(std::ssize(control.documents));
    report.notes.push_back(found_note("control documents", control));
  }
  for (const StudyDocument& document : all) report.document_names.push_back(document.name);

  const double start = now_seconds();
  RecitationRun run{.variant = "", .trial = 1, .seed = 0, .policies = options.policies};
  run.recitations = recite(model, tokenizer, all, options);
  add_near(model, tokenizer, all, options, run.recitations);
  run.test_seconds = now_seconds() - start;
  for (Recitation& one : run.recitations) one.group = one.document >= report.group_sizes[0];
  set_blind_scores(all, report.controls, run.recitations);
  if (options.reference) set_ratios(model, *options.reference, all, run.recitations);
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
