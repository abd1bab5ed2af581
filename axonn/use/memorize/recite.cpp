#include "axonn/use/memorize/recite.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/log.h"
#include "axonn/use/infer/evaluate.h"
#include "axonn/use/infer/generator.h"

namespace axonn {

namespace {

/// Tokens that are scored at a time if the caller sets no batch: scoring needs memory for each.
constexpr std::int64_t kRowsAtOnce = 8192;

/// Tokens at the prompt's end that a report shows.
constexpr std::int64_t kShownBefore = 120;

/// One document to recite from a prompt of one length.
struct Question {
  std::int64_t document, length;  // length: index into prompt_lengths
  std::vector<std::int32_t> prompt;
  std::span<const std::int32_t> suffix;
};

std::vector<Question> questions_of(std::span<const StudyDocument> documents,
                                   const Tokenizer& tokenizer, const ReciteOptions& options) {
  const std::vector<std::int32_t>& begin = tokenizer.begin_of_text();
  std::vector<Question> questions;
  for (std::size_t p = 0; p < options.prompt_lengths.size(); ++p) {
    const std::int64_t wanted = options.prompt_lengths[p];
    for (std::size_t d = 0; d < documents.size(); ++d) {
      const std::span<const std::int32_t> tokens = documents[d].tokens;
      const std::int64_t before = std::ssize(tokens) - options.suffix_tokens;
      const std::int64_t taken = wanted == kWholePrompt ? before : wanted;
      if (before < std::max<std::int64_t>(taken, 1)) continue;
      Question question{.document = static_cast<std::int64_t>(d),
                        .length = static_cast<std::int64_t>(p),
                        .prompt = {},
                        .suffix = tokens.subspan(before)};
      if (taken < before) question.prompt = begin;
      question.prompt.insert(question.prompt.end(), tokens.begin() + before - taken,
                             tokens.begin() + before);
      questions.push_back(std::move(question));
    }
  }
  return questions;
}

Recitation recitation_of(const Question& question, std::span<const std::int32_t> written,
                         const SequenceScore& suffix, const Tokenizer& tokenizer) {
  Recitation result{.document = question.document,
                    .prompt = question.length,
                    .loss = suffix.nats / static_cast<double>(suffix.targets)};
  compare_tokens(question.suffix, written, result);
  const std::span<const std::int32_t> prompt = question.prompt;
  const auto shown = std::min<std::size_t>(prompt.size(), kShownBefore);
  const DecodeOptions goes_on{.skip_special = true, .continues = true};
  result.before = tokenizer.decode(prompt.last(shown),
                                   {.skip_special = true, .continues = shown < prompt.size()});
  result.truth = tokenizer.decode(question.suffix, goes_on);
  result.written = tokenizer.decode(written, goes_on);
  return result;
}

std::string found_note(const char* what, const FoundDocuments& documents) {
  std::string note = fmt::format("{} of {} {} were tested", documents.documents.size(),
                                 format_count(documents.found), what);
  if (documents.too_short > 0) note += fmt::format("; {} are too short", documents.too_short);
  if (documents.repeated > 0) note += fmt::format("; {} are duplicates", documents.repeated);
  return note;
}

}  // namespace

std::vector<Recitation> recite(LoadedModel& model, const Tokenizer& tokenizer,
                               std::span<const StudyDocument> documents,
                               const ReciteOptions& options) {
  const std::vector<Question> questions = questions_of(documents, tokenizer, options);
  if (questions.empty()) return {};
  const std::int64_t positions = model.config().model.positions;
  std::int64_t most = 1;  // positions of a question: the last token of a suffix is only a target
  for (const Question& question : questions)
    most = std::max(most, std::ssize(question.prompt) + std::ssize(question.suffix) - 1);
  if (most > positions)
    refuse("a document has ", most + 1, " tokens, but the model has only ", positions,
           " positions; cut the documents (--seq-len, or in a study training.seq_len)");
  const std::int64_t batch =
      options.batch > 0 ? options.batch : std::max<std::int64_t>(kRowsAtOnce / most, 1);
  // The prompts, with their true suffixes as targets.
  const auto sequence = [&](std::int64_t n) {
    constexpr std::int64_t kStep = 32;  // rounds up, so that products have few different shapes
    const auto& [document, length, prompt, suffix] = questions[n];
    ScoredSequence result{.tokens = prompt, .scored = std::ssize(suffix)};
    result.tokens.insert(result.tokens.end(), suffix.begin(), suffix.end());
    const std::int64_t inputs = std::ssize(result.tokens) - 1;
    result.positions = std::min((inputs + kStep - 1) / kStep * kStep, positions);
    return result;
  };
  const std::vector<SequenceScore> scores =
      score(model, {.count = std::ssize(questions), .at = sequence}, {.batch = batch});

  Generator generator(model, {.batch = options.batch,
                              .context = most,
                              .hold_weights = options.hold_weights,
                              .tokenizer = &tokenizer});
  const std::int64_t round = 32 * batch;  // questions between progress reports
  std::vector<Recitation> all;
  for (std::int64_t first = 0; first < std::ssize(questions); first += round) {
    const std::int64_t end = std::min(first + round, std::ssize(questions));
    std::vector<std::vector<std::int32_t>> prompts;
    for (std::int64_t q = first; q < end; ++q) prompts.push_back(questions[q].prompt);
    const auto written = generator.generate(prompts, {.max_tokens = options.suffix_tokens});
    for (std::int64_t q = first; q < end; ++q)
      all.push_back(recitation_of(questions[q], written[q - first].tokens, scores[q], tokenizer));
    if (options.progress && model.grid().world().rank() == 0)
      options.progress(end, std::ssize(questions));
  }
  return all;
}

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
                            .prompt_lengths = options.prompt_lengths};
  if (!control.documents.empty()) {
    report.control = std::ssize(report.groups);
    report.groups.push_back("control");
    report.group_sizes.push_back(std::ssize(control.documents));
    report.notes.push_back(found_note("control documents", control));
  }
  for (const StudyDocument& document : all) report.document_names.push_back(document.name);

  const double start = now_seconds();
  RecitationRun run{.variant = "", .trial = 1, .seed = 0};
  run.recitations = recite(model, tokenizer, all, options);
  run.test_seconds = now_seconds() - start;
  for (Recitation& one : run.recitations) one.group = one.document >= report.group_sizes[0];
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
