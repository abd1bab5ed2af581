#include "axonn/run/train/step_graphs.h"

#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/train/state_blocks.h"
#include "axonn/run/train/training.h"

#include "tests/support/capturing_device.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// Called after each step, counted from 0, on every rank.
using Between = std::function<void(Training& training, std::int64_t step)>;

/// Results of a run, by rank.
struct Outcome {
  std::vector<std::vector<double>> losses, norms;
  std::vector<std::vector<std::vector<float>>> state;  // master weights and moments of each block
  int captures = 0, launches = 0;                      // of rank 0
  bool operator==(const Outcome& other) const {
    return losses == other.losses && norms == other.norms && state == other.state;
  }
};

constexpr std::int64_t kSteps = 6;

/// Fills the free memory of the arena with NaN, so that reading what an earlier piece left there
/// fails.
void spoil_free_memory(Training& training) {
  const Context ctx = training.model.context();
  const Tensor all = ctx.empty(1, std::int64_t{8} << 20, DType::f32);
  std::memset(all.view().data, 0xff, static_cast<std::size_t>(all.bytes()));
}

void run_steps(Training& training, int rank, const Between& between, Outcome& outcome) {
  training.model.initialise();
  for (std::int64_t step = 0; step < kSteps; ++step) {
    StepInput input = training.input(step);
    input.lr = 0.01 / static_cast<double>(step + 1);
    input.tokens_of = [&training, of = input.tokens_of](int micro) {
      spoil_free_memory(training);
      return of(micro);
    };
    const StepResult result = training.step.run(training.model.context(), input);
    outcome.losses[rank].push_back(result.loss);
    outcome.norms[rank].push_back(result.grad_norm);
    if (between) between(training, step);
  }
  for (const StateBlock& block : state_blocks(training.model, training.optimizer))
    for (const StateBuffer& buffer : block.buffers) {
      const auto* const values = static_cast<const float*>(buffer.data);
      outcome.state[rank].emplace_back(values, values + block.count);
    }
}

Outcome room_for(const Config& config) {
  const int ranks = config.parallelism.grid().ranks();
  Outcome outcome;
  outcome.losses.resize(ranks);
  outcome.norms.resize(ranks);
  outcome.state.resize(ranks);
  return outcome;
}

/// Runs without graphs, on the CPU.
Outcome run_eagerly(const Config& given, const Between& between = {}) {
  const PreparedRun run = prepared(given);
  Outcome outcome = room_for(run.config());
  run_ranks(run->parallelism.grid().ranks(), [&](Communicator& world) {
    Training training(run, world, make_cpu_backend(1));
    run_steps(training, world.rank(), between, outcome);
  });
  return outcome;
}

/// Runs with graphs, on a device that can capture.
Outcome run_captured(Config given, const Between& between = {}, const std::string& left_out = {}) {
  given.training.cuda_graph = true;
  const PreparedRun run = prepared(given);
  Outcome outcome = room_for(run.config());
  run_ranks(run->parallelism.grid().ranks(), [&](Communicator& host) {
    const auto device = std::make_shared<CapturingDevice>();
    CapturingCommunicator world(host, *device);
    Training training(run, world, std::make_unique<CapturingBackend>(device, left_out));
    run_steps(training, world.rank(), between, outcome);
    if (host.rank() != 0) return;
    outcome.captures = training.step.graphs()->captures();
    outcome.launches = device->launches();
  });
  return outcome;
}

void expect_the_same(const Config& config, const Between& between = {}) {
  const Outcome eager = run_eagerly(config, between), captured = run_captured(config, between);
  EXPECT_EQ(captured.losses, eager.losses);
  EXPECT_EQ(captured.norms, eager.norms);
  EXPECT_TRUE(captured.state == eager.state) << "weights or moments differ";
  EXPECT_GT(captured.launches, 0);
}

Config with_micro_batches(const Config& config, int count) {
  Config cut = config;
  const GridShape grid = config.parallelism.grid();
  cut.training.micro_batch = config.training.global_batch / (grid.z * grid.data) / count;
  return cut;
}

}  // namespace

TEST(StepGraphs, ChangeNoBitIfRanksShareSequences) {
  Config config = on_grid(tiny_config("unused"), {2, 1, 2, 1, 2});
  config.training.seq_len = 256;
  config.training.global_batch = 4;
  config.training.micro_batch = 2;
  expect_the_same(config);
}

TEST(StepGraphs, ChangeNoBitOfLossesNormsWeightsAndMoments) {
  for (const int micro_batches : {1, 2, 4})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::full}) {
        SCOPED_TRACE(concat(micro_batches, " micro-batches, ", name_of(dtype), ", recompute ",
                            mode == RecomputeMode::full));
        Config config = with_micro_batches(tiny_config("unused"), micro_batches);
        config.training.dtype = dtype;
        config.activation_checkpoint.mode = mode;
        expect_the_same(config);
      }
}

TEST(StepGraphs, ChangeNoBitOfALlamaWithAdaptersOrWithout) {
  Config config = with_micro_batches(tiny_config("unused"), 2);
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 4;
  expect_the_same(config);
  config.model.lora.rank = 2;
  expect_the_same(config);
}

TEST(StepGraphs, ChangeNoBitOnAnyGrid) {
  for (const GridShape grid :
       {GridShape{2, 1, 1, 1}, GridShape{1, 2, 1, 1}, GridShape{1, 1, 2, 1}, GridShape{1, 1, 1, 2},
        GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}, GridShape{1, 1, 2, 2}})
    for (const int micro_batches : {1, 3}) {
      SCOPED_TRACE(concat(to_string(grid), ", ", micro_batches, " micro-batches"));
      expect_the_same(with_micro_batches(on_grid(tiny_config("unused"), grid), micro_batches));
    }
}

TEST(StepGraphs, ChangeNoBitOfBatchesWithPadding) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 1, 2, 2}}) {
    Config config = on_grid(tiny_config("unused"), grid);
    config.training.global_batch = 7;
    config.training.micro_batch = 2;
    expect_the_same(config);
  }
}

TEST(StepGraphs, ChangeNoBitWithoutOverlapWithChunksAndWithGradientsThatTravelInBf16) {
  Config config = with_micro_batches(on_grid(tiny_config("unused"), {2, 1, 2, 1}), 3);
  config.parallelism.reduce_dtype = DType::bf16;
  config.parallelism.chunks = 2;
  expect_the_same(config);
  config.parallelism.keep_weights = KeepWeights::micro_batch;
  expect_the_same(config);
  config.parallelism.overlap.input_gradients = false;
  config.parallelism.overlap.weight_gradients = false;
  config.parallelism.overlap.weights = false;
  config.parallelism.overlap.data = false;
  expect_the_same(config);
}

TEST(StepGraphs, AreCapturedInTheSecondStepAndLaunchedFromThenOn) {
  const Config config = tiny_config("unused");
  for (const auto& [micro_batches, pieces] : {std::pair{1, 1}, {2, 2}, {4, 3}}) {
    const Outcome captured = run_captured(with_micro_batches(config, micro_batches));
    EXPECT_EQ(captured.captures, pieces);
    EXPECT_EQ(captured.launches, (kSteps - 1) * micro_batches);
  }
}

TEST(StepGraphs, TolerateEvaluationAndCheckpointsBetweenSteps) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    const Config config = with_micro_batches(on_grid(tiny_config("unused"), grid), 2);
    const auto between = [](std::vector<double>& losses) {
      return [&losses](Training& training, std::int64_t step) {
        if (step % 2 == 0) return;
        const double loss = training.validate();
        test::TemporaryPath folder;
        Communicator& world = training.model.grid().world();
        if (world.rank() == 0) losses.push_back(loss);
        CheckpointSaver saver({.folder = folder.path(), .keep = 0, .async = true});
        saver.begin(world, step, state_blocks(training.model, training.optimizer),
                    {{"state.json", "{}"}});
        saver.finish(world);
      };
    };
    std::vector<double> eager, captured;
    EXPECT_TRUE(run_eagerly(config, between(eager)) == run_captured(config, between(captured)));
    EXPECT_EQ(eager, captured);
  }
}

TEST(StepGraphs, AreCapturedAgainIfMemoryThatTheyWriteIsHeld) {
  const Config config = with_micro_batches(tiny_config("unused"), 2);
  Tensor kept;
  const auto keep = [&kept](Training& training, std::int64_t step) {
    if (step == 2) {
      kept = training.model.context().empty(1, 4096, DType::f32);
      std::ranges::fill_n(kept.view().as<float>(), kept.count(), 42.0f);
    }
    if (step == 4) {
      const float* values = kept.view().as<float>();
      EXPECT_EQ(std::count(values, values + kept.count(), 42.0f), kept.count());
    }
    if (step + 1 == kSteps) kept = Tensor();
  };
  const Outcome eager = run_eagerly(config, keep), captured = run_captured(config, keep);
  EXPECT_TRUE(captured == eager);
  EXPECT_EQ(captured.captures, 4);  // first and last micro-batch, each captured twice
}

TEST(StepGraphs, OfSeveralRanksAreNeverCapturedAgainByOnlyOne) {
  const auto keeps_memory = [] {
    run_captured(on_grid(tiny_config("unused"), {.z = 2}),
                 [](Training& training, std::int64_t step) {
                   if (training.model.grid().world().rank() == 1 && step == 2)
                     training.model.arena().allocate(4096);
                 });
  };
  EXPECT_THAT(keeps_memory,
              ThrowsMessage<Error>(AllOf(HasSubstr("rank 1"), HasSubstr("is still held"))));
}

TEST(StepGraphs, AreNotUsedForAStepWithAnotherNumberOfTargets) {
  const Config config = with_micro_batches(tiny_config("unused"), 2);
  const auto losses = [&](const Config& given, bool captured) {
    const auto device = std::make_shared<CapturingDevice>();
    std::vector<double> all;
    const Config run = resolved(given);
    run_ranks(1, [&](Communicator& host) {
      CapturingCommunicator world(host, *device);
      Training training(prepared(run), world, std::make_unique<CapturingBackend>(device));
      training.model.initialise();
      for (std::int64_t step = 0; step < kSteps; ++step) {
        StepInput input = training.input(step);
        input.lr = 0.01;
        if (step == 3) input.tokens -= 5;
        const int before = device->launches();
        all.push_back(training.step.run(training.model.context(), input).loss);
        EXPECT_EQ(device->launches() - before, captured && step > 0 && step != 3 ? 2 : 0);
      }
    });
    return all;
  };
  Config captured = config;
  captured.training.cuda_graph = true;
  EXPECT_EQ(losses(captured, true), losses(config, false));
}

TEST(StepGraphs, ThatLackAnOperationChangeTheOutcome) {
  const Config config = with_micro_batches(tiny_config("unused"), 2);
  const Outcome eager = run_eagerly(config);
  for (const char* operation : {"column_sum", "gelu_backward", "embedding", "squared_sum"})
    EXPECT_FALSE(run_captured(config, {}, operation) == eager) << operation;
}

TEST(StepGraphs, AreRejectedIfTheStepCannotBeCaptured) {
  Config config = tiny_config("unused");
  config.training.cuda_graph = true;
  const auto on_processor = [&] {
    run_ranks(1,
              [&](Communicator& world) { Training(prepared(config), world, make_cpu_backend(1)); });
  };
  EXPECT_THAT(on_processor,
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("cuda_graph"), HasSubstr("device cpu does not support graphs"))));
  const auto through_the_host = [&] {
    run_ranks(2, [&](Communicator& host) {
      const auto device = std::make_shared<CapturingDevice>();
      const auto world = make_staged(host, *device);
      Training(prepared(on_grid(config, {.z = 2})), *world,
               std::make_unique<CapturingBackend>(device));
    });
  };
  EXPECT_THAT(through_the_host, ThrowsMessage<UsageError>(HasSubstr("through host memory")));
}

TEST(StepGraphs, AreRejectedWithOptionsThatMakeStepsDiffer) {
  const auto refused_with = [](const char* key, const std::function<void(Config&)>& set) {
    Config config = tiny_config("unused");
    config.training.cuda_graph = true;
    EXPECT_NO_THROW(validate(config));
    set(config);
    EXPECT_THAT([&] { validate(config); },
                ThrowsMessage<UsageError>(AllOf(HasSubstr("cuda_graph"), HasSubstr(key))));
  };
  refused_with("[output] trace", [](Config& config) { config.output.trace = "trace.json"; });
  refused_with("[parallelism] keep_weights",
               [](Config& config) { config.parallelism.keep_weights = KeepWeights::step; });
  refused_with("[training] goldfish.k", [](Config& config) { config.training.goldfish.k = 4; });
  refused_with("[data] jsonl", [](Config& config) {
    config.data.synthetic = 0;
    config.data.jsonl = {"conversations.jsonl"};
  });
  refused_with("[lora] dropout", [](Config& config) {
    config.model.lora.rank = 2;
    config.model.lora.dropout = 0.1;
  });
}

TEST(TrainStep, TheHostWaitsForTheDeviceOncePerStepWithAndWithoutGraphs) {
  for (const bool captured : {false, true})
    for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}}) {
      Config given = with_micro_batches(on_grid(tiny_config("unused"), grid), 3);
      given.training.cuda_graph = captured;
      const Config config = resolved(given);
      run_ranks(grid.ranks(), [&](Communicator& host) {
        const auto device = std::make_shared<CapturingDevice>();
        CapturingCommunicator world(host, *device);
        Training training(prepared(config), world, std::make_unique<CapturingBackend>(device));
        training.model.initialise();
        for (std::int64_t step = 0; step < 4; ++step) {
          const StepInput input = training.input(step);
          const int before = device->waits();
          training.step.run(training.model.context(), input);
          EXPECT_EQ(device->waits() - before, 1) << "step " << step;
        }
      });
    }
}
