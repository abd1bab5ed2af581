// Whole trainings with parallelism.device = "cuda", on emulated GPUs, against the CPU backend.
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/emulated_gpu/setting.h"
#include "tests/support/dry_peak.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using emulated_gpu::reseed;
using emulated_gpu::Setting;
using namespace axonn::testing_support;
using testing::Le;

namespace {

/// Between devices in f32, over three steps: sums in another order.
constexpr double kBetweenDevices = 1e-5;

/// The losses of a whole run of three steps.
std::vector<double> losses_of(Config config) {
  test::TemporaryPath folder;
  config.output.dir = folder.path();
  config.training.steps = 3;
  train_on_threads(config);
  return column(metrics_of(config), "loss");
}

Config on_gpus(Config config, TransportKind transport = TransportKind::automatic) {
  config.parallelism.device = DeviceKind::cuda;
  config.parallelism.transport = transport;
  return config;
}

/// The least that can be cut over the grids here.
Config small_config() {
  Config config = tiny_config("unused");
  config.model.heads = 6;
  config.data.synthetic = 1000;  // a tenth of them is for validation
  config.training.global_batch = 4;
  return config;
}

/// The model in Llama's form, with everything that it adds.
Config llama_config() {
  Config config = small_config();
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 3;
  config.model.ffn = 48;
  config.model.tied = false;
  config.model.qkv_bias = true;
  config.model.qk_norm = QkNormKind::head;
  return config;
}

Config experts_config() {
  Config config = llama_config();
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 24;
  config.training.balance = {.weight = 0.01, .z = 0.001};
  return config;
}

}  // namespace

TEST(TrainingOnGpus, HasTheLossesOfTheCpuOnTenGrids) {
  const std::vector<double> want = losses_of(small_config());
  for (const GridShape grid : {GridShape{}, GridShape{.x = 2}, GridShape{.y = 2}, GridShape{.z = 2},
                               GridShape{.data = 2}, GridShape{2, 2, 1, 1}, GridShape{1, 2, 2, 1},
                               GridShape{2, 1, 2, 2}, GridShape{2, 2, 2, 1}, GridShape{1, 3, 1, 2}})
    EXPECT_THAT(largest_difference(
                    losses_of(on_gpus(on_grid(small_config(), grid), TransportKind::nccl)), want),
                Le(kBetweenDevices))
        << to_string(grid);
}

TEST(TrainingOnGpus, HasTheAveragesOfTheWeightsOfTheCpu) {
  test::TemporaryPath folder;
  Config cpu = small_config();
  cpu.training.steps = 3;
  cpu.optimizer.ema_decay = 0.5;
  cpu.output.dir = folder / "cpu";
  Config gpu = on_gpus(on_grid(cpu, {2, 1, 1, 2}));
  gpu.output.dir = folder / "gpu";
  train_on_threads(cpu);
  train_on_threads(gpu);
  const auto last = [](const Config& config) {
    return std::vector<double>{metrics_of(config).back().at("val_loss_ema")};
  };
  EXPECT_THAT(largest_difference(last(gpu), last(cpu)), Le(kBetweenDevices));
}

TEST(TrainingOnGpus, HasTheLossesOfTheCpuForLlama) {
  const std::vector<double> want = losses_of(llama_config());
  for (const GridShape grid : {GridShape{}, GridShape{1, 3, 2, 1}, GridShape{2, 2, 1, 1}})
    EXPECT_THAT(largest_difference(losses_of(on_gpus(on_grid(llama_config(), grid))), want),
                Le(kBetweenDevices))
        << to_string(grid);
}

TEST(TrainingOnGpus, HasAboutTheLossesOfTheCpuInBf16) {
  Config narrow = on_grid(small_config(), {2, 1, 2, 1});
  Config wide = narrow;  // heads of 64 columns have attention kernels of their own
  wide.model.hidden = 128;
  wide.model.heads = 2;
  for (Config config : {narrow, wide}) {
    config.training.dtype = DType::bf16;
    EXPECT_THAT(largest_difference(losses_of(on_gpus(config)), losses_of(config)), Le(2e-2));
  }
}

TEST(TrainingOnGpus, HasAboutTheLossesOfTheCpuInF16AndItsLossScales) {
  Config narrow = small_config(), wide = narrow, split = on_grid(narrow, {2, 1, 2, 1});
  wide.model.hidden = 128;
  wide.model.heads = 2;
  for (Config config : {narrow, wide, split}) {
    config.training.dtype = DType::f16;
    config.training.loss_scale.initial = 0x1p26;  // overflows at first
    config.training.loss_scale.window = 2;
    const auto run = [](const Config& of) {
      train_on_threads(of);
      return metrics_of(of);
    };
    const test::TemporaryPath cpu, gpu;
    Config on_gpu = on_gpus(config);
    config.output.dir = cpu.path();
    on_gpu.output.dir = gpu.path();
    const auto want = run(config), got = run(on_gpu);
    EXPECT_THAT(largest_difference(column(got, "loss"), column(want, "loss")), Le(4e-3));
    EXPECT_EQ(column(got, "loss_scale"), column(want, "loss_scale"));
    EXPECT_GT(column(got, "skipped_steps").back(), 0);
  }
}

TEST(TrainingOnGpus, HasTheLossesOfTheCpuIfRanksShareSequences) {
  Config narrow = llama_config();
  narrow.data.synthetic = 10'000;
  narrow.training.seq_len = 256;
  narrow.training.global_batch = 2;
  Config wide = narrow;  // has attention kernels of its own in bf16
  wide.model.hidden = 128;
  wide.model.heads = 2;
  wide.model.kv_heads = 1;
  wide.model.layers = 1;
  wide.training.dtype = DType::bf16;
  const GridShape grid{.x = 2, .z = 2, .context = 2};
  EXPECT_THAT(largest_difference(losses_of(on_gpus(on_grid(narrow, grid), TransportKind::nccl)),
                                 losses_of(narrow)),
              Le(kBetweenDevices));
  EXPECT_THAT(largest_difference(losses_of(on_gpus(on_grid(wide, grid))), losses_of(wide)),
              Le(2e-2));
}

TEST(TrainingOnGpus, HasTheLossesOfTheCpuWithExperts) {
  const Config config = experts_config();
  const std::vector<double> want = losses_of(config);
  for (const GridShape grid :
       {GridShape{}, GridShape{.x = 2, .z = 2}, GridShape{.x = 2, .z = 2, .experts = 2},
        GridShape{.y = 2, .z = 2, .experts = 2}})
    EXPECT_THAT(
        largest_difference(losses_of(on_gpus(on_grid(config, grid), TransportKind::nccl)), want),
        Le(kBetweenDevices))
        << with_factors(grid);
}

TEST(TrainingOnGpus, HasTheLossesOfTheCpuWithEveryTransport) {
  const Config config = on_grid(small_config(), {2, 1, 2, 1});
  const std::vector<double> want = losses_of(config);
  for (const TransportKind transport : {TransportKind::nccl, TransportKind::threads})
    EXPECT_THAT(largest_difference(losses_of(on_gpus(config, transport)), want),
                Le(kBetweenDevices));
}

TEST(TrainingOnGpus, EndsAlsoIfChangesOfMemoryWaitForAllGpusAndHoldTheOtherRanks) {
  const Setting hold("AXONN_EMULATED_HOLD", "1");
  Config config = on_grid(small_config(), {2, 1, 2, 1});
  config.training.steps = 3;
  const std::vector<double> want = losses_of(config);
  for (const unsigned seed : {1, 2, 3}) {
    reseed(seed);
    EXPECT_THAT(largest_difference(losses_of(on_gpus(config)), want), Le(kBetweenDevices)) << seed;
  }
}

TEST(TrainingOnGpusDeathTest, NcclBetweenThreadsDeadlocksIfTheyDo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto train = [] {
    const Setting hold("AXONN_EMULATED_HOLD", "1"), patience("AXONN_EMULATED_PATIENCE", "1");
    for (unsigned seed = 1; seed <= 20; ++seed) {
      reseed(seed);
      losses_of(on_gpus(on_grid(experts_config(), {2, 1, 2, 1}), TransportKind::nccl));
    }
  };
  // The rank whose patience ends first reports it: the one that changes memory (cudaMalloc) or one
  // that waits for its losses (cudaEventSynchronize).
  EXPECT_DEATH(train(), "deadlock: cuda[A-Za-z]+ waits for(.|\n)*nccl");
}

TEST(TrainingOnGpus, ProductsBesideCollectivesLeaveTheirMultiprocessors) {
  std::int64_t all = 0, beside = 0;  // products
  const auto losses = [&](const GridShape& grid, bool spare) {
    Config config = on_gpus(on_grid(small_config(), grid), TransportKind::nccl);
    config.parallelism.spare_multiprocessors = spare;
    config.parallelism.collective_blocks = 1;  // of the 4 multiprocessors of an emulated GPU
    const auto before = emulated_gpu::products_by_multiprocessors();
    const auto got = losses_of(config);
    all = beside = 0;
    for (const auto& [target, count] : emulated_gpu::products_by_multiprocessors()) {
      const std::int64_t here = count - (before.contains(target) ? before.at(target) : 0);
      all += here;
      if (target > 0) beside += here;
    }
    return got;
  };
  for (const GridShape& grid : {GridShape{.z = 2}, GridShape{.x = 2}, GridShape{.x = 2, .z = 2}}) {
    const auto want = losses(grid, false);
    EXPECT_EQ(beside, 0);
    EXPECT_EQ(losses(grid, true), want);
    EXPECT_GT(beside, 0);
    EXPECT_LT(beside, all);
    RecordProperty("products_x" + std::to_string(grid.x) + "_z" + std::to_string(grid.z),
                   std::to_string(beside) + " of " + std::to_string(all));
  }
}

TEST(TrainingOnGpus, AllocatesNothingAfterTheSecondStep) {
  const auto allocations = [](TransportKind transport, DType dtype, std::int64_t steps) {
    Config config = on_gpus(on_grid(small_config(), {.z = 2}), transport);
    config.training.dtype = dtype;
    config.training.steps = steps;
    const auto before = emulated_gpu::calls();
    losses_of(config);
    std::map<std::string, std::int64_t> made;
    for (const auto& [function, count] : emulated_gpu::calls())
      for (const char* const name : {"cudaMalloc", "cudaFree"})
        if (function.starts_with(name))
          made[function] = count - (before.contains(function) ? before.at(function) : 0);
    return made;
  };
  for (const TransportKind transport : {TransportKind::automatic, TransportKind::nccl})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      EXPECT_EQ(allocations(transport, dtype, 4), allocations(transport, dtype, 2));
}

TEST(TrainingOnGpus, TakesTheMemoryOfTheDryRunToTheByte) {
  Config wide = llama_config();  // heads of 64: attention in its own way
  wide.model.heads = 2;
  wide.model.kv_heads = 1;
  wide.model.hidden = 2 * 64;
  wide.training.dtype = DType::bf16;
  Config half = wide;
  half.training.dtype = DType::f16;
  for (const Config& config : {small_config(), wide, half, experts_config()})
    for (const GridShape& grid :
         {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{.z = 2, .context = 2}}) {
      if (config.model.experts > 0 && grid.ranks() > 1) continue;  // loads of ranks differ
      Config on_grid_of = on_gpus(on_grid(config, grid));
      if (grid.context > 1) {
        on_grid_of.training.seq_len = 256;
        on_grid_of.data.synthetic = 10'000;
      }
      expect_dry_peak(prepared(on_grid_of));
    }
}

TEST(TrainingOnGpus, HasTheSameBitsWithAndWithoutOverlap) {
  for (const TransportKind transport : {TransportKind::nccl, TransportKind::threads}) {
    Config config = on_gpus(on_grid(small_config(), {2, 2, 2, 1}), transport);
    config.parallelism.chunks = 2;
    EXPECT_EQ(losses_of(config), losses_of(without_overlap(config)));
  }
}

TEST(TrainingOnGpus, HasTheSameBitsWithAndWithoutGraphs) {
  Config config = on_gpus(on_grid(small_config(), {2, 1, 2, 1}), TransportKind::nccl);
  Config captured = config;
  captured.training.cuda_graph = true;
  EXPECT_EQ(losses_of(captured), losses_of(config));
}
