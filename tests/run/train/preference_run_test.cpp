// Training on pairs of answers; tests/run/config/preference_test.cpp has the losses of given sums.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>

#include "axonn/data/corpus/corpus.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/preference.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/records/run_steps.h"
#include "axonn/run/train/preference_term.h"
#include "axonn/run/train/reference_scores.h"

#include "tests/support/dry_peak.h"
#include "tests/support/model_folder.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

void write_pairs(const std::string& file, int count) {
  std::ofstream lines(file);
  for (int i = 0; i < count; ++i)
    lines << R"({"prompt": "count )" << i << R"(: ", "chosen": ")" << std::string(1 + i % 3, 'a')
          << R"(", "rejected": ")" << std::string(1 + i % 5, 'b') << "\"}\n";
}

/// tiny_config trained on 17 pairs, from the model that a seed gives.
Config pair_config(const test::TemporaryPath& folder, const std::string& name,
                   std::int64_t experts = 0) {
  const std::string model = folder / "model";
  Config config = tiny_config(folder / name);
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 6;
  if (experts > 0) {
    config.model.experts = experts;
    config.model.experts_per_token = 2;
    config.model.expert_ffn = 24;
    config.training.balance = {.weight = 0.01};
  }
  if (!std::ifstream(model + "/ready")) {
    test::save_checkpoint(model, resolved(config.model, config.model.vocab, 48), {});
    std::ofstream(model + "/ready");
    write_pairs(folder / "pairs.jsonl", 17);
  }
  config.model.path = model;
  config.training.seq_len = 48;
  config.data = {.jsonl = {folder / "pairs.jsonl"}};
  config.preference = {.loss = PreferenceLoss::dpo, .beta = 0.5};
  return config;
}

Config pairs_only(const test::TemporaryPath& folder, const std::string& name) {
  return pair_config(folder, name);
}

/// The same trained on 16 answers with labels: words of a are good.
Config labelled_config(const test::TemporaryPath& folder, const std::string& name) {
  Config config = pair_config(folder, name);
  std::ofstream lines(folder / "labelled.jsonl");
  for (int i = 0; i < 16; ++i)
    lines << R"({"prompt": "count )" << i << R"(: ", "completion": ")"
          << std::string(1 + i % 4, i % 2 == 0 ? 'a' : 'b') << R"(", "label": )" << 1 - i % 2
          << "}\n";
  config.data.jsonl = {folder / "labelled.jsonl"};
  config.preference.loss = PreferenceLoss::kto;
  return config;
}

/// The log-probabilities of the tokens of answers.
using AnswerLosses = std::array<std::vector<float>, 4>;

/// Scores pairs without prompts.
std::vector<ScoredPair> score_recorded(const AnswerLosses& chosen, const AnswerLosses& rejected,
                                       double ld_alpha) {
  constexpr std::int64_t kLength = 16;
  std::vector<std::int32_t> ids(4 * kLength), targets(4 * kLength, -1), positions(4 * kLength),
      starts(4 * kLength);
  std::vector<float> losses(2 * 4 * kLength);
  for (std::size_t pair = 0; pair < 4; ++pair) {
    std::size_t row = pair * kLength;
    for (const auto* answer : {&chosen[pair], &rejected[pair]}) {
      const auto start = static_cast<std::int32_t>(row - pair * kLength);
      for (const float logp : *answer) {
        targets[row] = 1;
        starts[row] = start;
        positions[row] = static_cast<std::int32_t>(row - pair * kLength) - start;
        losses[2 * row++] = -logp;
      }
    }
  }
  const auto world = make_self();
  const Grid grid(*world, {});
  const auto backend = make_cpu_backend(1);
  Arena arena(backend->device());
  const Context ctx(*backend, arena, grid);
  const Tokens tokens =
      make_tokens(ctx, ids, targets, {4, kLength}, {.positions = positions, .starts = starts});
  const Tensor of_rows = ctx.empty(4 * kLength, 2, DType::f32);
  ctx.device().copy_from_host(of_rows.view().data, losses.data(), of_rows.bytes());
  return scored_pairs(ctx, tokens, of_rows, nullptr, ld_alpha);
}

std::vector<double> losses_of_pairs(const Config& config) { return first_losses(stored(config)); }

}  // namespace

TEST(PreferenceRun, BeginsWithTheLogarithmOfTwoAndLearnsThePreference) {
  test::TemporaryPath folder;
  const Config config = pair_config(folder, "run");
  train_on_threads(stored(config));
  const auto lines = metrics_of(config);
  // The reference is the model itself: the same sums, from the same operations.
  EXPECT_NEAR(column(lines, "loss").front(), std::log(2), 1e-6);
  EXPECT_NEAR(column(lines, "rewards/margins").front(), 0, 1e-5);
  EXPECT_LT(column(lines, "loss").back(), 0.6);
  EXPECT_GT(column(lines, "rewards/accuracies").back(), 0.9);
  EXPECT_GT(column(lines, "logps/chosen").back(), column(lines, "logps/rejected").back() - 100);
}

TEST(PreferenceRun, OfCpoAddsTheMeanLossOfTheChosenAnswersTokens) {
  test::TemporaryPath folder;
  std::vector<double> losses, norms, likelihood;
  for (const double alpha : {0.0, 0.5}) {
    Config config = pair_config(folder, alpha > 0 ? "with" : "without");
    config.preference = {.loss = PreferenceLoss::cpo, .cpo_alpha = alpha};
    train_on_threads(stored(config));
    losses.push_back(column(metrics_of(config), "loss").front());
    norms.push_back(column(metrics_of(config), "grad_norm").front());
    if (alpha > 0) likelihood = column(metrics_of(config), "nll_loss");
  }
  EXPECT_NEAR(likelihood.front(), std::log(256), 0.5) << "of a model with small logits";
  EXPECT_NEAR(losses[1] - losses[0], 0.5 * likelihood.front(), 1e-5);
  EXPECT_LT(likelihood.back(), likelihood.front());
  EXPECT_NE(norms[0], norms[1]);
}

TEST(ScoredPairs, HaveTheSumsOfARecordedLossThatWeighsTheTokensBeyondTheShorterAnswer) {
  // Log-probabilities of four pairs under policy and reference, and what TRL 1.16 computes of them
  // with ld_alpha 0.5.
  const AnswerLosses chosen = {
      {{-2.158935546875, -0.887451171875, -2.98095703125, -1.764404296875, -2.3076171875},
       {-1.400634765625, -0.10693359375, -2.0498046875, -0.771728515625, -1.21630859375,
        -1.839599609375},
       {-0.306396484375, -1.741943359375, -1.910400390625, -0.6083984375, -2.082763671875,
        -0.868408203125, -0.3154296875, -0.461181640625, -1.373291015625},
       {-2.761962890625, -0.705322265625, -0.287353515625, -0.1669921875, -0.759033203125,
        -1.75439453125, -2.65234375, -0.76025390625}}};
  const AnswerLosses rejected = {
      {{-0.75244140625, -2.451904296875, -0.78662109375, -0.98876953125, -2.863525390625,
        -3.103271484375, -1.780517578125},
       {-2.650634765625, -1.572265625, -1.329345703125, -0.109130859375, -1.825439453125,
        -0.59814453125},
       {-2.40283203125, -0.1376953125, -1.3359375},
       {-0.782470703125, -0.83740234375, -1.19677734375, -2.1337890625}}};
  const AnswerLosses ref_chosen = {
      {{-1.90087890625, -0.68212890625, -3.11181640625, -1.451904296875, -2.120361328125},
       {-1.373779296875, -0.2490234375, -2.1767578125, -0.3828125, -1.427978515625, -1.521484375},
       {-0.02392578125, -1.767578125, -2.261962890625, -0.253173828125, -2.287353515625,
        -0.6904296875, -0.008544921875, -0.494140625, -1.186279296875},
       {-3.09033203125, -0.833740234375, -0.60302734375, -0.0048828125, -0.943603515625,
        -1.62109375, -2.27685546875, -0.796630859375}}};
  const AnswerLosses ref_rejected = {
      {{-0.800537109375, -2.262451171875, -0.564697265625, -0.7861328125, -2.7744140625,
        -3.305419921875, -2.2158203125},
       {-2.80908203125, -2.014892578125, -1.66796875, -0.294921875, -1.374267578125,
        -1.309326171875},
       {-2.4052734375, -0.106201171875, -1.62939453125},
       {-0.900146484375, -0.702392578125, -0.5537109375, -3.031494140625}}};
  constexpr std::array<double, 4> kOfFirstTokens = {-0.012809918772184042, -0.01352188426947654,
                                                    -0.012852689566862644, -0.012356802529329402};
  const std::vector<ScoredPair> policy = score_recorded(chosen, rejected, 0.5),
                                reference = score_recorded(ref_chosen, ref_rejected, 0.5);
  double mean = 0;
  for (std::size_t i = 0; i < policy.size(); ++i) {
    std::array<AnswerScore, 2> answers = policy[i].answers;
    for (std::size_t side = 0; side < 2; ++side)
      answers[side].reference = reference[i].answers[side].policy;
    const PairLoss loss = preference_loss({.loss = PreferenceLoss::dpo}, answers[0], answers[1]);
    mean += loss.value / 4;
    EXPECT_NEAR(loss.d_chosen / 4, kOfFirstTokens[i], 1e-12);
    EXPECT_EQ(policy[i].shares.front(), 1);
  }
  EXPECT_NEAR(mean, 0.7250528367849107, 1e-12);
  EXPECT_EQ(policy[0].shares[5 + 6], 0.5) << "the sixth token of an answer to one of five";
  EXPECT_EQ(policy[3].shares[7], 0.5);
}

TEST(PreferenceRun, WithoutTheTokensBeyondTheShorterAnswerDoesNotDependOnThem) {
  test::TemporaryPath folder;
  Config config = pair_config(folder, "run");
  const auto first_step_of = [&](double weight, const std::string& end) {
    std::ofstream(folder / "pairs.jsonl")
        << R"({"prompt": "is it? ", "chosen": "yes", "rejected": "nay)" << end << "\"}\n";
    config.training.global_batch = config.training.micro_batch = config.training.steps = 1;
    config.lr_scheduler.warmup_steps = 0;
    config.preference.ld_alpha = weight;
    config.output.dir = folder / concat(weight, end);
    train_on_threads(stored(config));
    return metrics_of(config).front();
  };
  const auto other = first_step_of(0, "xyz"), same = first_step_of(0, " no"),
             whole = first_step_of(1, "xyz"), half = first_step_of(0.5, "xyz");
  for (const char* key : {"loss", "grad_norm", "logps/rejected"})
    EXPECT_NEAR(other[key].get<double>(), same[key].get<double>(), 1e-5) << key;
  EXPECT_LT(whole["logps/rejected"].get<double>(), other["logps/rejected"].get<double>() - 10);
  EXPECT_NEAR(2 * half["logps/rejected"].get<double>(),
              whole["logps/rejected"].get<double>() + other["logps/rejected"].get<double>(), 1e-4);
}

TEST(PreferenceRun, WithWeightingWeighsPairsByTheirLikelihoodUnderTheModel) {
  test::TemporaryPath folder;
  Config config = pair_config(folder, "run");
  config.preference.use_weighting = true;
  const std::vector<double> losses = losses_of_pairs(config);
  // With logits near 0, p is nearly the square root of the sum of squares of all probabilities.
  EXPECT_NEAR(losses.front(), std::log(2), 0.7);
  EXPECT_GT(std::abs(losses.front() - std::log(2)), 1e-4);
}

TEST(PreferenceRun, WithTheLossOfChosenTokensIsTheSumOfBoth) {
  test::TemporaryPath folder;
  Config config = pair_config(folder, "run");
  config.preference.sft_weight = 0.25;
  train_on_threads(stored(config));
  const auto lines = metrics_of(config);
  EXPECT_NEAR(column(lines, "loss").front(), std::log(2) + 0.25 * column(lines, "nll_loss").front(),
              1e-5);
  EXPECT_LT(column(lines, "nll_loss").back(), column(lines, "nll_loss").front());
}

TEST(PreferenceRun, OfOrpoAddsTheMeanLossOfTheChosenTextsWithTheirPrompts) {
  test::TemporaryPath folder;
  Config config = pair_config(folder, "run");
  config.training.global_batch = config.training.micro_batch = 1;
  config.preference = {.loss = PreferenceLoss::orpo, .beta = 1e-9};
  std::ofstream(folder / "pairs.jsonl")
      << R"({"prompt": "count: ", "chosen": "one, two", "rejected": "b"})" << '\n';
  std::ofstream(folder / "text.jsonl") << R"({"text": "count: one, two"})" << '\n';
  const double of_pairs = losses_of_pairs(config).front();
  config.data.jsonl = {folder / "text.jsonl"};
  config.preference = {};
  EXPECT_NEAR(of_pairs, losses_of_pairs(config).front(), 1e-6);
}

TEST(PreferenceRun, OfKtoBeginsWithHalfAndLearnsTheLabels) {
  test::TemporaryPath folder;
  const Config config = labelled_config(folder, "run");
  train_on_threads(stored(config));
  const auto lines = metrics_of(config);
  // The reference is the model itself, so all log-ratios are 0, and a logistic function of it 1/2.
  EXPECT_NEAR(column(lines, "loss").front(), 0.5, 1e-6);
  EXPECT_NEAR(column(lines, "kl").front(), 0, 1e-5);
  EXPECT_LT(column(lines, "loss").back(), 0.45);
  EXPECT_GT(column(lines, "rewards/margins").back(), 0.1);
  const std::vector<double> divergence = column(lines, "kl");
  EXPECT_GT(*std::ranges::max_element(divergence), 1e-3);
  EXPECT_GE(*std::ranges::min_element(divergence), 0);
}

TEST(PreferenceRun, HasTheLossesOfOneRankOnEveryGridAndForEveryMicroBatch) {
  test::TemporaryPath folder;
  for (const PreferenceLoss loss :
       {PreferenceLoss::dpo, PreferenceLoss::ipo, PreferenceLoss::robust, PreferenceLoss::simpo,
        PreferenceLoss::orpo, PreferenceLoss::kto, PreferenceLoss::aot,
        PreferenceLoss::aot_unpaired}) {
    Config config =
        reads_labels(loss) ? labelled_config(folder, "run") : pair_config(folder, "run");
    config.preference.loss = loss;
    if (loss == PreferenceLoss::dpo) config.preference.ld_alpha = 0.5;
    if (loss == PreferenceLoss::ipo) config.preference.sft_weight = 0.5;
    if (loss == PreferenceLoss::aot_unpaired) {
      config.preference.more_losses = {"bco_pair"};
      config.preference.loss_weights = {1, 0.5};
    }
    config.preference.use_weighting = loss == PreferenceLoss::robust;
    const std::vector<double> one = losses_of_pairs(config);
    for (const GridShape grid : {GridShape{.x = 2}, GridShape{.y = 2}, GridShape{.z = 2},
                                 GridShape{.data = 3}, GridShape{2, 1, 2, 1}})
      EXPECT_LE(largest_difference(losses_of_pairs(on_grid(config, grid)), one), 2e-5)
          << to_string(grid);
    config.training.micro_batch = 4;
    config.parallelism.chunks = 2;
    config.activation_checkpoint.mode = RecomputeMode::full;
    EXPECT_LE(largest_difference(losses_of_pairs(config), one), 2e-5);
  }
}

TEST(PreferenceRun, HasTheLossesOfOneRankWhereTheGridDoesNotDivideTheBatch) {
  test::TemporaryPath folder;
  for (const PreferenceLoss loss :
       {PreferenceLoss::dpo, PreferenceLoss::orpo, PreferenceLoss::kto}) {
    Config config =
        reads_labels(loss) ? labelled_config(folder, "run") : pair_config(folder, "run");
    config.preference.loss = loss;
    config.training.global_batch = 5;
    const std::vector<double> one = losses_of_pairs(config);
    for (const GridShape grid : {GridShape{.z = 2}, GridShape{.data = 3}, GridShape{2, 1, 2, 2}})
      EXPECT_LE(largest_difference(losses_of_pairs(on_grid(config, grid)), one), 2e-5)
          << to_string(grid);
    config.training.micro_batch = 2;
    EXPECT_LE(largest_difference(losses_of_pairs(config), one), 2e-5);
  }
}

// Answers of 100 letters and more begin and end within blocks, and lie on several ranks.
TEST(PreferenceRun, HasTheLossesOfOneRankWhereRanksShareTheSequences) {
  test::TemporaryPath folder;
  Config config = labelled_config(folder, "run");
  config.training.seq_len = 512;
  config.training.steps = 4;
  config.training.global_batch = 3;
  config.model.path = "";
  test::save_checkpoint(folder / "long", resolved(config.model, config.model.vocab, 512), {});
  config.model.path = folder / "long";
  std::ofstream lines(folder / "labelled.jsonl");
  for (int i = 0; i < 12; ++i)
    lines << R"({"prompt": "count )" << i << R"(: ", "chosen": ")" << std::string(100 + 13 * i, 'a')
          << R"(", "rejected": ")" << std::string(7 + 19 * i, 'b') << "\"}\n";
  lines.close();
  for (const PreferenceConfig& preference :
       {PreferenceConfig{.loss = PreferenceLoss::dpo, .ld_alpha = 0.5, .use_weighting = true},
        PreferenceConfig{.loss = PreferenceLoss::orpo},
        PreferenceConfig{.loss = PreferenceLoss::aot},
        PreferenceConfig{.loss = PreferenceLoss::kto}}) {
    config.preference = preference;
    const std::vector<double> one = losses_of_pairs(config);
    for (const ContextLayout layout : {ContextLayout::zigzag, ContextLayout::balanced})
      for (const GridShape grid :
           {GridShape{.z = 2, .context = 2}, GridShape{.x = 2, .z = 4, .context = 2}}) {
        Config cut = on_grid(config, grid);
        cut.parallelism.context_layout = layout;
        EXPECT_LE(largest_difference(losses_of_pairs(cut), one), 2e-5)
            << kPreferenceLosses[static_cast<std::size_t>(preference.loss)] << ' '
            << with_factors(grid);
      }
  }
}

TEST(PreferenceRun, ValidatesHeldOutAnswersWithTheLossOfTraining) {
  test::TemporaryPath folder;
  for (const PreferenceLoss loss : {PreferenceLoss::dpo, PreferenceLoss::orpo, PreferenceLoss::kto})
    for (const GridShape grid : {GridShape{}, GridShape{.x = 2, .data = 2}}) {
      // Held out is what a step trains on: its loss is that of the next step.
      Config config = on_grid(labelled_config(folder, "run"), grid);
      config.preference.loss = loss;
      if (!reads_labels(loss)) write_pairs(folder / "labelled.jsonl", 16);
      config.data.validation = folder / "labelled.jsonl";
      config.training.global_batch = 16;
      config.training.eval_every = 1;
      config.training.steps = 3;
      config.output.dir =
          folder / concat(kPreferenceLosses[static_cast<std::size_t>(loss)], to_string(grid));
      train_on_threads(stored(config));
      const auto lines = metrics_of(config);
      ASSERT_EQ(lines.size(), 3);
      for (const std::size_t step : {1, 2})
        for (const std::string key : {"loss", "rewards/margins", "logps/chosen"})
          EXPECT_NEAR(lines[step - 1]["val_" + key].get<double>(), lines[step][key].get<double>(),
                      2e-5 * (1 + std::abs(lines[step][key].get<double>())))
              << key << ' ' << to_string(grid);
    }
}

TEST(PreferenceRun, KeepsAPartOfThePairsFromTraining) {
  test::TemporaryPath folder;
  Config config = pair_config(folder, "run");
  config.data.validation = "0.25";
  config.training.eval_every = 2;
  train_on_threads(stored(config));
  const auto lines = metrics_of(config);
  EXPECT_FALSE(lines[0].contains("val_loss"));
  EXPECT_TRUE(lines[1].contains("val_rewards/accuracies"));
  EXPECT_EQ(series_of({.key = "val_rewards/margins"}), "rewards/margins_validation");
  EXPECT_LT(lines.back()["val_loss"].get<double>(), std::log(2));
}

TEST(PreferenceRun, OfExpertsHasTheLossesOfOneRankWhereRanksShareThem) {
  test::TemporaryPath folder;
  const Config config = pair_config(folder, "run", 4);
  const std::vector<double> one = losses_of_pairs(config);
  EXPECT_NEAR(one.front(), std::log(2), 1e-5);
  for (const GridShape grid : {GridShape{.z = 2, .experts = 2}, GridShape{2, 1, 2, 1}})
    EXPECT_LE(largest_difference(losses_of_pairs(on_grid(config, grid)), one), 2e-5)
        << to_string(grid);
}

TEST(PreferenceRun, ResumesToTheBit) {
  test::TemporaryPath folder;
  for (const auto& config_of : {&labelled_config, &pairs_only}) {
    const Config whole = config_of(folder, concat("whole", config_of == &pairs_only));
    train_on_threads(stored(whole));
    Config rest = config_of(folder, concat("rest", config_of == &pairs_only));
    rest.checkpoint.resume = whole.output.dir + "/checkpoints/step-5";
    train_on_threads(stored(rest));
    auto want = metrics_of(whole);
    want.erase(want.begin(), want.begin() + 5);
    for (const char* key : {"loss", "grad_norm", "rewards/margins"})
      EXPECT_EQ(column(metrics_of(rest), key), column(want, key)) << key;
  }
}

TEST(PreferenceRun, ReadsTheScoresOfItsReferenceAgain) {
  test::TemporaryPath folder;
  Config config = pairs_only(folder, "run");
  train_on_threads(stored(config));
  const auto before = column(metrics_of(config), "loss");
  const PreparedRun run = prepared(stored(config));
  const std::string cache = config.output.dir + "/cache";
  const DocumentRange answers = open_corpus(run->data, {}).train_documents;
  const ReferenceScores scores(cache, run);
  auto sums = scores.read(answers, 34);
  ASSERT_TRUE(sums);
  EXPECT_LT(*std::ranges::max_element(*sums), 0);
  EXPECT_FALSE(scores.read(answers, 32));
  DocumentRange fewer = answers;
  fewer.end -= 2;
  EXPECT_FALSE(scores.read(fewer, 34));

  config.checkpoint.resume = config.output.dir + "/checkpoints/step-5";
  config.output.overwrite = true;  // the checkpoints behind it
  train_on_threads(stored(config));
  EXPECT_EQ(column(metrics_of(config), "loss"), before);
  for (double& sum : *sums) sum /= 2;
  scores.write(answers, *sums);  // a run that reads them has other losses
  train_on_threads(stored(config));
  const auto other = column(metrics_of(config), "loss");
  EXPECT_EQ(other[4], before[4]);
  EXPECT_NE(other[5], before[5]);

  Config with = config;
  with.preference.ld_alpha = 0.5;
  EXPECT_FALSE(ReferenceScores(cache, prepared(stored(with))).read(answers, 34));
  for (const auto& file : std::filesystem::directory_iterator(cache)) {
    if (!file.path().filename().string().starts_with("reference-")) continue;
    std::string text = test::slurp(file.path());
    text[text.size() / 2] ^= 1;
    test::spill(file.path(), text);
  }
  EXPECT_FALSE(scores.read(answers, 34)) << "damaged";
}

// Another batch gives some prompts of KTO other examples' answers; their number and length stay.
TEST(PreferenceRun, ComputesTheScoresOfKtoAnewForAnotherBatch) {
  test::TemporaryPath folder;
  Config config = labelled_config(folder, "run");
  train_on_threads(stored(config));
  const auto scores_there = [&] {
    const PreparedRun run = prepared(stored(config));
    const DocumentRange answers = open_corpus(run->data, {}).train_documents;
    return ReferenceScores(config.output.dir + "/cache", run).read(answers, 32).has_value();
  };
  EXPECT_TRUE(scores_there());
  config.training.global_batch = 3;
  EXPECT_FALSE(scores_there());
}

TEST(PreferenceRun, OfAdaptersHasTheModelWithoutThemAsItsReference) {
  test::TemporaryPath folder;
  Config config = pair_config(folder, "run");
  config.model.lora.rank = 4;
  const std::vector<double> one = losses_of_pairs(config);
  EXPECT_NEAR(one.front(), std::log(2), 1e-6) << "adapters begin with zeros";
  EXPECT_LT(one.back(), one.front());
  EXPECT_LE(largest_difference(losses_of_pairs(on_grid(config, {.z = 2})), one), 2e-5);
}

TEST(PreferenceRun, TakesTheMemoryThatADryStepPredicts) {
  test::TemporaryPath folder;
  Config config = on_grid(pair_config(folder, "run"), {.y = 2, .z = 2});
  config.training.micro_batch = 2;
  expect_dry_peak(prepared(stored(config)));
  config.preference.use_weighting = true;
  expect_dry_peak(prepared(stored(config)));
}

TEST(PreferenceRun, RefusesWhatItDoesNotDoByItsKey) {
  test::TemporaryPath folder;
  const auto refusal = [&](const std::function<void(Config&)>& change) {
    Config config = pair_config(folder, "run");
    change(config);
    try {
      prepared(stored(config));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal([](Config&) {}), "");
  EXPECT_THAT(refusal([](Config& c) {
                c.preference.loss = PreferenceLoss::kto;
                c.training.global_batch = 1;
              }),
              HasSubstr("[training] global_batch must be at least 2"));
  EXPECT_THAT(refusal([](Config& c) { c.training.goldfish.k = 4; }), HasSubstr("goldfish.k"));
  EXPECT_THAT(refusal([](Config& c) { c.training.z_loss = 1e-4; }), HasSubstr("z_loss"));
  EXPECT_THAT(refusal([](Config& c) {
                c.model.lora.rank = 4;
                c.model.lora.dropout = 0.1;
              }),
              HasSubstr("[lora] dropout"));
  EXPECT_THAT(refusal([](Config& c) { c.model.path.clear(); }),
              HasSubstr("[preference] reference"));
}
