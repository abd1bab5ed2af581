// Compares predictions with the speeds that others published. docs/planning-model.md has the table;
// `axonn plan --published` writes it.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/plan/planner/published/published.h"
#include "axonn/plan/planner/search.h"

#include "tests/project/source_tree.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using axonn::testing_support::read_source;
using testing::HasSubstr;

namespace {

const PublishedSteps& published() {
  static const PublishedSteps all = read_published_steps();
  return all;
}

const std::vector<PredictedStep>& predictions() {
  static const std::vector<PredictedStep> all = [] {
    std::vector<PredictedStep> predicted;
    for (const PublishedStep& step : published().steps)
      predicted.push_back(predict(published(), step));
    return predicted;
  }();
  return all;
}

const PublishedStep& published_step(std::string_view program, std::string_view model, int devices) {
  const auto found = std::ranges::find_if(published().steps, [&](const PublishedStep& step) {
    return step.program == program && step.model == model && step.devices() == devices;
  });
  AXONN_CHECK(found != published().steps.end(), "no step of ", program, " with ", model, " on ",
              devices);
  return *found;
}

std::string refusal_of(const std::string& text) {
  test::TemporaryPath folder;
  std::ofstream(folder / "steps.toml") << text;
  try {
    read_published_steps(folder / "steps.toml");
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST(PublishedSteps, ArePredictedAsWellAsTheDocumentationSays) {
  double mean = 0, worst = 0, bias = 0;
  const auto count = static_cast<double>(published().steps.size());
  for (std::size_t i = 0; i < published().steps.size(); ++i) {
    const PredictedStep& one = predictions()[i];
    const double seconds = published().steps[i].seconds();
    EXPECT_GE(seconds, one.range.first) << table_row(published().steps[i], one);
    EXPECT_LE(seconds, one.range.second) << table_row(published().steps[i], one);
    mean += std::abs(one.error) / count;
    bias += one.error / count;
    worst = std::max(worst, std::abs(one.error));
  }
  EXPECT_GE(count, 86);
  EXPECT_LE(mean, 0.083);
  EXPECT_LE(worst, 0.25);
  EXPECT_LE(std::abs(bias), 0.017);
}

TEST(PublishedSteps, LieInTheRangeOfPlansThatComputeNothingAgain) {
  // torchtitan's steps of 8B on 500 W and 2.4 TB/s, as DGX H100 and its own machine are planned.
  for (const int devices : {8, 128})
    for (const char* const machine : {"dgx-h100", "grand-teton"}) {
      PublishedStep step = published_step("torchtitan, eager", "llama-3-8b", devices);
      step.machine = machine;
      step.recompute = RecomputeMode::none;
      step.values = {};
      const PreparedRun run = published().run_of(step);
      Machine planned = published().machine_of(step);
      planned.program = {};
      const auto [least, most] = planned.range_of(estimate(run, planned).time.step_s);
      for (const double tokens : {5605.0, 5762.0, 6667.0, 7000.0}) {
        step.tokens_per_s = tokens;
        EXPECT_GE(step.seconds(), least) << machine << ' ' << devices;
        EXPECT_LE(step.seconds(), most) << machine << ' ' << devices;
      }
    }
}

TEST(PublishedSteps, TheJitterOfDgxIsFittedToThreeThatGrowWithTheDevices) {
  struct Growth {
    const char *program, *model;
    int from, to;
  };
  constexpr Growth kGrowths[] = {{"NeMo 24.12", "nemotron4-15b", 16, 1024},
                                 {"torchtitan, eager", "llama-3-8b", 8, 128},
                                 {"llm-foundry", "mpt-7b", 8, 512}};
  const auto squares = [&](double jitter_times) {
    const auto seconds = [&](const PublishedStep& step) {
      Machine machine = published().machine_of(step);
      machine.jitter_s *= jitter_times;
      return estimate(published().run_of(step), machine).time.step_s;
    };
    double sum = 0;
    for (const auto& [program, model, from, to] : kGrowths) {
      PublishedStep few = published_step(program, model, to), many = few;
      for (const PublishedStep& step : published().steps)
        if (step.program == program && step.model == model && step.devices() == from &&
            step.seq_len == many.seq_len)
          few = step;
      sum += std::pow(seconds(many) / seconds(few) - many.seconds() / few.seconds(), 2);
    }
    return sum;
  };
  EXPECT_LT(squares(1), squares(3));
  EXPECT_LT(squares(1), squares(1.0 / 3));
}

TEST(PublishedSteps, HaveTheBlocksOfLogitsOfTheirMachinesDevice) {
  const PublishedStep& step = published_step("LLMQ", "qwen2.5-0.5b", 1);
  PreparedRun run = published().run_of(step);
  EXPECT_EQ(run->parallelism.device, DeviceKind::cuda);
  const Prediction on_gpu = estimate(run, published().machine_of(step));
  run = run.with([](Config& config) { config.parallelism.device = DeviceKind::automatic; });
  const Prediction on_processor = estimate(run, published().machine_of(step));
  EXPECT_GT(on_gpu.memory_bytes, on_processor.memory_bytes + (1 << 29));
  EXPECT_LT(on_gpu.time.step_s, 0.95 * on_processor.time.step_s);
}

TEST(PublishedSteps, TakeLongerWithTheHabitsOfTheirPrograms) {
  const PublishedStep& step = published_step("torchtitan, eager", "llama-3-8b", 8);
  const PreparedRun run = published().run_of(step);
  const auto seconds = [&](const OtherProgram& habits) {
    Machine machine = published().machine_of(step);
    machine.program = habits;
    return estimate(run, machine).time;
  };
  const StepTime own = seconds({}), thrice = seconds({.name = "another", .rowwise_passes = 3});
  EXPECT_GT(thrice.step_s, 1.05 * own.step_s);
  EXPECT_LT(seconds({.gradient_bytes = 2}).exposed_s(), own.exposed_s());
}

TEST(PublishedSteps, InFp8ConvertTheOperandsOfProductsInsideBlocks) {
  const PublishedStep& step = published_step("torchtitan, compiled, FP8", "llama-3-8b", 32);
  const PreparedRun run = published().run_of(step);
  Machine machine = published().machine_of(step);
  const double in_fp8 = estimate(run, machine).time.step_s;
  machine.program.products = BlockProducts::bf16;
  EXPECT_GT(estimate(run, machine).time.step_s, 1.2 * in_fp8);
  machine.bf16 = machine.fp8;  // also logits, and nothing is converted
  EXPECT_LT(estimate(run, machine).time.step_s, 0.95 * in_fp8);
}

TEST(PublishedSteps, InFp8MayConvertWeightsOnceAStep) {
  const PublishedStep& step = published_step("Megatron-Bridge, FP8", "llama-3-8b", 8);
  const PreparedRun run = published().run_of(step);
  Machine machine = published().machine_of(step);
  const double micro_batches = 128.0 / 8 / step.micro_batch;
  EXPECT_DOUBLE_EQ(machine.program.weight_casts, 1 / micro_batches);
  const auto seconds = [&](double casts) {
    machine.program.weight_casts = casts;
    return estimate(run, machine).time.step_s;
  };
  const double never = seconds(0), each = seconds(1) - never;
  // Weights of the products in 32 blocks, read in 2 bytes and written in 1, forward and backward.
  constexpr double kWeights = 32.0 * (4096 * (4096 + 1024) * 2 + 3.0 * 4096 * 14336);
  const double bytes = 2 * 3 * kWeights * micro_batches;
  EXPECT_NEAR(each, bytes / machine.rowwise_bytes_per_s.at("other"), 0.05 * each);
  EXPECT_NEAR(seconds(0.5) - never, each / 2, 0.01 * each);
}

TEST(PublishedSteps, InAPipelineTakeTheirShareTheBubbleAndOneWayThroughTheLinks) {
  PublishedStep step = published_step("Megatron-LM, Aleph Alpha", "llama-13b-v128k", 32);
  const double whole_s = predict(published(), step).seconds, micro_batches = 2048.0 / 32;
  step.stages = 4;
  EXPECT_EQ(step.devices(), 128);
  const Machine machine = published().machine_of(step);
  const double row_bytes = 2 * 5120, hop_s = machine.node_latency_s + 2048 * row_bytes *
                                                                          machine.devices_per_node /
                                                                          machine.node_bytes_per_s;
  EXPECT_NEAR(predict(published(), step).seconds, whole_s / 4 * (1 + 3 / micro_batches) + 6 * hop_s,
              1e-9 * whole_s);
  step.stage_chunks = 5;
  EXPECT_NEAR(predict(published(), step).seconds,
              whole_s / 4 * (1 + 3 / (5 * micro_batches)) + 6 * hop_s, 1e-9 * whole_s);
  EXPECT_THAT(table_row(step, predict(published(), step)), HasSubstr("1,1,1,32 (4 stages)"));
}

TEST(PublishedSteps, InMxfp8AndNvfp4ConvertAScaleWithEachBlock) {
  PublishedStep step = published_step("Megatron-Bridge, MXFP8", "llama-3-8b", 8);
  step.machine = "gb300-nvl72";
  const PreparedRun run = published().run_of(step);
  Machine machine = published().machine_of(step);
  machine.fp4 = machine.fp8;
  const auto seconds = [&](BlockProducts type) {
    machine.program.products = type;
    return estimate(run, machine).time.step_s;
  };
  const double fp8 = seconds(BlockProducts::fp8);
  // Written bytes for each element: 1, 1 + 1/32, and 1/2 + 1/16; 2 are read.
  const double mxfp8 = seconds(BlockProducts::mxfp8) - fp8,
               nvfp4 = seconds(BlockProducts::nvfp4) - fp8;
  EXPECT_GT(mxfp8, 0);
  EXPECT_NEAR(nvfp4 / mxfp8, (0.5 + 1.0 / 16 - 1) * 32, 0.5);
}

TEST(PublishedSteps, WithWholeWeightsGatherAndSumThemOnceAStep) {
  PublishedStep step = published_step("Megatron-Bridge, FP8", "qwen3-30b-a3b", 16);
  const auto alone = [&](const char* what) {
    const PreparedRun run = published().run_of(step);
    return estimate(run, published().machine_of(step)).time.alone_by.at(what);
  };
  const double gathers = alone("z all_gather"), sums = alone("z reduce_scatter");
  step.whole_weights = false;
  EXPECT_LT(20 * gathers, alone("z all_gather"));  // of 64 micro-batches, forward and backward
  EXPECT_LT(20 * sums, alone("z reduce_scatter"));
}

TEST(PublishedSteps, SendARowOnceToANodeWhereSeveralExpertsWantIt) {
  PublishedStep step = published_step("Megatron-Bridge, FP8", "qwen3-30b-a3b", 16);
  // Two nodes, 8 choices: 4 are on the other node, and at least one of them with 1 - 1/256.
  EXPECT_NEAR(published().machine_of(step).program.node_rows, (1 - 1.0 / 256) / 4, 1e-12);
  const auto seconds = [&] {
    const PreparedRun run = published().run_of(step);
    return estimate(run, published().machine_of(step)).time.step_s;
  };
  const double once = seconds();
  step.rows_once = false;
  EXPECT_EQ(published().machine_of(step).program.node_rows, 1);
  EXPECT_GT(seconds(), 1.2 * once);
}

TEST(PublishedSteps, InATypeWhoseRateTheMachineLacksAreRefused) {
  PublishedStep step = published_step("torchtitan, compiled, FP8", "llama-3-8b", 32);
  step.machine = "dgx-a100";
  EXPECT_THAT([&] { predict(published(), step); },
              testing::ThrowsMessage<UsageError>(HasSubstr("no rate of products in fp8")));
}

TEST(PublishedSteps, HaveAPlanWhereOneFits) {
  const PublishedStep& step = published_step("llm.c", "gpt2-124m", 8);
  const auto best = best_plan(published(), step);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->grid.ranks(), 8);
  EXPECT_THAT(best_cells(step, best), HasSubstr(to_string(best->grid)));
  PublishedStep large = step;
  large.model = "llama-3.1-405b";
  EXPECT_THAT(best_cells(large, best_plan(published(), large)), HasSubstr("none fits"));
}

TEST(PublishedSteps, OfAFileAreRefusedByTheNameThatIsNotThere) {
  const std::string step =
      "[[step]]\nprogram = \"p\"\nmodel = \"m\"\nmachine = \"alps\"\ngrid = \"1,1,1,4\"\n"
      "seq_len = 64\nmicro_batch = 1\nglobal_batch = 4\ntokens_per_s = 10\n";
  EXPECT_THAT(refusal_of(step), HasSubstr("the model 'm'"));
  const std::string model =
      "[[model]]\nname = \"m\"\nfamily = \"gpt\"\nlayers = 2\nhidden = 64\nffn = 256\n"
      "heads = 4\nvocab = 100\n";
  EXPECT_THAT(refusal_of(model + step), HasSubstr("the program 'p'"));
  EXPECT_EQ(refusal_of(model + "[[program]]\nname = \"p\"\n" + step), "");
  const std::string known = "[[model]]\nname = \"m\"\nknown = \"gpt-oss-20b\"\n",
                    program = "[[program]]\nname = \"p\"\n";
  EXPECT_EQ(refusal_of(known + program + step), "");
  EXPECT_THAT(refusal_of(known + "layers = 3\n" + program + step), HasSubstr("`known` and sizes"));
  EXPECT_THAT(refusal_of("[[model]]\nname = \"m\"\nlayers = 2\n" + program + step),
              HasSubstr("has no hidden"));
  EXPECT_THAT(refusal_of(model + "[[program]]\nname = \"p\"\npasses = 2\n" + step),
              HasSubstr("passes"));
}

namespace {

/// The search for the best grid of the step's model, batch and devices, and its predictions.
std::pair<SearchResult, int> searched(const PublishedStep& step) {
  const PreparedRun run = published().run_of(step).with([](Config& config) {
    config.parallelism = {.device = config.parallelism.device};
    config.activation_checkpoint = {};
  });
  Machine machine = published().machine_of(step);
  machine.program = {};
  std::atomic<int> predictions = 0;
  SearchResult found =
      search(run, machine,
             {.devices = step.devices(), .top = 1, .note_progress = [&] { predictions += 1; }});
  return {std::move(found), predictions.load()};
}

}  // namespace

// 490 grids, of which each was once examined by two dry steps and more; now 17 are.
TEST(PublishedSteps, TheSearchForTheBestGridExaminesFew) {
  const auto [found, predictions] =
      searched(published_step("Megatron-LM, swiss-ai", "llama-3-8b", 256));
  EXPECT_EQ(found.grids, 490);
  EXPECT_GE(found.ruled_out, 440);
  EXPECT_EQ(found.cut, found.grids - found.ruled_out);
  EXPECT_LE(found.simulated, 16);
  EXPECT_LE(predictions, 200);
  ASSERT_EQ(found.plans.size(), 1);
  EXPECT_EQ(to_string(found.plans.front().grid), "1,1,1,256");
}

// 323 grids and 1,757 predictions before each size had a bound; now 180 and 1,222.
TEST(PublishedSteps, TheSearchEstimatesFewSizesOfGridsWithShortMemory) {
  const auto [found, predictions] = searched(published_step("NeMo 25.04", "grok-1", 512));
  EXPECT_LE(found.simulated, 190);
  EXPECT_LE(predictions, 1300);
  ASSERT_EQ(found.plans.size(), 1);
  EXPECT_EQ(to_string(found.plans.front().grid), "4,1,8,16");
}

TEST(PublishedSteps, TheTableInTheDocsHasThem) {
  constexpr double kAsGood = 0.02;
  const std::vector<std::string> lines = read_source("docs/planning-model.md").lines;
  for (std::size_t i = 0; i < published().steps.size(); ++i) {
    const PublishedStep& step = published().steps[i];
    const std::string row = table_row(step, predictions()[i]),
                      key = row.substr(0, row.find('|', table_key(step).size()) + 1);
    const auto line =
        std::ranges::find_if(lines, [&](const std::string& text) { return text.starts_with(key); });
    ASSERT_NE(line, lines.end()) << "docs/planning-model.md has no row " << row;
    std::string predicted = line->substr(key.size());
    std::erase(predicted, ',');
    const double seconds = step.tokens_per_s * step.seconds() / std::stod(predicted);
    EXPECT_NEAR(seconds, predictions()[i].seconds, kAsGood * predictions()[i].seconds)
        << "docs/planning-model.md has " << *line << ", but the prediction is " << row;
  }
}
