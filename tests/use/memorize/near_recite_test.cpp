#include "axonn/use/memorize/near_recite.h"

#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/infer/generator.h"
#include "axonn/use/memorize/extraction.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

constexpr std::int64_t kSuffix = 3;

StudyDocument document(const std::string& text) { return {text, {text.begin(), text.end()}}; }

/// log10 of the mass of all texts that differ in at most one token, by scoring each.
double scored_mass(LoadedModel& model, const StudyDocument& of, const std::string& policy) {
  std::vector<std::vector<std::int32_t>> texts{of.tokens};
  for (std::int64_t i = std::ssize(of.tokens) - kSuffix; i < std::ssize(of.tokens); ++i)
    for (std::int32_t token = 0; token < 256; ++token) {
      if (token == of.tokens[i]) continue;
      texts.push_back(of.tokens);
      texts.back()[i] = token;
    }
  const auto records = record_targets(
      model,
      {.count = std::ssize(texts),
       .at =
           [&](std::int64_t n) {
             return ScoredSequence{
                 .tokens = texts[n], .scored = kSuffix, .positions = std::ssize(of.tokens) - 1};
           }},
      parse_policies(std::vector{policy}, ""), {.batch = 64});
  double mass = 0;
  for (const auto& text : records) {
    double log_q = 0;
    for (const TargetRecord& one : text) log_q += one.log_q[0];
    mass += std::exp(log_q);
  }
  return std::log10(mass);
}

}  // namespace

TEST(AddNear, EnclosesTheMassOfAllTextsThatDifferInOneTokenOnEveryGrid) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.training.seq_len = 16;
  train_on_threads(config);
  const auto tokenizer = make_tokenizer("bytes");
  const std::vector<StudyDocument> documents{document("The town of"), document("in the year 1"),
                                             document("zzzzzzqqq")};
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}}) {
    Config model = config_of_model(config.output.dir + "/checkpoints");
    model.parallelism.set_grid(grid);
    const PreparedRun run = prepared_model(model);
    run_ranks(grid.ranks(), [&](Communicator& world) {
      LoadedModel loaded(run, world, make_cpu_backend(1), {.trainable = false});
      loaded.initialise();
      for (const std::string policy : {"t=1,k=40", "t=1", "t=0.8,p=0.9"}) {
        SCOPED_TRACE(to_string(grid) + ' ' + policy);
        ReciteOptions options{.suffix_tokens = kSuffix, .policies = {policy}, .writes = false};
        std::vector<Recitation> found = recite(loaded, *tokenizer, documents, options);
        options.near = {.epsilon = {0, 1}, .beams = 1000};
        add_near(loaded, *tokenizer, documents, options, found);
        ASSERT_EQ(found.size(), 3u);
        for (const Recitation& one : found) {
          ASSERT_EQ(one.near.size(), 2u);
          const double exact = one.record->log10_p[0],
                       all = scored_mass(loaded, documents[one.document], policy);
          const auto expect_close = [](double got, double want) {
            if (std::isfinite(want))
              EXPECT_NEAR(got, want, 1e-4);
            else
              EXPECT_EQ(got, want);
          };
          expect_close(one.near[0].log10_low, exact);
          expect_close(one.near[0].log10_high, exact);
          expect_close(one.near[1].log10_low, all);  // 1,000 beams hold all prefixes
          expect_close(one.near[1].log10_high, all);
        }
        for (const std::int64_t at_once : {16, 1, 0}) {
          options.near = {.epsilon = {1}, .beams = 4, .at_once = at_once};
          std::vector<Recitation> few = found;
          for (Recitation& one : few) one.near.clear();
          add_near(loaded, *tokenizer, documents, options, few);
          for (const Recitation& one : few) {
            const double all = scored_mass(loaded, documents[one.document], policy);
            EXPECT_LE(one.near[0].log10_low, all + 1e-4);
            EXPECT_GE(one.near[0].log10_high, all - 1e-4);
          }
        }
      }
    });
  }
}

namespace {

/// How many of the texts that the generator writes are within each distance of the suffix.
std::vector<std::int64_t> written_near(LoadedModel& model, const StudyDocument& of,
                                       std::int64_t document, const NearRequest& near,
                                       const SamplingPolicy& policy) {
  Generator generator(model, {.batch = 16, .context = 16});
  const std::vector<std::int32_t> prompt(of.tokens.begin(), of.tokens.end() - kSuffix),
      suffix(of.tokens.end() - kSuffix, of.tokens.end());
  const auto texts =
      generator.generate(std::vector(near.samples, prompt),
                         {.max_tokens = kSuffix,
                          .sampling = {.temperature = policy.temperature,
                                       .top_k = policy.top_k,
                                       .top_p = policy.top_p},
                          .seed = near.seed,
                          .random_stream = static_cast<std::uint64_t>(document * near.samples)});
  std::vector<std::int64_t> found(near.epsilon.size(), 0);
  for (const Generation& one : texts) {
    Recitation compared;
    compare_tokens(suffix, one.tokens, compared);
    for (std::size_t e = 0; e < found.size(); ++e)
      found[e] += compared.edit_distance <= near.epsilon[e];
  }
  return found;
}

}  // namespace

TEST(AddNear, CountsTheSamplesThatTheGeneratorDrawsOnEveryGrid) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.training.seq_len = 16;
  train_on_threads(config);
  const auto tokenizer = make_tokenizer("bytes");
  const std::vector<StudyDocument> documents{document("The town of"), document("in the year 1")};
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    Config model = config_of_model(config.output.dir + "/checkpoints");
    model.parallelism.set_grid(grid);
    const PreparedRun run = prepared_model(model);
    run_ranks(grid.ranks(), [&](Communicator& world) {
      LoadedModel loaded(run, world, make_cpu_backend(1), {.trainable = false});
      loaded.initialise();
      for (const std::string policy : {"t=1,k=5", "t=1", "t=0.8,p=0.9", "greedy"}) {
        SCOPED_TRACE(to_string(grid) + ' ' + policy);
        ReciteOptions options{.suffix_tokens = kSuffix, .policies = {policy}, .writes = false};
        std::vector<Recitation> found = recite(loaded, *tokenizer, documents, options);
        options.near = {.epsilon = {0, 2}, .beams = 4, .samples = 60, .seed = 11};
        EXPECT_EQ(add_near(loaded, *tokenizer, documents, options, found), 2 * 2 + 2);
        for (const Recitation& one : found) {
          const auto want = written_near(loaded, documents[one.document], one.document,
                                         options.near, parse_policy(policy, ""));
          for (std::size_t e = 0; e < 2; ++e) {
            EXPECT_EQ(one.near[e].samples, 60);
            EXPECT_EQ(one.near[e].found, want[e]);
          }
        }
      }
    });
  }
}

TEST(AddNear, IsPartOfAnAudit) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.training.seq_len = 16;
  train_on_threads(config);
  const auto tokenizer = make_tokenizer("bytes");
  const FoundDocuments documents{.documents = std::vector{document("The town of")}, .found = 1},
      control{.documents = std::vector{document("in the year 1"), document("zzzzzzqqq")},
              .found = 2};
  const PreparedRun run = prepared_model(config_of_model(config.output.dir + "/checkpoints"));
  run_ranks(1, [&](Communicator& world) {
    LoadedModel loaded(run, world, make_cpu_backend(1), {.trainable = false});
    loaded.initialise();
    ReciteOptions options{.suffix_tokens = kSuffix, .policies = {"t=1"}, .writes = false};
    EXPECT_TRUE(near_rates(audit_model(loaded, *tokenizer, documents, control, options),
                           MemorizationSummary())
                    .empty());
    options.near = {.epsilon = {0, 2}};
    options.reference = &loaded;
    std::map<std::string, std::vector<std::int64_t>> done;
    std::map<std::string, std::int64_t> of;
    options.progress = [&](const char* unit, std::int64_t some, std::int64_t all) {
      done[unit].push_back(some);
      of[unit] = all;
    };
    const MemorizationReport report = audit_model(loaded, *tokenizer, documents, control, options);
    EXPECT_EQ(of, (std::map<std::string, std::int64_t>{
                      {kRecitations, 3}, {kNearSearches, 2 * 3}, {kComparisons, 3}}));
    for (const auto& [unit, counts] : done) {
      EXPECT_TRUE(std::ranges::is_sorted(counts)) << unit;
      EXPECT_EQ(counts.back(), of[unit]) << unit;
    }
    EXPECT_EQ(done[kNearSearches].size(), 2u * kSuffix) << "after each token of both searches";
    ASSERT_EQ(report.runs[0].recitations.size(), 3u);
    for (const Recitation& one : report.runs[0].recitations) {
      ASSERT_EQ(one.near.size(), 2u);
      EXPECT_GT(one.near[1].log10_low, one.near[0].log10_low);
    }
    const auto rates = near_rates(report, summarize(report));
    ASSERT_EQ(rates.size(), 2u * 2 * 7 * 4);  // groups, distances, n, p
    EXPECT_EQ(rates.front().suffixes, 1);
    EXPECT_EQ(rates.back().suffixes, 2);
  });
}

TEST(CheckNear, RefusesAPolicyThatKeepsTooManyTokens) {
  const auto refusal = [](const std::vector<std::string>& policies, std::int64_t vocab) {
    try {
      check_near({.policies = policies, .near = {.epsilon = {1}}}, vocab);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal({"t=1"}, 4096), "accepted");
  EXPECT_EQ(refusal({"t=1,k=40", "t=1"}, 100'000), "accepted");
  EXPECT_EQ(refusal({"greedy"}, 100'000), "accepted");
  EXPECT_THAT(refusal({"t=1", "t=1,k=40"}, 4097),
              testing::AllOf(HasSubstr("by \"t=1\" need all 4097 tokens"),
                             HasSubstr("put a policy with top-k first")));
  EXPECT_THAT(refusal({}, 256), HasSubstr("need a policy"));
  EXPECT_NO_THROW(check_near({.policies = {"t=1"}}, 100'000)) << "nothing was asked for";
}
