#include "axonn/plan/measure/dry_step.h"

#include <limits>
#include <map>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/config/resolve.h"

#include "tests/support/dry_peak.h"
#include "tests/support/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

namespace {

std::int64_t at(const MemoryParts& parts, MemoryUse use) { return parts[static_cast<int>(use)]; }

Config tiny() { return tiny_config("unused"); }

/// 640B parameters: the largest model of the AxoNN paper, on 32,768 ranks.
Config gpt_640b() {
  Config config = tiny();
  config.model = {.layers = 135, .hidden = 20480, .heads = 160, .vocab = 51200};
  config.training.seq_len = 2048;
  config.training.global_batch = 8192;
  config.training.micro_batch = 1;
  config.training.dtype = DType::bf16;
  config.activation_checkpoint.mode = RecomputeMode::full;
  return resolved(on_grid(config, {8, 4, 32, 32}));
}

Recording recording_of(const Config& config, int rank = 0) {
  return dry_step(prepared(config), rank, {.recording = true}).recording;
}

template <typename T>
std::vector<T> only(const Recording& recording) {
  std::vector<T> found;
  for (const Recording::Event& event : recording.events)
    if (const T* one = std::get_if<T>(&event)) found.push_back(*one);
  return found;
}

/// A line for each event, with all that it says.
std::vector<std::string> lines_of(const Recording& recording) {
  std::vector<std::string> lines;
  for (const Recording::Event& event : recording.events) {
    if (const auto* wait = std::get_if<Recording::Wait>(&event)) {
      lines.push_back(concat("wait ", wait->started));
    } else if (const auto* start = std::get_if<Recording::Start>(&event)) {
      lines.push_back(concat(start->group, ' ', start->ranks, ' ', start->operation, ' ',
                             start->label, ' ', start->bytes));
    } else {
      const auto& op = std::get<Recording::Compute>(event);
      lines.push_back(concat(op.operation, ' ', op.layer, ' ', op.bytes(), ' ', op.flops));
    }
  }
  return lines;
}

void expect_equal(const DryStep& got, const DryStep& want) {
  EXPECT_EQ(got.memory.peak_bytes, want.memory.peak_bytes);
  EXPECT_EQ(got.memory.peak_by, want.memory.peak_by);
  EXPECT_EQ(got.memory.live_bytes, want.memory.live_bytes);
  EXPECT_EQ(got.kept_bytes, want.kept_bytes);
  EXPECT_EQ(lines_of(got.recording), lines_of(want.recording));
}

}  // namespace

TEST(DrySteps, AreTheSameAfterStepsOfOtherConfigs) {
  for (const GridShape grid : {GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2}, GridShape{2, 1, 3, 1}})
    for (const bool experts : {false, true}) {
      Config config = tiny();
      config.model.family = ModelFamily::llama;
      if (experts) config.model.experts = 6;
      if (experts) config.model.experts_per_token = 2;
      config.training.dtype = DType::bf16;
      config.training.global_batch = 24;
      config = resolved(on_grid(config, grid));
      DrySteps steps;
      for (const std::int64_t layers : {3, 2})
        for (const std::int64_t micro_batch : {1, 2})
          for (const RecomputedBlocks& blocks :
               {RecomputedBlocks{},
                {.of_others = Recompute::all()},
                {.first = 1, .of_first = Recompute::all(), .of_others = {Remade::norms}}})
            for (const int micro_batches : {3, 1}) {
              SCOPED_TRACE(concat(to_string(grid), ", experts ", config.model.experts, ", layers ",
                                  layers, ", micro-batches ", micro_batches, " of ", micro_batch));
              config.model.layers = layers;
              config.training.micro_batch = micro_batch;
              set_recomputed(config.activation_checkpoint, blocks);
              const DryStepOptions options{.recording = true, .most_micro_batches = micro_batches};
              expect_equal(steps.step(prepared(config), options),
                           dry_step(prepared(config), 0, options));
            }
    }
}

TEST(DryStep, PeakEqualsARealRunsOnEveryGridWithEveryTypeAndWithRecomputation) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 1, 1}, GridShape{1, 2, 1, 1},
                               GridShape{1, 1, 2, 1}, GridShape{1, 1, 1, 2}, GridShape{2, 2, 1, 1},
                               GridShape{1, 1, 3, 2}, GridShape{3, 2, 2, 1}, GridShape{2, 1, 2, 2}})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::full}) {
        Config config = on_grid(tiny(), grid);
        config.training.dtype = dtype;
        config.activation_checkpoint.mode = mode;
        expect_dry_peak(prepared(config));
      }
}

TEST(DryStep, PeakEqualsARealRunsInChunksWithMicroBatchesAndWithoutOverlap) {
  for (const GridShape grid : {GridShape{1, 1, 2, 1}, GridShape{2, 1, 1, 2}, GridShape{1, 2, 2, 1}})
    for (const int chunks : {1, 2})
      for (const std::int64_t micro : {6, 2})
        for (const bool overlap : {true, false}) {
          Config config = on_grid(tiny(), grid);
          config.training.micro_batch = micro;
          config.training.global_batch = 24;
          config.parallelism.chunks = chunks;
          config.parallelism.sequence_parallel = micro == 6;
          config.parallelism.overlap.weights = config.parallelism.overlap.weight_gradients =
              config.parallelism.overlap.input_gradients = config.parallelism.overlap.data =
                  overlap;
          config.parallelism.reduce_dtype = overlap ? DType::f32 : DType::bf16;
          expect_dry_peak(prepared(config));
        }
}

TEST(DryStep, PeakEqualsARealRunsForLongTextWhereActivationsAndLogitsPrevail) {
  Config config = on_grid(tiny(), {2, 1, 1, 1});
  config.model.vocab = 5000;
  config.model.tied = false;
  config.model.kv_heads = 1;
  config.training.seq_len = 100;  // 600 rows: three pieces of the loss, the last one shorter
  config.training.global_batch = 6;
  config.optimizer.kind = OptimizerKind::sgd;
  expect_dry_peak(prepared(config));
  const MemoryParts parts = dry_step(prepared(config), 0).memory.peak_by;
  EXPECT_GT(at(parts, MemoryUse::logits), 0);
  EXPECT_GT(at(parts, MemoryUse::activations), at(parts, MemoryUse::parameters));
}

TEST(DryStep, PeakEqualsARealRunsForAdEMAMixAndMuon) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 2, 1, 1}, GridShape{3, 1, 2, 1}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const OptimizerKind kind : {OptimizerKind::ademamix, OptimizerKind::muon})
        for (const bool overlap : {true, false}) {
          Config config = on_grid(tiny(), grid);
          config.model.kv_heads = 2;
          config.model.hidden = 240;  // updates, not logits, are the peak
          config.training.dtype = dtype;
          config.optimizer.kind = kind;
          config.parallelism.overlap.data = overlap;
          expect_dry_peak(prepared(config));
        }
}

TEST(DryStep, PeakEqualsARealRunsForStateInFewBits) {
  for (const GridShape grid : {GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2}})
    for (const MomentType moments : {MomentType::bf16, MomentType::eight_bits})
      for (const OptimizerKind kind :
           {OptimizerKind::adamw, OptimizerKind::muon, OptimizerKind::sgd}) {
        Config config = on_grid(tiny(), grid);
        config.model.hidden = 240;
        config.training.dtype = DType::bf16;
        config.optimizer.kind = kind;
        config.optimizer.moments = moments;
        config.optimizer.sgd_momentum = 0.9;
        expect_dry_peak(prepared(config));
        const std::int64_t peak = dry_step(prepared(config), 0).memory.peak_bytes;
        config.optimizer.moments = MomentType::f32;
        EXPECT_LT(peak, dry_step(prepared(config), 0).memory.peak_bytes);
      }
}

TEST(DryStep, PeakEqualsARealRunsForSgdWithMomentumLionScheduleFreeAdamWAndAdafactor) {
  for (const GridShape grid : {GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const OptimizerKind kind :
           {OptimizerKind::sgd, OptimizerKind::lion, OptimizerKind::schedule_free_adamw,
            OptimizerKind::adafactor}) {
        Config config = on_grid(tiny(), grid);
        config.model.hidden = 240;
        config.training.dtype = dtype;
        config.optimizer.kind = kind;
        config.optimizer.sgd_momentum = 0.9;
        config.lr_scheduler.kind = ScheduleKind::constant;
        expect_dry_peak(prepared(config));
      }
}

TEST(DryStep, PeakEqualsARealRunsWithClippingByAnyNormAndByValue) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const GridShape grid : {GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2}})
    for (const double p : {1.0, kInf, 0.0}) {  // 0: by value
      Config config = on_grid(tiny(), grid);
      config.optimizer.kind = OptimizerKind::sgd;
      if (p > 0) config.training.norm_type = p;
      if (p == 0) {
        config.training.max_norm = 0;
        config.training.clip_value = 0.1;
      }
      expect_dry_peak(prepared(config));
    }
}

TEST(DryStep, MuonsMatricesTravelToTheirOwnersAndBack) {
  Config config = on_grid(tiny(), {2, 1, 2, 1});
  config.optimizer.kind = OptimizerKind::muon;
  const std::int64_t c = config.model.hidden, layers = config.model.layers;
  std::int64_t bytes = 0, products = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Recording recording = dry_step(prepared(config), rank, {.recording = true}).recording;
    for (const auto& start : only<Recording::Start>(recording))
      if (start.label == "muon momentum") bytes += start.bytes;
    for (const auto& op : only<Recording::Compute>(recording))
      products += op.layer == "muon" && op.operation == "matmul";
  }
  // q, k, v and o; up and down: six matrices, each of five steps of three products.
  EXPECT_EQ(products, layers * 6 * 15);
  // Each element is sent once; a rank counts the larger of what it sends and what arrives.
  EXPECT_GE(bytes, layers * 12 * c * c * 4);
  EXPECT_LT(bytes, 2 * layers * 12 * c * c * 4);
}

TEST(DryStep, PeakEqualsARealRunsForALlama) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 2, 1, 1}, GridShape{4, 1, 2, 1}})
    for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::full}) {
      Config config = on_grid(tiny(), grid);
      config.model.family = ModelFamily::llama;
      config.model.kv_heads = 2;
      config.model.tied = false;
      config.training.dtype = DType::bf16;
      config.activation_checkpoint.mode = mode;
      expect_dry_peak(prepared(config));
      for (const auto& op : only<Recording::Compute>(recording_of(config)))
        EXPECT_THAT(op.operands, Not(SizeIs(0))) << op.operation;
    }
}

TEST(DryStep, PeakEqualsARealRunsOverQuantizedWeights) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2}})
    for (const Quantization kind : {Quantization::nf4, Quantization::int8}) {
      Config config = on_grid(tiny(), grid);
      config.model.family = ModelFamily::llama;
      config.model.tied = false;
      config.model.quantize = kind;
      config.model.lora.rank = 2;
      config.training.dtype = DType::bf16;
      expect_dry_peak(prepared(config));
    }
}

TEST(DryStep, PeakEqualsARealRunsOverWeightsOfSeveralKinds) {
  Config config = on_grid(tiny(), {1, 1, 2, 2});
  config.model.family = ModelFamily::llama;
  config.model.tied = false;
  config.model.hidden = 256;
  config.model.heads = 4;
  config.model.quantize = Quantization::file;
  config.model.file_kinds = KeptKinds({
      {"model.embed_tokens.weight", Quantization::q4_0},
      {"model.layers.0.self_attn.q_proj.weight", Quantization::q4_k},
      {"model.layers.0.self_attn.v_proj.weight", Quantization::q6_k},
      {"model.layers.1.self_attn.o_proj.weight", Quantization::q8_0},
  });
  config.model.lora.rank = 2;
  config.training.dtype = DType::bf16;
  expect_dry_peak(prepared(config));
}

TEST(DryStep, PeakEqualsARealRunsInStagesThatAreAllShorterThanTheConfigsSequences) {
  Config config = on_grid(tiny(), {2, 1, 2, 1});
  config.model.family = ModelFamily::llama;  // has a table of rotary positions
  config.training.seq_len = 256;
  std::swap(config.data.synthetic, config.stage.emplace_back().synthetic);
  config.stage.front().name = "short";
  for (const std::int64_t part : {1, 2, 4}) {
    config.stage.front().seq_len = config.training.seq_len / part;
    expect_dry_peak(prepared(config));
  }
}

TEST(DryStep, InTwoChunksEverySumOfABlockHasAProductBetweenItsStartAndItsWait) {
  Config config = on_grid(tiny(), {2, 1, 1, 1});
  config.parallelism.sequence_parallel = false;
  config.parallelism.chunks = 2;
  const Recording recording = recording_of(config);
  std::map<std::size_t, int> products;  // by index of the sum's start: products since then
  int sums = 0;
  for (std::size_t i = 0; i < recording.events.size(); ++i) {
    if (const auto* op = std::get_if<Recording::Compute>(&recording.events[i])) {
      if (op->operation == "matmul")
        for (auto& [start, count] : products) ++count;
    } else if (const auto* start = std::get_if<Recording::Start>(&recording.events[i])) {
      if (start->operation == "all_reduce" && start->label.starts_with("h.")) products[i] = 0;
    } else if (const auto wait =
                   products.find(std::get<Recording::Wait>(recording.events[i]).started);
               wait != products.end()) {
      EXPECT_GT(wait->second, 0) << "sum " << sums << ", event " << i;
      ++sums;
      products.erase(wait);
    }
  }
  // For each block and chunk: two sums in forward, two in backward.
  EXPECT_GE(sums, 2 * 4 * config.model.layers);
}

TEST(DryStep, HoldsStateInTheTypesThatTheRunUses) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Config config = tiny();
    config.training.dtype = dtype;
    const MemoryParts live = dry_step(prepared(config), 0).memory.live_by;
    const std::int64_t count = at(live, MemoryUse::parameters) / bytes_of(dtype);
    EXPECT_EQ(at(live, MemoryUse::gradients), 4 * count);
    EXPECT_EQ(at(live, MemoryUse::optimizer), (dtype == DType::f32 ? 8 : 12) * count);
    EXPECT_EQ(at(live, MemoryUse::activations), 0);
  }
}

TEST(DryStep, Of640BParametersOn32768RanksHoldsOneRanksShare) {
  const Config config = gpt_640b();
  const ArenaStats memory = dry_step(prepared(config), 31111).memory;
  // 640e9 parameters cut over x, y and z take 2 + 4 bytes each; 12 more bytes are also cut over
  // data.
  const double each = 6.4e11 / (8 * 4 * 32);
  EXPECT_NEAR(static_cast<double>(memory.live_bytes), each * (6 + 12.0 / 32), 0.1 * each * 6);
  EXPECT_GT(at(memory.peak_by, MemoryUse::gathered), 2 * 12 * 20480LL * 20480 / 32 * 2 * 9 / 10)
      << "two blocks, in bf16";
}

TEST(DryStep, SchedulesEveryProductWithItsFlops) {
  const Config config = tiny();
  const Recording recording = recording_of(config);
  double flops = 0;
  for (const auto& op : only<Recording::Compute>(recording)) {
    EXPECT_THAT(op.operands, Not(SizeIs(0))) << op.operation << ": pass its operands to around()";
    if (op.operation == "matmul") flops += op.flops;
  }
  // Forward, input gradient and weight gradient of every matrix: 6 N per token. No product is saved
  // at the first layer, whose input gradient the embedding needs.
  const double C = 24, F = 96, V = 256, L = 2, tokens = 12 * 8;
  EXPECT_EQ(flops, 6 * tokens * (L * (4 * C * C + 2 * C * F) + V * C));
}

TEST(DryStep, SchedulesCollectivesByAxisAndWaitsForEachOnceAfterItsStart) {
  const Recording recording = recording_of(on_grid(tiny(), {2, 1, 2, 1}), 3);
  std::vector<int> waits(recording.events.size(), 0);
  std::map<std::string, std::int64_t> bytes;
  for (std::size_t i = 0; i < recording.events.size(); ++i) {
    if (const auto* start = std::get_if<Recording::Start>(&recording.events[i])) {
      EXPECT_EQ(start->ranks, start->group == "world" ? 4 : 2);
      bytes[start->group + ' ' + start->operation] += start->bytes;
    }
    if (const auto* wait = std::get_if<Recording::Wait>(&recording.events[i])) {
      ASSERT_LT(wait->started, i);
      ASSERT_TRUE(std::holds_alternative<Recording::Start>(recording.events[wait->started]));
      ++waits[wait->started];
    }
  }
  for (std::size_t i = 0; i < recording.events.size(); ++i)
    EXPECT_EQ(waits[i], std::holds_alternative<Recording::Start>(recording.events[i])) << i;
  EXPECT_GT(bytes["x all_reduce"], 0);
  EXPECT_GT(bytes["z all_gather"], 0);
  EXPECT_GT(bytes["z reduce_scatter"], 0);
  EXPECT_EQ(bytes.contains("y all_reduce") || bytes.contains("data all_gather"), false);
}

TEST(DryStep, OverlapShowsInTheSchedule) {
  // Products between a collective's start and its wait hide it.
  const auto hidden_flops = [](bool overlap) {
    Config config = on_grid(tiny(), {1, 1, 2, 1});
    config.parallelism.overlap.weights = config.parallelism.overlap.weight_gradients = overlap;
    const Recording recording = recording_of(config);
    double flops = 0;
    int under_way = 0;
    for (const Recording::Event& event : recording.events) {
      if (const auto* start = std::get_if<Recording::Start>(&event))
        under_way += start->group == "z";
      if (const auto* wait = std::get_if<Recording::Wait>(&event))
        under_way -= std::get<Recording::Start>(recording.events[wait->started]).group == "z";
      if (const auto* op = std::get_if<Recording::Compute>(&event); op && under_way > 0)
        flops += op->flops;
    }
    return flops;
  };
  EXPECT_EQ(hidden_flops(false), 0);
  EXPECT_GT(hidden_flops(true), 0);
}

TEST(MadeUpInput, OfPackedDataHasPositionsAndStarts) {
  for (const bool packed : {false, true}) {
    Config config = tiny();
    if (packed) config.data = {.jsonl = {"documents.jsonl"}, .tokenizer = "bytes"};
    const auto world = make_self();
    Training training(prepared(config), *world, make_cpu_backend(1), {.data = false});
    const Config& made = training.model.config();
    const Tokens tokens = made_up_input(training.model).tokens_of(0);
    const std::int64_t count = made.training.micro_batch * made.training.seq_len;
    EXPECT_EQ(tokens.ids.count(), count);
    EXPECT_EQ(tokens.rows.position.count(), packed ? count : 0);
    EXPECT_EQ(tokens.rows.start.count(), packed ? count : 0);
  }
}

TEST(DryStep, IsTheSameWithCudaGraphs) {
  Config config = tiny();
  config.training.cuda_graph = true;
  EXPECT_EQ(dry_step(prepared(config), 0).memory.peak_bytes,
            dry_step(prepared(tiny()), 0).memory.peak_bytes);
}

TEST(DryStep, RejectsSizesThatTheGridCannotCut) {
  try {
    dry_step(prepared(on_grid(tiny(), {.y = 5})), 0);
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("y must be one of 1, 2, 3, 4, 6, 8, 12, 24"));
  }
}

namespace {

/// Bytes of a step that go from the file of [offload], and to it.
std::pair<std::int64_t, std::int64_t> transfers_of(const Config& config) {
  std::pair<std::int64_t, std::int64_t> bytes;
  for (const auto& start : only<Recording::Start>(recording_of(config)))
    if (start.group == Recording::kDisk)
      (start.label == "read" ? bytes.first : bytes.second) += start.bytes;
  return bytes;
}

}  // namespace

TEST(DryStep, RecordsWhatGoesToADiskAndBack) {
  Config config = tiny();
  config.training.global_batch = 4;
  config.training.micro_batch = 2;
  EXPECT_EQ(transfers_of(config), std::pair(std::int64_t{0}, std::int64_t{0}));
  const std::int64_t weights =
      at(dry_step(prepared(config), 0).memory.peak_by, MemoryUse::parameters);
  const auto of = [&](bool parameters, bool gradients, bool optimizer) {
    config.offload = {"unused", parameters, gradients, optimizer};
    return transfers_of(config);
  };
  // The update reads and writes two moments; in f32 the master weights are the parameters.
  EXPECT_EQ(of(false, false, true), std::pair(2 * weights, 2 * weights));
  // Each of two micro-batches adds to gradients; the norm and the update read them.
  EXPECT_EQ(of(false, true, false), std::pair(4 * weights, 2 * weights));
  // A forward and a backward pass each, and the update. What ends one begins the other.
  const auto [read, written] = of(true, false, false);
  EXPECT_LE(read, 5 * weights);
  EXPECT_GE(read, 5 * weights - weights / 100);
  EXPECT_EQ(written, weights);
}

TEST(DryStep, ReadsOfADiskAreWaitedForAndWritesAreNot) {
  Config config = tiny();
  config.offload.dir = "unused";
  const Recording recording = recording_of(config);
  std::map<std::size_t, int> waits;
  for (const auto& wait : only<Recording::Wait>(recording)) ++waits[wait.started];
  std::int64_t reads = 0, writes = 0;
  for (std::size_t i = 0; i < recording.events.size(); ++i) {
    const auto* start = std::get_if<Recording::Start>(&recording.events[i]);
    if (!start) continue;
    const bool read = start->label == "read";
    EXPECT_EQ(waits[i] > 0, read) << i << ": " << start->label << ' ' << start->bytes;
    (read ? reads : writes) += 1;
  }
  EXPECT_GT(reads, 0);
  EXPECT_GT(writes, 0);
}
