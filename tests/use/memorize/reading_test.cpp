#include "axonn/use/memorize/reading.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/infer/evaluate.h"
#include "axonn/use/memorize/extraction.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// The targets that are in a run of `length` whose probability is large enough, by definition.
std::vector<bool> in_runs(const std::vector<double>& log_q, std::int64_t length, double least) {
  std::vector<bool> in(log_q.size(), false);
  for (std::int64_t first = 0; first + length <= std::ssize(log_q); ++first) {
    double sum = 0;
    for (std::int64_t i = 0; i < length; ++i) sum += log_q[first + i];
    for (std::int64_t i = 0; sum / std::log(10) >= least && i < length; ++i) in[first + i] = true;
  }
  return in;
}

}  // namespace

TEST(ExtractedSpans, AreTheUnionOfAllRunsThatAreLikelyEnough) {
  const Random random(4, "spans");
  std::uint64_t drawn = 0;
  std::int64_t spans = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> log_q(random.below(drawn++, 30));
    for (double& one : log_q)
      one = random.below(drawn++, 12) == 0 ? -INFINITY : -2 * random.uniform(drawn++);
    for (const std::int64_t length : {1, 3, 8}) {
      const double least = -0.4 * static_cast<double>(length);
      std::vector<bool> in(log_q.size(), false);
      std::int64_t before = -1;
      for (const TokenSpan& span : extracted_spans(log_q, length, least)) {
        EXPECT_GT(span.first, before) << "spans that touch are one";
        EXPECT_GE(span.end - span.first, length);
        for (std::int64_t i = span.first; i < span.end; ++i) in[i] = true;
        before = span.end;
        ++spans;
      }
      EXPECT_EQ(in, in_runs(log_q, length, least));
    }
  }
  EXPECT_GT(spans, 300);
}

TEST(Readings, AreTheTokensOfTheBestDocumentsOfEachGroupOnEveryGrid) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.training.seq_len = 64;
  train_on_threads(config);
  const auto tokenizer = make_tokenizer("bytes");
  std::vector<StudyDocument> documents;
  for (int d = 0; d < kReadingsOfAGroup + 3; ++d) {
    const std::string text = "The town of \xc3\x84 " + std::to_string(d);
    documents.push_back({text, {text.begin(), text.end()}});
    for (std::int32_t& token : documents.back().tokens) token &= 0xff;
  }
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    Config model = config_of_model(config.output.dir + "/checkpoints");
    model.parallelism.set_grid(grid);
    const PreparedRun run = prepared_model(model);
    run_ranks(grid.ranks(), [&](Communicator& world) {
      LoadedModel loaded(run, world, make_cpu_backend(1), {.trainable = false});
      loaded.initialise();
      ReciteOptions options{.suffix_tokens = 4, .policies = {"t=1,k=40", "greedy"}};
      std::vector<Recitation> recited = recite(loaded, *tokenizer, documents, options);
      for (Recitation& one : recited) {
        one.group = one.document == 2 ? 1 : 0;
        one.longest_run = one.document;  // the last ones are the best
      }
      const auto readings = readings_of(loaded, *tokenizer, documents, options, recited);
      ASSERT_EQ(std::ssize(readings), kReadingsOfAGroup + 1);
      EXPECT_EQ(readings.front().document, kReadingsOfAGroup + 2);
      EXPECT_EQ(readings.back().document, 2);
      for (const Reading& one : readings) {
        const StudyDocument& of = documents[one.document];
        ASSERT_EQ(one.tokens.size(), of.tokens.size());
        EXPECT_EQ(std::accumulate(one.tokens.begin(), one.tokens.end(), std::string()), of.name);
        EXPECT_EQ(one.tokens[12], "") << "half a character";
        EXPECT_EQ(one.tokens[13], "\xc3\x84");
        ASSERT_EQ(one.log_p.size(), of.tokens.size() - 1);
        const double suffix = -std::accumulate(one.log_p.end() - 4, one.log_p.end(), 0.0) / 4;
        const auto same = std::ranges::find(recited, one.document, &Recitation::document);
        EXPECT_NEAR(suffix, same->loss, 1e-5);
        const double log10_q =
            std::accumulate(one.log_q.end() - 4, one.log_q.end(), 0.0) / std::log(10);
        if (std::isfinite(log10_q)) {
          EXPECT_NEAR(log10_q, same->record->log10_p[0], 1e-4);
        } else {
          EXPECT_EQ(log10_q, same->record->log10_p[0]);
        }
        EXPECT_EQ(std::ranges::all_of(one.rank.end() - 4, one.rank.end(),
                                      [](std::int64_t rank) { return rank == 1; }),
                  same->record->greedy_exact);
      }
    });
  }
}
