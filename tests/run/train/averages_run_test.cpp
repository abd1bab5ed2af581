// Running averages of the weights (optimizer.ema_decay): what they are, on any grid and resumed,
// and their validation.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/foundation/options/options.h"
#include "axonn/network/model/model_files.h"
#include "axonn/plan/measure/dry_run.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/records/run_state.h"
#include "axonn/run/train/training.h"

#include "tests/support/runs.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

namespace {

constexpr double kDecay = 0.75;

/// A run that validates after steps 5 and 10.
Config averaged(const std::string& folder) {
  Config config = tiny_config(folder);
  config.optimizer.lr = 1e-3;
  config.optimizer.ema_decay = kDecay;
  config.training.eval_every = 5;
  return config;
}

std::string step_folder(const Config& config, int step) {
  return config.output.dir + "/checkpoints/step-" + std::to_string(step);
}

/// Expects the averages in the checkpoint of each step to be those of the weights in the
/// checkpoints up to it, computed in plain loops.
void expect_plain_averages(Config config) {
  config.checkpoint.every = 1;
  train_on_threads(config);
  std::map<std::string, std::vector<double>> want;
  for (int step = 1; step <= config.training.steps; ++step) {
    const auto averages = weights_of(step_folder(config, step), "ema");
    for (const auto& [name, weights] : weights_of(step_folder(config, step))) {
      std::vector<double>& of = want[name];
      if (step == 1) of.assign(weights.begin(), weights.end());
      double largest = 0, worst = 0;
      for (std::size_t i = 0; i < of.size(); ++i) {
        of[i] += (1 - kDecay) * (weights[i] - of[i]);
        largest = std::max(largest, std::abs(of[i]));
        worst = std::max(worst, std::abs(averages.at(name)[i] - of[i]));
      }
      // Each step rounds the sum and, of a summand that is no larger, difference and product.
      EXPECT_LE(worst, step * 3 * largest * std::numeric_limits<float>::epsilon() / 2) << name;
      if (step == 1) {
        EXPECT_TRUE(averages.at(name) == weights) << name << ": the first step copies";
      }
    }
  }
}

/// Does the first steps of a run, and then `body`, on every rank.
void with_steps(const Config& given, int steps, const std::function<void(Training&)>& body) {
  const PreparedRun run = prepared(given);
  run_ranks(run->parallelism.grid().ranks(), [&](Communicator& world) {
    Training training(run, world, make_cpu_backend(1));
    training.model.initialise();
    for (int step = 0; step < steps; ++step) training.run(step);
    body(training);
  });
}

/// The bits of this rank's buffers of a kind, and of its compute copies if kind is "".
std::vector<std::uint32_t> bits_of(Training& training, const std::string& kind) {
  std::vector<std::uint32_t> bits;
  const auto add = [&](const void* data, std::int64_t bytes) {
    const auto* words = static_cast<const std::uint32_t*>(data);
    bits.insert(bits.end(), words, words + bytes / 4);
  };
  for (std::size_t i = 0; i < training.optimizer.groups().size(); ++i) {
    const ParameterGroup& group = *training.optimizer.groups()[i];
    for (const auto& [name, data] : training.optimizer.buffers(i))
      if (name == kind) add(data.data, data.count() * 4);
    if (kind.empty())
      add(group.shard().data, group.shard().count() * bytes_of(group.shard().dtype));
  }
  EXPECT_FALSE(bits.empty());
  return bits;
}

Config with_experts(Config config) {
  config.model.family = ModelFamily::llama;
  config.model.tied = false;
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 24;
  config.model.router = RouterKind::sigmoid;
  config.model.router_bias = true;
  config.training.balance.bias = 0.01;
  return config;
}

std::vector<double> validations(const Config& config, const std::string& key) {
  std::vector<double> values;
  for (const auto& line : metrics_of(config))
    if (line.contains(key)) values.push_back(line.at(key));
  return values;
}

}  // namespace

TEST(Averages, FollowPlainLoopsForEveryRuleOnGridsOfEveryAxis) {
  test::TemporaryPath folder;
  int runs = 0;
  std::vector<GridShape> grids{{2, 1, 2, 2}};
  if (!sanitized()) grids.insert(grids.end(), {GridShape{}, {1, 2, 1, 3}});
  for (const OptimizerKind kind :
       {OptimizerKind::adamw, OptimizerKind::ademamix, OptimizerKind::muon, OptimizerKind::sgd})
    for (const GridShape& grid : grids) {
      Config config = on_grid(averaged(folder / std::to_string(++runs)), grid);
      config.optimizer.kind = kind;
      config.training.dtype = runs % 2 == 0 ? DType::bf16 : DType::f32;
      SCOPED_TRACE(testing::Message()
                   << "rule " << static_cast<int>(kind) << ", grid " << to_string(grid));
      expect_plain_averages(config);
    }
}

TEST(Averages, OfExpertsAndTheirBiasesFollowPlainLoops) {
  test::TemporaryPath folder;
  GridShape grid{2, 1, 2, 1};
  grid.experts = 2;
  Config config = with_experts(on_grid(averaged(folder / "run"), grid));
  config.training.verify_every = 3;  // all ranks that hold a value hold the same average
  expect_plain_averages(config);
}

TEST(Averages, OfAdaptersAreOfTheAdaptersAlone) {
  test::TemporaryPath folder;
  Config base = averaged(folder / "base");
  train_on_threads(base);
  Config config = on_grid(averaged(folder / "lora"), {2, 1, 2, 1});
  config.model.path = step_folder(base, 10);
  config.model.lora.rank = 2;
  config = prepared(with_stored_model(config, {})).config();
  expect_plain_averages(config);
  for (const auto& [name, values] : weights_of(step_folder(config, 10), "ema"))
    EXPECT_THAT(name, HasSubstr("lora"));
  EXPECT_EQ(validations(config, "val_loss_ema").size(), 2u);
}

TEST(Averages, HaveTheValidationLossOfOneRankOnEveryGridAndChangeNoStep) {
  test::TemporaryPath folder;
  const Config one = averaged(folder / "one");
  train_on_threads(one);
  Config plain = averaged(folder / "plain");
  plain.optimizer.ema_decay = 0;
  train_on_threads(plain);
  EXPECT_EQ(column(metrics_of(one), "loss"), column(metrics_of(plain), "loss"));
  EXPECT_EQ(validations(one, "val_loss"), validations(plain, "val_loss"));
  EXPECT_TRUE(validations(plain, "val_loss_ema").empty());
  const auto want = validations(one, "val_loss_ema");
  EXPECT_EQ(want.size(), 2u);
  EXPECT_NE(want, validations(one, "val_loss"));
  std::vector<GridShape> grids{{1, 1, 2, 3}};
  if (!sanitized())
    grids.insert(grids.end(),
                 {{.x = 2}, {.y = 2}, {.z = 2}, {.data = 2}, {.x = 2, .y = 2, .z = 2}});
  for (const GridShape& grid : grids) {
    Config config = on_grid(averaged(folder / to_string(grid)), grid);
    train_on_threads(config);
    const auto got = validations(config, "val_loss_ema");
    EXPECT_LE(largest_difference(got, want), 2e-6) << to_string(grid);
    config = without_overlap(config);
    config.output.dir += "-without-overlap";
    train_on_threads(config);
    EXPECT_EQ(validations(config, "val_loss_ema"), got) << to_string(grid);
  }
}

TEST(Averages, LeaveAllWeightsToTheBitWhenTheyAreValidated) {
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 2}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Config config = on_grid(averaged(folder / "unused"), grid);
      config.training.dtype = dtype;
      with_steps(config, 4, [](Training& training) {
        const double before = training.validate();
        std::vector<std::vector<std::uint32_t>> bits;
        for (const char* kind : {"", "master", "ema"}) bits.push_back(bits_of(training, kind));
        EXPECT_NE(bits[1], bits[2]);
        EXPECT_NE(training.validate_averages(), before);
        std::size_t i = 0;
        for (const char* kind : {"", "master", "ema"})
          EXPECT_TRUE(bits_of(training, kind) == bits[i++]) << '"' << kind << '"';
        EXPECT_EQ(training.validate(), before);
      });
      // Nor does any later step change.
      Config often = config, once = config;
      often.output.dir = folder / ("often" + to_string(grid) + (dtype == DType::f32 ? "f" : "b"));
      once.output.dir = often.output.dir + "-once";
      often.training.eval_every = 1;
      once.training.eval_every = 10;
      train_on_threads(often);
      train_on_threads(once);
      EXPECT_EQ(column(metrics_of(often), "loss"), column(metrics_of(once), "loss"));
      EXPECT_EQ(validations(often, "val_loss_ema").back(),
                validations(once, "val_loss_ema").back());
    }
}

TEST(Averages, AreLeftAloneBySkippedSteps) {
  with_steps(averaged("unused"), 2, [](Training& training) {
    const auto before = bits_of(training, "ema");
    StepInput input = training.input(2);
    input.accept = [](double, double) { return false; };
    training.step.run(training.model.context(), input);
    EXPECT_TRUE(bits_of(training, "ema") == before);
    training.run(3);
    EXPECT_FALSE(bits_of(training, "ema") == before);
  });
}

TEST(Averages, ResumeToTheBitAndAreReadByAnyGrid) {
  test::TemporaryPath folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Config whole = on_grid(averaged(folder / (dtype == DType::f32 ? "f32" : "bf16")), {2, 1, 2, 1});
    whole.training.dtype = dtype;
    train_on_threads(whole);
    Config resumed = whole;
    resumed.output.dir += "-resumed";
    resumed.checkpoint.resume = step_folder(whole, 5);
    train_on_threads(resumed);
    for (const char* kind : {"master", "ema"})
      EXPECT_TRUE(weights_of(step_folder(resumed, 10), kind) ==
                  weights_of(step_folder(whole, 10), kind))
          << kind;
    EXPECT_EQ(validations(resumed, "val_loss_ema").back(),
              validations(whole, "val_loss_ema").back());
    for (const GridShape grid : {GridShape{}, GridShape{1, 2, 1, 3}}) {
      const std::string again = folder / ("again-" + to_string(grid));
      with_steps(on_grid(whole, grid), 0, [&](Training& training) {
        load_checkpoint(training, step_folder(whole, 5));
        save_checkpoint(training, again, 5);
      });
      EXPECT_TRUE(weights_of(again + "/step-5", "ema") == weights_of(step_folder(whole, 5), "ema"))
          << to_string(grid);
    }
  }
}

TEST(Averages, BeginWithTheNextStepIfTheyAreTurnedOnLaterAndAreLeftOutIfTurnedOff) {
  test::TemporaryPath folder;
  Config off = averaged(folder / "off");
  off.optimizer.ema_decay = 0;
  train_on_threads(off);
  Config on = averaged(folder / "on");
  on.checkpoint.resume = step_folder(off, 5);
  on.checkpoint.every = 1;
  EXPECT_EQ(dry_run(prepared(on), 0).fault, "");
  train_on_threads(on);
  EXPECT_THAT(test::slurp(on.output.dir + "/logs/rank-0.log"),
              HasSubstr("has no averages of the weights (optimizer.ema_decay): they begin"));
  EXPECT_TRUE(weights_of(step_folder(on, 6), "ema") == weights_of(step_folder(on, 6)));
  EXPECT_FALSE(weights_of(step_folder(on, 7), "ema") == weights_of(step_folder(on, 7)));

  Config again = off;
  again.output.dir = folder / "again";
  again.checkpoint.resume = step_folder(on, 7);
  train_on_threads(again);
  EXPECT_THAT(test::slurp(again.output.dir + "/logs/rank-0.log"),
              HasSubstr("are left out: optimizer.ema_decay is 0"));
  EXPECT_FALSE(CheckpointReader(step_folder(again, 10)).has_kind("ema"));
}

TEST(Averages, InPlaceOfTheWeightsHaveTheLossThatTheRunReported) {
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    const Config config = on_grid(averaged(folder / to_string(grid)), grid);
    train_on_threads(config);
    const auto loss_of = [&](StoredWeights weights) {
      double loss = 0;
      Config stored = config_of_model(step_folder(config, 10), {}, weights);
      stored.optimizer = config.optimizer;
      with_steps(on_grid(stored, grid), 0, [&](Training& training) {
        const double mine = training.validate();
        if (training.model.grid().world().rank() == 0) loss = mine;
      });
      return loss;
    };
    EXPECT_EQ(loss_of(StoredWeights::averages), validations(config, "val_loss_ema").back());
    EXPECT_EQ(loss_of(StoredWeights::trained), validations(config, "val_loss").back());
  }
}

TEST(Averages, TakeTheMemoryTheDiskAndTheTimeThatADryRunCounts) {
  test::TemporaryPath folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Config given = on_grid(averaged(folder / (dtype == DType::f32 ? "f32" : "bf16")), {2, 1, 1, 2});
    given.training.dtype = dtype;
    const Config config = resolved(given);
    train_on_threads(config);
    const DryRun run = dry_run(prepared(config), 0);
    EXPECT_EQ(run.memory.peak_bytes,
              metrics_of(config).back().at("memory_bytes").get<std::int64_t>());
    EXPECT_EQ(run.checkpoint_bytes, 4 * 4 * run.trained);
    Config plain = config;
    plain.optimizer.ema_decay = 0;
    std::int64_t piece = 0, bytes = 0;
    with_steps(config, 0, [&](Training& training) {
      if (training.model.grid().world().rank() > 0) return;
      for (const ParameterGroup* group : training.optimizer.groups()) piece += group->piece_size();
    });
    EXPECT_EQ(run.memory.peak_bytes - dry_run(prepared(plain), 0).memory.peak_bytes, 4 * piece);
    for (const Recording::Event& event :
         dry_step(prepared(config), 0, {.recording = true}).recording.events)
      if (const auto* op = std::get_if<Recording::Compute>(&event))
        if (op->operation == "moving_average") bytes += op->bytes();
    EXPECT_EQ(bytes, 12 * piece);
  }
}
