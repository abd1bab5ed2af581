// Values that are kept in a file between their uses: the same bits in less memory.
#include <filesystem>
#include <functional>

#include <gmock/gmock.h>

#include "axonn/data/corpus/batches.h"
#include "axonn/foundation/base/check.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"

#include "tests/support/disk_folder.h"
#include "tests/support/dry_peak.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

/// Two micro-batches a step of a model of two blocks.
Config offloaded_config(const GridShape& grid, DType dtype) {
  Config config = on_grid(tiny_config("unused"), grid);
  config.training.dtype = dtype;
  config.training.micro_batch = 2;
  config.training.global_batch = 4 * batch_coordinates(grid);
  config.training.steps = 6;
  config.checkpoint.every = 3;
  return config;
}

struct OffloadedRun {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights, moments;
};

/// Of a run that ends after its third step and is resumed.
OffloadedRun offloaded_run(Config config) {
  const test::TemporaryPath folder;
  config.output.dir = folder / "out";
  Config half = config;
  half.training.steps = 3;
  half.lr_scheduler.kind = config.lr_scheduler.kind = ScheduleKind::constant;
  train_on_threads(half);
  config.checkpoint.resume = "auto";
  train_on_threads(config);
  const std::string last = config.output.dir + "/checkpoints/step-6";
  return {column(metrics_of(config), "loss"), column(metrics_of(config), "grad_norm"),
          weights_of(last), weights_of(last, "exp_avg_sq")};
}

void expect_same_results(const Config& config, const Config& offloaded) {
  const OffloadedRun want = offloaded_run(config), got = offloaded_run(offloaded);
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_EQ(got.weights, want.weights);
  EXPECT_EQ(got.moments, want.moments);
  EXPECT_EQ(got.losses.size(), 6U);
}

/// The same results, the memory of the dry run on each rank, and less of it. Returns its share of
/// the memory without offloading.
double expect_same_in_less_memory(const Config& config) {
  SCOPED_TRACE(
      concat(with_factors(config.parallelism.grid()), ", ", name_of(config.training.dtype)));
  Config offloaded = config;
  offloaded.offload.dir = test::disk_folder();
  expect_same_results(config, offloaded);
  expect_dry_peak(prepared(offloaded));
  const ArenaStats in_memory = dry_step(prepared(config), 0).memory,
                   in_file = dry_step(prepared(offloaded), 0).memory;
  EXPECT_LT(in_file.peak_bytes, in_memory.peak_bytes);
  EXPECT_EQ(in_memory.file_bytes, 0);
  // But for single numbers, what stays between steps is in the file, in whole pages.
  EXPECT_LT(in_file.live_bytes, 1024);
  EXPECT_GE(in_file.file_bytes, in_memory.live_bytes - 1024);
  return static_cast<double>(in_file.peak_bytes) / static_cast<double>(in_memory.peak_bytes);
}

}  // namespace

TEST(Offload, HasTheSameBitsAndTheMemoryOfTheDryRunOnEveryGrid) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  for (const GridShape grid : {GridShape{1, 1, 1, 1}, GridShape{1, 1, 2, 1}, GridShape{1, 1, 1, 2},
                               GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}})
    for (const DType dtype : {DType::f32, DType::bf16})
      expect_same_in_less_memory(offloaded_config(grid, dtype));
}

TEST(Offload, OfDeepModelsTakesTheMemoryOfFewBlocks) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  Config config = offloaded_config({1, 1, 1, 1}, DType::bf16);
  config.model.layers = 24;
  config.activation_checkpoint.mode = RecomputeMode::full;
  EXPECT_LT(expect_same_in_less_memory(config), 0.25);
}

TEST(Offload, HasTheSameBitsWhateverIsTrainedAndHow) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  const std::vector<std::pair<const char*, std::function<void(Config&)>>> changes = {
      {"adapters", [](Config& c) { c.model.lora.rank = 2; }},
      {"adapters on codes",
       [](Config& c) {
         c.model.lora.rank = 2;
         c.model.quantize = Quantization::nf4;
       }},
      {"moments in 8 bits and averages",
       [](Config& c) {
         c.optimizer.moments = MomentType::eight_bits;
         c.optimizer.ema_decay = 0.9;
       }},
      {"a rule that evaluates other weights",
       [](Config& c) {
         c.optimizer.kind = OptimizerKind::schedule_free_adamw;
         c.lr_scheduler.kind = ScheduleKind::constant;
       }},
      {"chunks, weights that stay gathered",
       [](Config& c) {
         c.parallelism.chunks = 2;
         c.parallelism.keep_weights = KeepWeights::micro_batch;
       }},
      {"no overlap, clipped values",
       [](Config& c) {
         c = without_overlap(c);
         c.training.clip_value = 0.01;
         c.training.max_norm = 0;
       }},
      {"experts",
       [](Config& c) {
         c.model.family = ModelFamily::llama;
         c.model.experts = 4;
         c.model.experts_per_token = 2;
       }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    for (const GridShape grid : {GridShape{1, 1, 1, 1}, GridShape{1, 1, 2, 2}}) {
      Config config = offloaded_config(grid, DType::bf16);
      change(config);
      Config offloaded = config;
      offloaded.offload.dir = test::disk_folder();
      expect_same_results(config, offloaded);
      if (config.model.experts == 0) expect_dry_peak(prepared(offloaded));
    }
  }
}

TEST(Offload, MayKeepOnlyWhatUpdatesUse) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  Config config = offloaded_config({1, 1, 1, 1}, DType::bf16);
  config.offload = {.dir = test::disk_folder(), .parameters = false, .gradients = false};
  const auto use = [&](MemoryUse which) {
    return dry_step(prepared(config), 0).memory.live_by[static_cast<std::size_t>(which)];
  };
  expect_dry_peak(prepared(config));
  EXPECT_GT(use(MemoryUse::parameters), 0);
  EXPECT_GT(use(MemoryUse::gradients), 0);
  EXPECT_EQ(use(MemoryUse::optimizer), 0);
}

TEST(Offload, RefusesFoldersInMemoryAndRulesThatUpdateAllBlocksTogether) {
  if (!test::has_disk()) GTEST_SKIP() << test::kNoDisk;
  if (!fs::exists("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  config.offload.dir = "/dev/shm/axonn-offloaded";
  EXPECT_THAT(failure_of(config), AllOf(HasSubstr("/dev/shm/axonn-offloaded"), HasSubstr("tmpfs")));
  fs::remove("/dev/shm/axonn-offloaded");
  config.offload.dir = test::disk_folder();
  config.optimizer.kind = OptimizerKind::muon;
  EXPECT_THROW(prepared(config), UsageError);
  config.offload.gradients = config.offload.optimizer = false;
  EXPECT_EQ(failure_of(config), "");
}
