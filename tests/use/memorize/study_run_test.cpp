// A whole study in seconds, with a model of a few thousand parameters.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/records/run_folder.h"
#include "axonn/use/memorize/average.h"
#include "axonn/use/memorize/recite.h"
#include "axonn/use/memorize/references.h"
#include "axonn/use/memorize/report/json.h"
#include "axonn/use/memorize/study.h"
#include "axonn/use/memorize/study_plan.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

/// A JSONL file of six documents of 24 random letters.
std::string write_letters(const std::string& path) {
  constexpr int kDocuments = 6, kLetters = 24;
  const Random random(3, "letters");
  std::ofstream file(path);
  for (int d = 0; d < kDocuments; ++d) {
    std::string text;
    for (int i = 0; i < kLetters; ++i)
      text += static_cast<char>('a' + random.below(d * kLetters + i, 26));
    file << "{\"text\": \"" << text << "\"}\n";
  }
  return path;
}

struct StudyConfig : Config {
  MemorizeConfig memorize;
};

/// Two buckets of two generated records and a control, one trial.
StudyConfig study_config(const std::string& folder) {
  StudyConfig config{tiny_config(folder), {}};
  config.model.family = ModelFamily::llama;
  config.model.hidden = 48;
  config.model.heads = config.model.kv_heads = 4;
  config.training.steps = 30;
  config.training.seq_len = 192;
  config.training.global_batch = 4;
  config.training.goldfish = {.k = 2, .h = 13};
  // With this rate and eps, rounding differences grow slowly.
  config.optimizer.lr = 2e-3;
  config.optimizer.eps = 1e-6;
  config.lr_scheduler = {.kind = ScheduleKind::linear, .warmup_steps = 5, .min_lr = 1e-3};
  config.checkpoint.every = 0;
  config.data.validation = "0.1";
  config.memorize = {.bucket_size = 2,
                     .epochs = {2, 20},
                     .suffix_tokens = 50,
                     .prompt_lengths = {20},
                     .trials = 1,
                     .losses = {"standard"}};
  return config;
}

/// The same study with short documents of random letters.
StudyConfig letters_config(const std::string& folder) {
  StudyConfig config = study_config(folder);
  config.training.seq_len = 24;
  config.memorize.documents = {write_letters(folder + ".jsonl")};
  config.memorize.suffix_tokens = 12;
  config.memorize.prompt_lengths = {6};
  return config;
}

/// Short documents that come early or late, two schedules, a mean of weights, and curves.
StudyConfig buckets_config(const std::string& folder) {
  StudyConfig config = letters_config(folder);
  config.lr_scheduler = {
      .kind = ScheduleKind::wsd, .warmup_steps = 5, .min_lr = 1e-4, .decay_steps = 10};
  MemorizeConfig& memorize = config.memorize;
  memorize.prompt_lengths = {};
  memorize.schedules = {"wsd", "constant"};
  memorize.average_last = 2;
  memorize.average_every = memorize.curve_every = 10;
  constexpr DocumentKind kText = DocumentKind::text;
  memorize.buckets = {{.name = "none", .size = 2, .times = 0, .kind = kText},
                      {.name = "early", .size = 2, .times = 3, .when = {0.2, 0.6}, .kind = kText},
                      {.name = "late", .size = 2, .times = 3, .when = {0.6, 1}, .kind = kText}};
  return config;
}

MemorizationReport study(const StudyConfig& config, const TrainOptions& options = {}) {
  MemorizationReport report;
  run_ranks(config.parallelism.grid().ranks(), [&](Communicator& world) {
    const auto found = run_study(prepared(config), config.memorize, world, options);
    if (world.rank() == 0) report = found.value();
  });
  return report;
}

std::vector<std::string> written(const MemorizationReport& report) {
  std::vector<std::string> texts;
  for (const RecitationRun& run : report.runs)
    for (const Recitation& one : run.recitations) texts.push_back(one.texts->written);
  return texts;
}

std::string refusal(const std::function<void(StudyConfig&)>& change) {
  test::TemporaryPath folder;
  StudyConfig config = study_config(folder / "study");
  change(config);
  try {
    validate_study(config, config.memorize);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST(Study, FindsWhatWasLearnedOftenOnEveryGrid) {
  // The documents are short and trained far longer than needed: their 12 tokens cost 0.05 nats in
  // total, and below ln 2 = 0.69 nats each token is the most likely one.
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    StudyConfig config = letters_config(folder / to_string(grid));
    config.parallelism.set_grid(grid);
    config.training.steps = 250;
    config.optimizer.lr = 1e-2;
    config.memorize.epochs = {2, 470};
    const MemorizationReport report = study(config);
    const MemorizationSummary summary = summarize(report);
    ASSERT_EQ(report.groups, (std::vector<std::string>{"control", "2 epochs", "470 epochs"}));
    ASSERT_EQ(report.runs.size(), 1u);
    ASSERT_EQ(report.runs[0].recitations.size(), 12u) << "6 documents, two prompt lengths";
    EXPECT_EQ(summary.at(0, 0, 0).exact, 0) << "the model never saw the control documents";
    EXPECT_EQ(summary.at(0, 1, 0).exact, 0);
    EXPECT_EQ(summary.at(0, 2, 0).exact, 2) << "both documents were memorized";
    EXPECT_TRUE(report.runs[0].validation_loss.has_value());
    for (const Recitation& each : report.runs[0].recitations) {
      EXPECT_EQ(each.texts->truth.size(), 12u);
      EXPECT_FALSE(each.texts->written.empty());
      EXPECT_EQ(each.exact, each.texts->truth == each.texts->written);
    }
  }
}

TEST(Study, TrainsReferencesOnHalvesOfTheDocumentsAndKeepsTheirLosses) {
  test::TemporaryPath folder;
  StudyConfig config = letters_config(folder / "study");
  config.memorize.references = 4;
  const MemorizationReport report = study(config);
  ASSERT_EQ(report.runs.size(), 1u);
  for (std::size_t i = 0; i < 6; ++i)
    for (const auto& [name, score] : kScores)
      EXPECT_TRUE(std::isfinite((*report.runs[0].recitations[i].scores).*score)) << name;
  const std::string losses = config.output.dir + "/trial-1-reference-3/losses.json";
  const Reference third = parse_reference(test::slurp(losses), 6, losses);
  EXPECT_EQ(third.learned, learned_by(2, 6, config.training.seed));
  EXPECT_FALSE(std::filesystem::exists(config.output.dir + "/trial-1-reference-3/checkpoints"));
  // One of them is trained again, on another grid, from the same initial values and data.
  std::filesystem::remove_all(config.output.dir + "/trial-1-reference-3");
  config.parallelism.set_grid({2, 1, 2, 1});
  const MemorizationReport again = study(config);
  const Reference redone = parse_reference(test::slurp(losses), 6, losses);
  for (std::size_t d = 0; d < 6; ++d)
    for (std::size_t t = 0; t < third.losses[d].size(); ++t)
      EXPECT_NEAR(redone.losses[d][t], third.losses[d][t], 1e-3);
  for (std::size_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(again.runs[0].recitations[i].scores.has_value());
    EXPECT_NEAR(again.runs[0].recitations[i].scores->ratio,
                report.runs[0].recitations[i].scores->ratio, 1e-3);
  }
}

TEST(Study, GivesTheSameFiguresOnOtherGrids) {
  // A few steps only, in which rounding differences stay small and nothing is memorized.
  test::TemporaryPath folder;
  const StudyConfig config = letters_config(folder / "one");
  const MemorizationReport one = study(config);
  for (const GridShape grid : {GridShape{2, 1, 2, 1}, GridShape{.y = 2, .data = 2}}) {
    StudyConfig other = config;
    other.parallelism.set_grid(grid);
    other.output.dir = folder / to_string(grid);
    other.memorize.hold_weights = grid.z == 1;
    other.memorize.batch = grid.z;
    const MemorizationReport report = study(other);
    EXPECT_EQ(written(report), written(one)) << to_string(grid);
    ASSERT_EQ(report.runs[0].recitations.size(), one.runs[0].recitations.size());
    for (std::size_t i = 0; i < one.runs[0].recitations.size(); ++i)
      EXPECT_NEAR(report.runs[0].recitations[i].loss / one.runs[0].recitations[i].loss, 1, 1e-4);
    EXPECT_NEAR(*report.runs[0].validation_loss / *one.runs[0].validation_loss, 1, 1e-4);
  }
}

TEST(Study, ResumesAndKeepsFinishedRuns) {
  test::TemporaryPath folder;
  StudyConfig config = study_config(folder / "whole");
  config.memorize.losses = {"standard", "goldfish"};
  std::ostringstream terminal;
  const MemorizationReport whole = study(config, {.terminal = &terminal});
  ASSERT_EQ(whole.runs.size(), 2u);
  EXPECT_THAT(whole.notes[2], HasSubstr("never the first 13 of a document"));
  EXPECT_THAT(whole.origin.machine, testing::StartsWith("1 rank on " + host_name() + ": "));
  EXPECT_THAT(whole.origin.date, testing::EndsWith(" UTC"));
  EXPECT_THAT(test::slurp(config.output.dir + "/config.toml"),
              testing::EndsWith(whole.origin.config));
  // The terminal shows the model once, and how much of all runs is done.
  const std::string shown = terminal.str();
  EXPECT_EQ(shown.find("model: "), shown.rfind("model: ")) << shown;
  EXPECT_EQ(shown.find("warm-up, steps 1 to 5"), shown.rfind("warm-up, ")) << shown;
  EXPECT_THAT(shown, AllOf(HasSubstr("\n0 of 55 steps of the study are done (0 %)\n"),
                           HasSubstr("standard loss, steps 6 to 30: "),
                           HasSubstr("\n30 of 55 steps of the study are done (54 %), about ")));
  EXPECT_FALSE(whole.runs[0].kept_fraction);
  EXPECT_NEAR(whole.runs[1].kept_fraction.value(), 0.53, 0.04);
  EXPECT_EQ(test::slurp(config.output.dir + "/report.json"), to_json(whole));

  // The same study, stopped before its first step ends: it saves and reports that it stopped.
  StudyConfig rest = config;
  rest.output.dir = folder / "rest";
  std::atomic<bool> stop = true;
  run_ranks(1, [&](Communicator& world) {
    EXPECT_FALSE(run_study(prepared(rest), rest.memorize, world, {.stop = &stop}).has_value());
  });
  EXPECT_EQ(written(study(rest)), written(whole));

  // Finished runs are not repeated.
  const auto times = [&] {
    return std::pair(
        std::filesystem::last_write_time(rest.output.dir + "/trial-1-standard/metrics.jsonl"),
        std::filesystem::last_write_time(rest.output.dir + "/trial-1-goldfish/metrics.jsonl"));
  };
  const auto before = times();
  std::filesystem::remove(rest.output.dir + "/report.json");
  EXPECT_EQ(study(rest).runs.size(), 2u);
  EXPECT_EQ(times(), before);
  EXPECT_TRUE(std::filesystem::exists(rest.output.dir + "/report.html"));

  StudyConfig another = rest;
  another.training.goldfish.k = 3;
  EXPECT_THAT([&] { study(another); },
              testing::ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("holds another study"), HasSubstr("--output.dir"))));
}

TEST(Study, OfBucketsTestsSchedulesMeansAndCurvesOnEveryGrid) {
  test::TemporaryPath folder;
  StudyConfig config = buckets_config(folder / "one");
  const MemorizationReport one = study(config);
  EXPECT_EQ(one.groups, (std::vector<std::string>{"none", "early", "late"}));
  ASSERT_EQ(one.runs.size(), 4u);
  EXPECT_EQ(one.runs[1].variant, "wsd average");
  EXPECT_EQ(one.runs[2].variant, "constant");
  for (const RecitationRun& run : one.runs) EXPECT_EQ(run.recitations.size(), 6u);
  for (const int n : {0, 2}) {
    const std::vector<CurvePoint>& curve = one.runs[n].curve;
    ASSERT_EQ(curve.size(), 3u);
    EXPECT_EQ(curve[2].step, 30);
    EXPECT_EQ(curve[2].validation_loss, one.runs[n].validation_loss);
    for (std::size_t d = 0; d < 6; ++d)
      EXPECT_EQ(curve[2].loss[d], one.runs[n].recitations[d].loss) << "the end of the run";
    EXPECT_NE(one.runs[n].recitations[3].loss, one.runs[n + 1].recitations[3].loss);
  }
  EXPECT_EQ(one.runs[0].curve[1].loss, one.runs[2].curve[1].loss) << "wsd decays from step 21 on";
  EXPECT_NE(one.runs[0].curve[2].loss, one.runs[2].curve[2].loss);
  ASSERT_EQ(one.exposures.size(), 6u);
  EXPECT_TRUE(one.exposures[0].empty());
  for (const std::int64_t step : one.exposures[2]) EXPECT_TRUE(step > 6 && step <= 18) << step;
  for (const std::int64_t step : one.exposures[4]) EXPECT_GT(step, 18);

  StudyConfig other = buckets_config(folder / "cut");
  other.parallelism.set_grid({2, 1, 2, 1});
  const MemorizationReport cut = study(other);
  for (std::size_t n = 0; n < 4; ++n)
    for (std::size_t d = 0; d < 6; ++d)
      EXPECT_NEAR(cut.runs[n].recitations[d].loss / one.runs[n].recitations[d].loss, 1, 1e-4);
}

TEST(DescribeStudy, ListsBucketsVariantsAndClaims) {
  test::TemporaryPath folder;
  StudyConfig config = study_config(folder / "study");
  config.memorize.buckets = {
      {.name = "none", .size = 120, .times = 0},
      {.name = "late", .size = 4, .times = 3, .when = {0.5, 1}},
      {.name = "near", .size = 4, .times = 2, .when = {0.5, 1}, .variants = 2}};
  config.lr_scheduler.decay_steps = 10;
  config.memorize.schedules = {"wsd", "constant"};
  const std::string text = describe_study(prepared(config), config.memorize);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("25 steps with each of 2 variants (wsd; constant): 55 steps\n"),
            HasSubstr("\n  none: 120 generated records, never learned: the control\n"),
            HasSubstr("\n  late: 4 generated records, 3 times each in steps 16 to 30, 12 "
                      "sequences\n"),
            HasSubstr("2 times each in steps 16 to 30, 8 sequences, as 2 near-duplicates in turn, "
                      "in which one of 16 tokens differs\n"),
            HasSubstr("with 4 documents and 120 controls: a share near 50 % is known to ±35 "
                      "points; a suffix is memorized at alpha = 0.83 % or more; TPR at 1 % FPR can "
                      "be measured, at 0.1 % needs 1,000 controls\n"),
            HasSubstr("injected: 20 of 100 sequences after the warm-up (20.0 %)\n"),
            HasSubstr("\ntime: ")));
}

TEST(Study, OfBucketsThatWasKilledGoesOnAsIfItWasNot) {
  test::TemporaryPath folder;
  const StudyConfig config = buckets_config(folder / "study");
  const MemorizationReport whole = study(config);
  // As if it had been killed after step 30 was measured and before its checkpoint was complete.
  const std::string killed = config.output.dir + "/trial-1-standard-constant";
  std::filesystem::remove_all(killed + "/checkpoints/step-30");
  std::filesystem::remove(killed + "/recitations.json");
  const MemorizationReport again = study(config);
  ASSERT_EQ(again.runs.size(), whole.runs.size());
  for (std::size_t n = 0; n < whole.runs.size(); ++n) {
    ASSERT_EQ(again.runs[n].curve.size(), whole.runs[n].curve.size());
    for (std::size_t i = 0; i < whole.runs[n].curve.size(); ++i)
      EXPECT_EQ(again.runs[n].curve[i].loss, whole.runs[n].curve[i].loss);
    for (std::size_t d = 0; d < 6; ++d)
      EXPECT_EQ(again.runs[n].recitations[d].loss, whole.runs[n].recitations[d].loss);
  }
}

TEST(LoadAverage, SetsTheMeanOfTheWeightsOnEveryGrid) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.checkpoint.every = 2;
  config.checkpoint.keep = 0;
  train_on_threads(config);
  std::vector<std::string> checkpoints;
  for (const int step : {2, 6, 10})
    checkpoints.push_back(concat(config.output.dir, "/checkpoints/step-", step));
  std::vector<std::map<std::string, std::vector<float>>> each;
  for (const std::string& path : checkpoints) each.push_back(weights_of(path));
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}}) {
    SCOPED_TRACE(to_string(grid));
    const std::string to = folder / to_string(grid);
    run_ranks(grid.ranks(), [&](Communicator& world) {
      Training training(prepared(on_grid(config, grid)), world, make_cpu_backend(1));
      load_checkpoint(training, checkpoints.back());
      load_average(training.model, checkpoints);
      save_checkpoint(training, to, 10);
    });
    const auto mean = weights_of(to + "/step-10");
    ASSERT_EQ(mean.size(), each[0].size());
    for (const auto& [name, values] : mean)
      for (std::size_t i = 0; i < values.size(); ++i) {
        double sum = 0;
        for (auto& one : each) sum += one.at(name)[i];
        ASSERT_EQ(values[i], static_cast<float>(sum / 3)) << name << ' ' << i;
      }
  }
  EXPECT_THAT(
      [&] {
        run_ranks(1, [&](Communicator& world) {
          Training training(prepared(config), world, make_cpu_backend(1));
          load_average(training.model, std::vector{checkpoints[0], folder / "none"});
        });
      },
      testing::ThrowsMessage<UsageError>(HasSubstr("none")));
}

TEST(Study, AStartThatFailedDoesNotBlockItsFolder) {
  test::TemporaryPath folder;
  StudyConfig wrong = study_config(folder / "study");
  wrong.memorize.documents = {folder / "missing.jsonl"};
  EXPECT_THROW(study(wrong), UsageError);
  EXPECT_TRUE(std::filesystem::exists(folder / "study/study.json"));
  EXPECT_EQ(study(study_config(folder / "study")).runs.size(), 1u);
}

TEST(Study, IsRefusedWhileAnotherJobWritesToItsFolder) {
  test::TemporaryPath folder;
  const StudyConfig config = study_config(folder / "study");
  const FolderLock other(config.output.dir);
  EXPECT_THAT([&] { study(config); },
              testing::ThrowsMessage<UsageError>(HasSubstr("another run writes to ")));
  EXPECT_THAT(test::names_in(config.output.dir), testing::ElementsAre("lock"));
}

TEST(Study, TakesDocumentsFromTheUsersFiles) {
  test::TemporaryPath folder;
  StudyConfig config = study_config(folder / "study");
  config.training.steps = 10;
  config.memorize.epochs = {1};
  config.memorize.documents = {folder / "mine.jsonl"};
  std::ofstream file(folder / "mine.jsonl");
  for (int d = 0; d < 9; ++d)
    file << "{\"text\": \"" << std::string(80, static_cast<char>('a' + d)) << d << "\"}\n";
  file.close();
  const MemorizationReport report = study(config);
  EXPECT_THAT(report.document_names, testing::Each(HasSubstr("mine.jsonl")));
  EXPECT_THAT(report.notes[0], HasSubstr("while the learning rate falls from 0.002 to 0.001"));
  EXPECT_THAT(report.runs[0].recitations[0].texts->truth, testing::MatchesRegex("[a-i]+[0-8]"));
  config.memorize.bucket_size = 5;
  config.output.dir = folder / "other";
  EXPECT_THAT([&] { study(config); }, testing::ThrowsMessage<UsageError>(
                                          HasSubstr("need 10 documents, but of the 9 found")));
}

TEST(Study, KeepsOneTokenMoreThanASequenceHas) {
  // The last token of a sequence is a target only. The documents have 24 letters.
  test::TemporaryPath folder;
  StudyConfig config = letters_config(folder / "study");
  config.training.seq_len = 23;
  config.training.steps = 10;
  config.memorize.epochs = {1};
  config.lr_scheduler.kind = ScheduleKind::constant;
  const MemorizationReport report = study(config);
  ASSERT_EQ(report.runs[0].recitations.size(), 8u);
  const std::string letters = test::slurp(config.memorize.documents[0]);
  for (const Recitation& one : report.runs[0].recitations) {
    const std::string begin = one.prompt == 0 ? "\"" : "";  // of a whole document
    EXPECT_THAT(letters, HasSubstr(begin + one.texts->before + one.texts->truth + "\"}"));
  }
  EXPECT_THAT(report.notes[0], testing::EndsWith("with a learning rate of 0.002"));
}

TEST(Audit, TestsATrainedModel) {
  test::TemporaryPath folder;
  const StudyConfig config = study_config(folder / "study");
  const MemorizationReport trained = study(config);
  const PreparedRun trained_run =
      prepared_model(config_of_model(config.output.dir + "/trial-1-standard/checkpoints"));
  const auto tokenizer = make_tokenizer("bytes");
  const auto records = generated_documents(6, 1, *tokenizer, {.least = 51, .most = 192});
  const auto control = generated_documents(5, 99, *tokenizer, {.least = 51, .most = 192});
  run_ranks(1, [&](Communicator& world) {
    LoadedModel loaded(trained_run, world, make_cpu_backend(1), {.trainable = false});
    loaded.initialise();
    const MemorizationReport report =
        audit_model(loaded, *tokenizer, records, control,
                    {.suffix_tokens = 50, .prompt_lengths = {kWholePrompt, 20}});
    EXPECT_EQ(report.groups, (std::vector<std::string>{"documents", "control"}));
    EXPECT_EQ(report.runs[0].recitations.size(), 2u * 11u);
    // The documents are the study's in another order, so the model must write the same for each.
    const auto with = [](const MemorizationReport& from, const std::string& truth) {
      for (const Recitation& one : from.runs[0].recitations)
        if (one.texts->truth == truth && one.prompt == 0) return one.texts->written;
      return std::string("not asked");
    };
    for (const Recitation& one : trained.runs[0].recitations)
      EXPECT_EQ(with(report, one.texts->truth), with(trained, one.texts->truth));
  });
}

TEST(Audit, GivesTheSameFiguresOnEveryGrid) {
  test::TemporaryPath folder;
  const StudyConfig config = study_config(folder / "study");
  study(config);
  Config model = config_of_model(config.output.dir + "/trial-1-standard/checkpoints");
  const auto tokenizer = make_tokenizer("bytes");
  const auto records = generated_documents(6, 1, *tokenizer, {.least = 51, .most = 192});
  const auto control = generated_documents(5, 99, *tokenizer, {.least = 51, .most = 192});
  const auto audit = [&](const GridShape& grid) {
    model.parallelism.set_grid(grid);
    const PreparedRun run = prepared_model(model);
    MemorizationReport report;
    run_ranks(grid.ranks(), [&](Communicator& world) {
      LoadedModel loaded(run, world, make_cpu_backend(1), {.trainable = false});
      loaded.initialise();
      MemorizationReport mine = audit_model(loaded, *tokenizer, records, control,
                                            {.prompt_lengths = {kWholePrompt, 20},
                                             .policies = {"t=1,k=40", "t=0.8,p=0.9", "greedy"}});
      if (world.rank() == 0) report = std::move(mine);
    });
    return report.runs.at(0).recitations;
  };
  const auto expect_close = [](double got, double want) {
    if (std::isfinite(want))
      EXPECT_NEAR(got, want, 1e-5 * (1 + std::abs(want)));  // of 50 sums of logits in f32
    else
      EXPECT_EQ(std::isnan(want) ? 0 : got, std::isnan(want) ? 0 : want);
  };
  const std::vector<Recitation> want = audit({1, 1, 1, 1});
  ASSERT_EQ(want.size(), 22u);
  for (const GridShape& grid : {GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}}) {
    SCOPED_TRACE(to_string(grid));
    const std::vector<Recitation> got = audit(grid);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(got[i].texts->written, want[i].texts->written);
      expect_close(got[i].loss, want[i].loss);
      const SuffixRecord &a = *got[i].record, &b = *want[i].record;
      EXPECT_EQ(a.greedy_exact, b.greedy_exact);
      EXPECT_EQ(b.greedy_exact, want[i].exact) << "all ranks are 1 if greedy decoding is right";
      EXPECT_EQ(a.greedy_accuracy, b.greedy_accuracy);
      EXPECT_EQ(a.extraction_strength, b.extraction_strength);
      for (std::size_t policy = 0; policy < 3; ++policy)
        expect_close(a.log10_p[policy], b.log10_p[policy]);
      EXPECT_EQ(b.log10_p[2], b.greedy_exact ? 0 : -INFINITY);
      ASSERT_EQ(want[i].scores.has_value(), want[i].prompt == 0);
      if (want[i].scores)
        for (const auto& [name, score] : kScores)
          expect_close((*got[i].scores).*score, (*want[i].scores).*score);
    }
  }
}

TEST(Study, ThatWasTestedWithOtherPoliciesIsNotMixed) {
  test::TemporaryPath folder;
  StudyConfig config = study_config(folder / "study");
  EXPECT_EQ(study(config).runs[0].policies, (std::vector<std::string>{"t=1,k=40", "t=1"}));
  config.memorize.policies = {"greedy"};
  EXPECT_THAT([&] { study(config); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(HasSubstr("[memorize] policies: "),
                                                                HasSubstr("(t=1,k=40; t=1)"))));
}

TEST(ValidateStudy, NamesTheContradictingKeys) {
  EXPECT_EQ(refusal([](StudyConfig&) {}), "accepted");
  EXPECT_EQ(refusal([](StudyConfig& c) { c.memorize.prompt_lengths = {143}; }), "accepted");
  EXPECT_THAT(refusal([](StudyConfig& c) { c.memorize.losses = {"silver"}; }),
              HasSubstr("[memorize] losses has no choice 'silver'"));
  EXPECT_THAT(refusal([](StudyConfig& c) { c.memorize.losses = {}; }),
              HasSubstr("losses is empty"));
  EXPECT_THAT(refusal([](StudyConfig& c) {
                c.memorize.losses = {"goldfish"};
                c.training.goldfish.k = 0;
              }),
              HasSubstr("goldfish.k is 0"));
  EXPECT_THAT(refusal([](StudyConfig& c) { c.memorize.epochs = {}; }),
              HasSubstr("epochs is empty"));
  EXPECT_THAT(refusal([](StudyConfig& c) { c.memorize.prompt_lengths = {144}; }),
              HasSubstr("no room for a prompt of 144"));
  EXPECT_THAT(refusal([](StudyConfig& c) { c.lr_scheduler.warmup_steps = c.training.steps; }),
              HasSubstr("leaves none"));
  EXPECT_THAT(refusal([](StudyConfig& c) { c.memorize.n = {10, 1}; }), HasSubstr("[memorize] n: "));
  EXPECT_THAT(refusal([](StudyConfig& c) { c.memorize.p = {1}; }), HasSubstr("[memorize] p: "));
  EXPECT_EQ(refusal([](StudyConfig& c) { c.memorize.offsets = {123}; }), "accepted");
  EXPECT_THAT(refusal([](StudyConfig& c) {
                c.memorize.offsets = {0, 124};
              }),
              HasSubstr("no room for a prompt of 144 tokens, with the offset, and"));
  EXPECT_THAT(refusal([](StudyConfig& c) {
                c.memorize.offsets = {0};
                c.memorize.prompt_lengths = {};
              }),
              HasSubstr("[memorize] offsets need lengths of prompts"));
}

TEST(ValidateStudy, NamesTheBucketThatContradictsItself) {
  const auto with = [](const BucketConfig& bucket) {
    return refusal([&](StudyConfig& c) {
      c.memorize.buckets = {{.name = "none", .times = 0}, bucket};
    });
  };
  EXPECT_EQ(with({.name = "a", .times = 2, .when = {0.5, 1}}), "accepted");
  EXPECT_THAT(with({.times = 2}), HasSubstr("a [[memorize.bucket]] has no name"));
  EXPECT_THAT(with({.name = "none", .times = 2}), HasSubstr("has the name \"none\" twice"));
  EXPECT_THAT(with({.name = "a", .times = 2, .when = {0.5}}),
              HasSubstr("[[memorize.bucket]] \"a\": when is not [from, to]"));
  EXPECT_THAT(with({.name = "a", .times = 2, .when = {0.1, 1}}),
              AllOf(HasSubstr("in the warm-up of 5 steps"), HasSubstr("begin at 0.1666")));
  EXPECT_THAT(with({.name = "a", .times = 2, .kind = DocumentKind::text}),
              HasSubstr("[memorize] documents, which names none"));
  EXPECT_THAT(with({.name = "a", .times = 2, .kind = DocumentKind::uniform, .tokens = 50}),
              HasSubstr("set more than [memorize] suffix_tokens = 50"));
  EXPECT_THAT(with({.name = "a", .times = 2, .kind = DocumentKind::uniform}),
              HasSubstr("\"a\" has no control"));
  EXPECT_THAT(with({.name = "a", .times = 2, .variants = 3}),
              HasSubstr("leaves out some of variants = 3"));
  EXPECT_THAT(
      with({.name = "a", .times = 0, .kind = DocumentKind::canary, .digits = 1, .others = 10}),
      HasSubstr("\"a\": others = 10 of digits = 1"));
}

TEST(ValidateStudy, NamesWhatSchedulesAndMeansLack) {
  EXPECT_THAT(refusal([](StudyConfig& c) { c.memorize.schedules = {"square"}; }),
              AllOf(HasSubstr("[memorize] schedules"), HasSubstr("constant")));
  EXPECT_THAT(refusal([](StudyConfig& c) {
                c.memorize.schedules = {"linear", "linear"};
              }),
              HasSubstr("names linear twice"));
  EXPECT_THAT(refusal([](StudyConfig& c) { c.memorize.schedules = {"wsd"}; }),
              HasSubstr("decay_steps is 0"));
  const auto average = [](std::int64_t last, std::int64_t every) {
    return refusal([&](StudyConfig& c) {
      c.memorize.average_last = last;
      c.memorize.average_every = every;
    });
  };
  EXPECT_EQ(average(3, 10), "accepted");
  EXPECT_THAT(average(4, 10), HasSubstr("do not end with [training] steps = 30"));
  EXPECT_THAT(average(2, 7), HasSubstr("a divisor of steps"));
  EXPECT_THAT(average(1, 10), HasSubstr("set both"));
  EXPECT_THAT(average(0, 10), HasSubstr("set both"));
}
