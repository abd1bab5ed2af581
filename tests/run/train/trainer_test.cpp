#include "axonn/run/train/trainer.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>

#include "axonn/data/corpus/corpus.h"
#include "axonn/foundation/options/options.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Le;
using testing::Lt;
using testing::Not;
using testing::UnorderedElementsAre;

namespace {

// Tolerance between grids in f32: sums in another order, over ten steps.
constexpr double kBetweenGrids = 1e-5;

std::string checkpoint(const Config& config, int step) {
  return config.output.dir + "/checkpoints/step-" + std::to_string(step);
}

/// Returns the lines from step `first` on.
std::vector<nlohmann::json> from(const std::vector<nlohmann::json>& lines, std::int64_t first) {
  std::vector<nlohmann::json> rest;
  for (const auto& line : lines)
    if (line.at("step") >= first) rest.push_back(line);
  return rest;
}

/// Returns the number of the first sample that a run reads.
std::int64_t first_sample_of(const Config& config) {
  struct Recorded : Sequences {
    Recorded(std::unique_ptr<const Sequences> all, std::atomic<std::int64_t>& least)
        : all_(std::move(all)), least_(least) {}
    std::int64_t count() const override { return all_->count(); }
    Size size(std::int64_t n) const override { return all_->size(n); }
    std::string where(std::int64_t n) const override { return all_->where(n); }
    void read(std::int64_t n, Sequence& to) const override {
      for (std::int64_t least = least_; n < least && !least_.compare_exchange_weak(least, n);) {
      }
      all_->read(n, to);
    }
    std::unique_ptr<const Sequences> all_;
    std::atomic<std::int64_t>& least_;
  };
  std::atomic<std::int64_t> least = 1 << 30;
  train_on_threads(config, {.make_sequences = [&](const Config& c, const Corpus& corpus) {
                     const SamplerOptions options{.seq_len = c.training.seq_len,
                                                  .shuffle = c.data.shuffle};
                     return std::make_unique<Recorded>(training_sequences(corpus, options), least);
                   }});
  return least;
}

}  // namespace

TEST(Trainer, WritesTheKeysOfAStepAndTheValidationLossOfEvaluatedSteps) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder.path());
  config.training.eval_every = 5;
  train_on_threads(config);
  const auto lines = metrics_of(config);
  ASSERT_EQ(lines.size(), 10u);
  for (const auto& line : lines) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : line.items())
      if (key != "val_loss") keys.push_back(key);
    EXPECT_THAT(keys, UnorderedElementsAre("step", "time", "loss", "grad_norm", "lr", "tokens",
                                           "epoch", "step_ms", "tokens_per_s", "model_tflops",
                                           "mfu", "exposed_comm_ms", "memory_bytes"));
    EXPECT_EQ(line.contains("val_loss"), line.at("step") == 5 || line.at("step") == 10);
  }
  EXPECT_THAT(column(lines, "step"), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(lines[9].at("tokens"), 10 * 12 * 8);
  EXPECT_EQ(lines[0].at("lr"), 0.005);
  EXPECT_LT(lines[9].at("loss"), lines[0].at("loss"));
  EXPECT_THAT(test::slurp(config.output.dir + "/loss.svg"),
              testing::AllOf(testing::StartsWith("<svg"), HasSubstr("</svg>")));
}

TEST(Trainer, DataThatAreHeldOutAreAlwaysEvaluatedAfterTheLastStep) {
  test::TemporaryPath folder;
  const Config config = tiny_config(folder.path());
  train_on_threads(config);
  for (const auto& line : metrics_of(config))
    EXPECT_EQ(line.contains("val_loss"), line.at("step") == 10);
  EXPECT_THAT(test::slurp(folder / "logs/rank-0.log"),
              HasSubstr("validation: 249 sequences, after the last step\n"));
}

TEST(Trainer, ReportsWaitsByAxisAndKindThatAddUp) {
  test::TemporaryPath folder;
  const Config config = on_grid(tiny_config(folder.path()), {.x = 2, .z = 2});
  train_on_threads(config);
  for (const auto& line : metrics_of(config)) {
    ASSERT_TRUE(line.contains("exposed_comm_ms_by"));
    double sum = 0;
    for (const auto& [kind, ms] : line.at("exposed_comm_ms_by").items()) {
      EXPECT_THAT(kind,
                  testing::MatchesRegex("(x|z|world) (all_reduce|all_gather|reduce_scatter)"));
      sum += ms.get<double>();
    }
    // Each number is rounded to a thousandth.
    EXPECT_NEAR(sum, line.at("exposed_comm_ms").get<double>(), 0.02);
  }
}

TEST(Trainer, TheSameRunTwiceGivesTheSameBits) {
  test::TemporaryPath folder;
  Config first = on_grid(tiny_config(folder / "a"), {.x = 2, .z = 2}), second = first;
  second.output.dir = folder / "b";
  train_on_threads(first);
  train_on_threads(second);
  EXPECT_EQ(column(metrics_of(first), "loss"), column(metrics_of(second), "loss"));
  EXPECT_EQ(column(metrics_of(first), "grad_norm"), column(metrics_of(second), "grad_norm"));
  for (const char* kind : {"master", "exp_avg", "exp_avg_sq"})
    EXPECT_EQ(weights_of(checkpoint(first, 10), kind), weights_of(checkpoint(second, 10), kind));
}

TEST(Trainer, AResumedRunIsExactOnTheSameGrid) {
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 3}})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Config straight = on_grid(tiny_config(folder / to_string(grid)), grid);
      straight.output.dir += name_of(dtype);
      straight.training.dtype = dtype;
      train_on_threads(straight);
      Config resumed = straight;
      resumed.output.dir += "-resumed";
      resumed.checkpoint.resume = checkpoint(straight, 5);
      train_on_threads(resumed);
      const auto expected = from(metrics_of(straight), 6), got = metrics_of(resumed);
      EXPECT_EQ(column(got, "step"), column(expected, "step")) << to_string(grid);
      EXPECT_EQ(column(got, "loss"), column(expected, "loss")) << to_string(grid);
      EXPECT_EQ(column(got, "lr"), column(expected, "lr")) << to_string(grid);
      EXPECT_EQ(weights_of(checkpoint(resumed, 10)), weights_of(checkpoint(straight, 10)));
    }
}

TEST(Trainer, AResumedRunAgreesOnAnotherGrid) {
  test::TemporaryPath folder;
  const Config straight = on_grid(tiny_config(folder / "straight"), {.x = 2, .y = 2});
  train_on_threads(straight);
  for (const GridShape grid : {GridShape{}, GridShape{.z = 3}, GridShape{3, 1, 1, 2}}) {
    Config resumed = on_grid(straight, grid);
    resumed.output.dir = folder / to_string(grid);
    resumed.checkpoint.resume = checkpoint(straight, 5);
    train_on_threads(resumed);
    EXPECT_THAT(largest_difference(column(metrics_of(resumed), "loss"),
                                   column(from(metrics_of(straight), 6), "loss")),
                Lt(kBetweenGrids))
        << to_string(grid);
  }
}

TEST(Trainer, AResumedLlamaAgreesOnAnotherGridAndIsExactOnItsOwn) {
  test::TemporaryPath folder;
  Config straight = on_grid(tiny_config(folder / "straight"), {.x = 2, .y = 2});
  straight.model.family = ModelFamily::llama;
  straight.model.kv_heads = 3;
  straight.model.ffn = 48;
  straight.model.tied = false;
  straight.model.qkv_bias = true;
  straight.model.qk_norm = QkNormKind::head;
  train_on_threads(straight);
  const auto rest = column(from(metrics_of(straight), 6), "loss");
  for (const GridShape grid : {GridShape{2, 2, 1, 1}, GridShape{}, GridShape{3, 1, 1, 2}}) {
    Config resumed = on_grid(straight, grid);
    resumed.output.dir = folder / to_string(grid);
    resumed.checkpoint.resume = checkpoint(straight, 5);
    train_on_threads(resumed);
    const auto losses = column(metrics_of(resumed), "loss");
    EXPECT_THAT(largest_difference(losses, rest), Le(grid.y == 2 ? 0 : kBetweenGrids))
        << to_string(grid);
  }
}

TEST(Trainer, StopsAfterAStepOnRequestAndResumesWithoutRepeatingIt) {
  test::TemporaryPath folder;
  const Config straight = on_grid(tiny_config(folder / "straight"), {.x = 2});
  train_on_threads(straight);
  Config stopped = straight;
  stopped.output.dir = folder / "stopped";
  stopped.checkpoint.resume = "auto";
  const std::atomic<bool> stop = true;
  EXPECT_EQ(train_on_threads(stopped, {.stop = &stop}), TrainEnd::stopped);
  EXPECT_EQ(metrics_of(stopped).size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(checkpoint(stopped, 1)));
  EXPECT_EQ(train_on_threads(stopped), TrainEnd::finished);
  EXPECT_EQ(column(metrics_of(stopped), "loss"), column(metrics_of(straight), "loss"));
  EXPECT_EQ(column(metrics_of(stopped), "step"), column(metrics_of(straight), "step"));
}

TEST(Trainer, AResumedRunWithAnotherGlobalBatchGoesOnWithTheNextUnseenSample) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "12");
  config.checkpoint.every = 4;
  EXPECT_EQ(first_sample_of(config), 0);
  for (const int batch : {6, 24}) {
    Config resumed = config;
    resumed.output.dir = folder / std::to_string(batch);
    resumed.checkpoint.resume = checkpoint(config, 4);
    resumed.training.global_batch = batch;
    EXPECT_EQ(first_sample_of(resumed), 4 * 12);
    Config again = resumed;
    again.output.dir += "again";
    again.checkpoint.resume = checkpoint(resumed, 8);
    EXPECT_EQ(first_sample_of(again), 4 * 12 + 4 * batch);
  }
}

TEST(Trainer, OfSomeEpochsHasTheFewestStepsThatReadTheDataSoOften) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.data.synthetic = 1000;  // 112 sequences, besides those of validation
  config.training.steps = 0;
  config.training.epochs = 1.1;  // 123.2 sequences
  config.lr_scheduler = {.kind = ScheduleKind::linear, .warmup_ratio = 0.25, .min_lr = 1e-3};
  train_on_threads(config);
  const auto lines = metrics_of(config);
  ASSERT_EQ(lines.size(), 11u);  // of 12
  EXPECT_NEAR(lines.back().at("epoch"), 11 * 12 / 112.0, 1e-5);
  EXPECT_DOUBLE_EQ(lines[1].at("lr"), 1e-2 * 2 / 3);  // the warm-up has 2.75 steps, rounded up
  EXPECT_DOUBLE_EQ(lines.back().at("lr"), 1e-3);
  EXPECT_THAT(test::slurp(config.output.dir + "/config.toml"),
              AllOf(ContainsRegex("\n# steps = 11 +# no effect: "), HasSubstr("\nepochs = 1.1\n")));

  config.checkpoint.resume = checkpoint(config, 5);
  config.output.dir = folder / "small";
  config.training.global_batch = 6;
  train_on_threads(config);
  EXPECT_EQ(metrics_of(config).back().at("step"), 5 + 11);  // 60 sequences, then 64 by 6
}

TEST(Trainer, ResumingWithOtherDataOrAnotherOrderIsRefusedOrBeginsThemAnew) {
  test::TemporaryPath folder;
  const Config config = tiny_config(folder / "run");
  train_on_threads(config);
  using Change = void (*)(Config&);
  const std::pair<const char*, Change> changes[] = {
      {"training.seed was 1 and is 2; set it to 1", [](Config& c) { c.training.seed = 2; }},
      {"training.seq_len was 8 and is 4; set it to 8", [](Config& c) { c.training.seq_len = 4; }},
      {"data.shuffle was true and is false", [](Config& c) { c.data.shuffle = false; }},
      {"the training data are others", [](Config& c) { c.data.synthetic = 30'000; }},
      {"the training data are others", [](Config& c) { c.data.validation = "0.2"; }}};
  for (const auto& [message, change] : changes) {
    Config other = config;
    other.model.positions = 8;
    other.checkpoint.resume = checkpoint(config, 5);
    change(other);
    other.output.dir = folder / "refused";
    EXPECT_THAT(failure_of(other), testing::AllOf(HasSubstr(message), HasSubstr("step-5"),
                                                  HasSubstr("changed_data = \"restart\"")));
    other.output.dir = folder / std::to_string(&change - &changes[0].second);
    other.checkpoint.changed_data = ChangedData::restart;
    EXPECT_EQ(first_sample_of(other), 0) << message;
    EXPECT_THAT(test::slurp(other.output.dir + "/logs/rank-0.log"),
                HasSubstr("continuing with the first sample of the new order"));
    other.checkpoint.resume = checkpoint(other, 5 + 5);
    other.training.steps = 12;
    EXPECT_EQ(first_sample_of(other), 5 * 12) << message;
    std::filesystem::remove_all(other.output.dir);
  }
}

TEST(Trainer, OtherDataAreRefusedBeforeWeightsAreRead) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  train_on_threads(config);
  config.checkpoint.resume = checkpoint(config, 5);
  config.training.seed = 2;
  config.output.dir = folder / "other";
  const std::string weights = config.checkpoint.resume + "/rank-00000.safetensors";
  std::string bytes = test::slurp(weights);
  bytes.back() ^= 1;  // a fault that reading finds
  test::spill(weights, bytes);
  EXPECT_THAT(failure_of(config), HasSubstr("training.seed was 1 and is 2"));
}

TEST(Trainer, ResumingAFinishedRunDoesNothing) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder.path());
  config.checkpoint.resume = "auto";
  train_on_threads(config);
  const auto lines = column(metrics_of(config), "loss");
  const std::string config_text = test::slurp(config.output.dir + "/config.toml");
  const std::string leftover = config.output.dir + "/loss.svg.tmp-0123456789abcdef";
  test::spill(leftover, "by a run that was killed");
  EXPECT_EQ(train_on_threads(config), TrainEnd::finished);
  EXPECT_FALSE(std::filesystem::exists(leftover));
  EXPECT_EQ(column(metrics_of(config), "loss"), lines);
  config.training.steps = 4;
  EXPECT_EQ(train_on_threads(config), TrainEnd::finished);
  const std::string log = test::slurp(config.output.dir + "/logs/rank-0.log");
  EXPECT_THAT(log, HasSubstr("nothing to do: the checkpoint at " + checkpoint(config, 10) +
                             " is at step 10 of 10; raise training.steps to go on"));
  EXPECT_THAT(log, HasSubstr("is at step 10 of 4"));
  EXPECT_THAT(log, Not(HasSubstr("the next step is 11")));
  EXPECT_EQ(test::slurp(config.output.dir + "/config.toml"), config_text);
}

TEST(Trainer, FallsBackToTheOlderCheckpointWithAWarningAndRunsItsStepsAgainOnce) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder.path());
  config.checkpoint.resume = "auto";
  train_on_threads(config);
  const auto losses = column(metrics_of(config), "loss");
  std::filesystem::resize_file(checkpoint(config, 10) + "/index.json", 100);
  train_on_threads(config);
  EXPECT_EQ(column(metrics_of(config), "loss"), losses);
  const std::string log = test::slurp(config.output.dir + "/logs/rank-0.log");
  EXPECT_THAT(log, ContainsRegex("warning .*step-10"));
  EXPECT_THAT(log, ContainsRegex("resumed from .*step-5"));
}

TEST(Trainer, KeepsTheNewestCheckpoints) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder.path());
  config.checkpoint.every = 2;
  config.checkpoint.keep = 3;
  train_on_threads(config);
  EXPECT_THAT(test::names_in(config.output.dir + "/checkpoints"),
              ElementsAre("latest", "step-10", "step-6", "step-8"));
}

TEST(Trainer, SavingInTheBackgroundGivesTheSameCheckpoint) {
  test::TemporaryPath folder;
  Config background = tiny_config(folder / "a"), at_once = tiny_config(folder / "b");
  background.checkpoint.every = 1;
  at_once.checkpoint.async = false;
  train_on_threads(background);
  train_on_threads(at_once);
  for (const int step : {5, 10})
    EXPECT_EQ(weights_of(checkpoint(background, step)), weights_of(checkpoint(at_once, step)));
}

TEST(Trainer, TheMicroBatchDoesNotChangeTheLosses) {
  test::TemporaryPath folder;
  const Config whole = on_grid(tiny_config(folder / "12"), {.x = 2});
  train_on_threads(whole);
  for (const int micro : {1, 4}) {
    Config accumulated = whole;
    accumulated.output.dir = folder / std::to_string(micro);
    accumulated.training.micro_batch = micro;
    train_on_threads(accumulated);
    EXPECT_THAT(largest_difference(column(metrics_of(accumulated), "loss"),
                                   column(metrics_of(whole), "loss")),
                Lt(kBetweenGrids))
        << micro;
  }
}

TEST(Trainer, NanEndsTheRunAfterTheCheckpointThatWasBeingWritten) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  config.optimizer.lr = 1e38;  // step 1 makes weights so large that products are infinite
  config.lr_scheduler.warmup_steps = 0;
  config.checkpoint.every = 1;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    config.output.dir = folder / to_string(grid);
    EXPECT_THAT(failure_of(on_grid(config, grid)), HasSubstr("step 2: the loss is "));
    EXPECT_EQ(weights_of(config.output.dir + "/checkpoints").size(),
              weights_of(checkpoint(config, 1)).size());
    EXPECT_THAT(test::names_in(config.output.dir + "/checkpoints"),
                ElementsAre("latest", "step-1"));
  }
}

TEST(Trainer, AnErrorOfOneRankLeavesTheCheckpointThatWasBeingWritten) {
  test::TemporaryPath folder;
  for (const int rank : {0, 1}) {
    std::vector<std::int32_t> tokens(4 * 12 * 8 + 1, 97);
    tokens[12 * 8 + 48 * rank + 3] = 300;  // in a sequence of step 2 that this rank reads
    const std::string name = std::to_string(rank);
    write_token_file(folder / name + ".bin", tokens);
    Config config = on_grid(tiny_config(folder / name), {.data = 2});
    config.data = {.tokens = {folder / name + ".bin"}, .validation = "0", .shuffle = false};
    config.checkpoint.every = 1;
    config.training.steps = 3;
    EXPECT_THAT(failure_of(config), ContainsRegex("rank " + name + ": token .* is 300"));
    EXPECT_THAT(test::names_in(config.output.dir + "/checkpoints"),
                ElementsAre("latest", "step-1"));
    EXPECT_FALSE(weights_of(checkpoint(config, 1)).empty());
  }
}

namespace {

/// A terminal that does something as soon as a text is shown.
class Watch : public std::stringbuf {
 public:
  Watch(std::string text, std::function<void()> act)
      : text_(std::move(text)), act_(std::move(act)) {}

 private:
  int sync() override {
    if (act_ && str().find(text_) != std::string::npos) std::exchange(act_, {})();
    return 0;
  }
  std::string text_;
  std::function<void()> act_;
};

/// A config whose checkpoints cannot be written, until the file that is in their way is removed.
Config without_checkpoints(const std::string& folder) {
  Config config = tiny_config(folder);
  config.checkpoint.every = 2;
  std::filesystem::create_directories(folder);
  test::spill(folder + "/checkpoints", "");
  return config;
}

}  // namespace

TEST(Trainer, GoesOnIfACheckpointFailsAndTriesAgainAtTheNextInterval) {
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{.x = 2, .data = 2}}) {
    const Config config = on_grid(without_checkpoints(folder / to_string(grid)), grid);
    Watch watch("step 5/", [&] { std::filesystem::remove(config.output.dir + "/checkpoints"); });
    std::ostream terminal(&watch);
    EXPECT_EQ(train_on_threads(config, {.terminal = &terminal}), TrainEnd::finished);
    EXPECT_THAT(watch.str(), AllOf(ContainsRegex("warning: writing checkpoint .*step-2 failed on "
                                                 "rank 0: cannot make the folder"),
                                   HasSubstr("training goes on (1 checkpoint of this run failed)"),
                                   HasSubstr("2 checkpoints failed; the last one is complete")));
    EXPECT_THAT(test::names_in(config.output.dir + "/checkpoints"),
                ElementsAre("latest", "step-10", "step-6", "step-8"));
    const auto lines = metrics_of(config);
    EXPECT_FALSE(lines.at(1).contains("save_failures"));
    EXPECT_EQ(lines.at(2).at("save_failures"), 1);
    EXPECT_EQ(lines.at(9).at("save_failures"), 2);
  }
}

TEST(Trainer, ALowestLossWhoseCheckpointFailsIsNotTheBest) {
  test::TemporaryPath folder;
  Config config = without_checkpoints(folder.path());
  config.optimizer.lr = 1;  // the loss rises
  config.lr_scheduler.kind = ScheduleKind::constant;
  config.checkpoint.best = true;
  config.training.eval_every = 1;
  config.training.eval_batches = 1;
  Watch watch("step 8/", [&] { std::filesystem::remove(config.output.dir + "/checkpoints"); });
  std::ostream terminal(&watch);
  EXPECT_EQ(train_on_threads(config, {.terminal = &terminal}), TrainEnd::finished);
  const auto losses = column(metrics_of(config), "val_loss");
  const auto best = std::min_element(losses.begin() + 7, losses.end());
  EXPECT_LT(*std::min_element(losses.begin(), losses.begin() + 7), *best) << "of those that failed";
  EXPECT_EQ(test::slurp(config.output.dir + "/checkpoints/best"),
            "step-" + std::to_string(best - losses.begin() + 1) + "\n");
}

TEST(Trainer, EndsWithAnErrorIfTheLastCheckpointFailsOrNoneSucceedsForTooLong) {
  test::TemporaryPath folder;
  Config config = without_checkpoints(folder / "last");
  EXPECT_THAT(failure_of(config), HasSubstr("step-10 failed on rank 0"));
  EXPECT_EQ(metrics_of(config).size(), 10u);
  config = without_checkpoints(folder / "long");
  config.checkpoint.give_up_minutes = 0;
  EXPECT_THAT(failure_of(config), HasSubstr("step-2 failed on rank 0"));
  EXPECT_EQ(metrics_of(config).size(), 2u);
}

TEST(Trainer, PrintsNothingWithoutATerminalAndNoControlCodesToAStream) {
  test::TemporaryPath folder;
  std::ostringstream terminal;
  train_on_threads(tiny_config(folder.path()), {.terminal = &terminal});
  EXPECT_THAT(terminal.str(), HasSubstr("step 10/10  100%  0.0s left  loss "));
  EXPECT_THAT(terminal.str(), HasSubstr("saved " + folder.path()));
  for (const char code : {'\x1b', '\r', '\b'})
    EXPECT_EQ(terminal.str().find(code), std::string::npos);
}

TEST(Trainer, WarnsIfTheTokenizerThatWasNamedCannotHaveMadeTheTokens) {
  test::TemporaryPath folder;
  std::vector<std::int32_t> tokens(200, 97);
  tokens[7] = 300;
  write_token_file(folder / "tokens.bin", tokens);
  Config config = tiny_config(folder / "out");
  config.model.vocab = 301;
  config.data = {.tokens = {folder / "tokens.bin"}, .validation = "0"};
  config.training.steps = 2;
  Origins origins;
  train_on_threads(config, {.origins = &origins});
  EXPECT_THAT(test::slurp(folder / "out/logs/rank-0.log"), Not(HasSubstr("no effect")));
  origins.set("data.tokenizer", "a.toml:3:1");
  config.output.overwrite = true;
  train_on_threads(config, {.origins = &origins});
  EXPECT_THAT(test::slurp(folder / "out/logs/rank-0.log"),
              HasSubstr("data.tokenizer (a.toml:3:1) has no effect: \"bytes\" cannot have made"));
}

TEST(Logits, InBf16GiveAlmostTheLossesOfF32AndWhereXOrYCutsThemTheSame) {
  Config config = tiny_config("unused");
  config.training.dtype = DType::bf16;
  const auto losses = [&](LogitsType type, const GridShape& grid) {
    Config one = on_grid(config, grid);
    one.training.logits_dtype = type;
    return first_losses(one);
  };
  const std::vector<double> exact = losses(LogitsType::f32, {}),
                            rounded = losses(LogitsType::bf16, {});
  EXPECT_EQ(losses(LogitsType::automatic, {}), exact) << "on a CPU";
  EXPECT_NE(rounded, exact);
  EXPECT_LT(largest_difference(rounded, exact), 1e-3);
  for (const GridShape& grid : {GridShape{2, 1, 1, 1}, {1, 2, 1, 1}})
    EXPECT_EQ(losses(LogitsType::bf16, grid), losses(LogitsType::f32, grid)) << to_string(grid);
  config.training.dtype = DType::f32;
  EXPECT_EQ(losses(LogitsType::bf16, {}), losses(LogitsType::automatic, {}));
}

TEST(Trainer, EveryRankHasALogFile) {
  test::TemporaryPath folder;
  train_on_threads(on_grid(tiny_config(folder.path()), {.x = 2, .data = 3}));
  EXPECT_THAT(test::names_in(folder / "logs"),
              ElementsAre("rank-0.log", "rank-1.log", "rank-2.log", "rank-3.log", "rank-4.log",
                          "rank-5.log"));
}

TEST(Trainer, AKeyOfAnotherFamilyOfModelsChangesNothing) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  const std::vector<double> without = first_losses(config);
  config.model.layer_input = 6;
  EXPECT_EQ(first_losses(config), without);
}
