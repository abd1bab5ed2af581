// Whole trainings with parallelism.device = "cuda", on emulated GPUs, against the CPU backend.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/runs.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::Le;

namespace {

/// Between devices in f32, over ten steps: sums in another order.
constexpr double kBetweenDevices = 1e-5;

/// The losses of a whole run.
std::vector<double> losses_of(Config config) {
  test::TemporaryPath folder;
  config.output.dir = folder.path();
  if (sanitized()) config.training.steps = 3;
  train_on_threads(config);
  return column(metrics_of(config), "loss");
}

Config on_gpus(Config config, TransportKind transport = TransportKind::automatic) {
  config.parallelism.device = DeviceKind::cuda;
  config.parallelism.transport = transport;
  return config;
}

/// The tiny model in Llama's form, with everything that it adds.
Config llama_config() {
  Config config = tiny_config("unused");
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 3;
  config.model.ffn = 48;
  config.model.tied = false;
  config.model.qkv_bias = config.model.qk_norm = true;
  return config;
}

}  // namespace

TEST(TrainingOnGpus, HasTheLossesOfTheCpuOnTenGrids) {
  const std::vector<double> want = losses_of(tiny_config("unused"));
  for (const GridShape grid : {GridShape{}, GridShape{.x = 2}, GridShape{.y = 2}, GridShape{.z = 2},
                               GridShape{.data = 2}, GridShape{2, 2, 1, 1}, GridShape{1, 2, 2, 1},
                               GridShape{2, 1, 2, 2}, GridShape{2, 2, 2, 1}, GridShape{1, 3, 1, 2}})
    EXPECT_THAT(largest_difference(losses_of(on_gpus(on_grid(tiny_config("unused"), grid))), want),
                Le(kBetweenDevices))
        << to_string(grid);
}

TEST(TrainingOnGpus, HasTheLossesOfTheCpuForLlama) {
  const std::vector<double> want = losses_of(llama_config());
  for (const GridShape grid : {GridShape{}, GridShape{1, 3, 2, 1}, GridShape{2, 2, 1, 1}})
    EXPECT_THAT(largest_difference(losses_of(on_gpus(on_grid(llama_config(), grid))), want),
                Le(kBetweenDevices))
        << to_string(grid);
}

TEST(TrainingOnGpus, HasAboutTheLossesOfTheCpuInBf16) {
  Config narrow = on_grid(tiny_config("unused"), {2, 1, 2, 1});
  Config wide = narrow;  // heads of 64 columns have attention kernels of their own
  wide.model.hidden = 128;
  wide.model.heads = 2;
  for (Config config : {narrow, wide}) {
    config.training.dtype = DType::bf16;
    EXPECT_THAT(largest_difference(losses_of(on_gpus(config)), losses_of(config)), Le(2e-2));
  }
}

TEST(TrainingOnGpus, HasTheLossesOfTheCpuWithEveryTransport) {
  const Config config = on_grid(tiny_config("unused"), {2, 1, 2, 1});
  const std::vector<double> want = losses_of(config);
  for (const TransportKind transport : {TransportKind::nccl, TransportKind::threads})
    EXPECT_THAT(largest_difference(losses_of(on_gpus(config, transport)), want),
                Le(kBetweenDevices));
}

TEST(TrainingOnGpus, HasTheSameBitsWithAndWithoutOverlap) {
  for (const TransportKind transport : {TransportKind::nccl, TransportKind::threads}) {
    Config config = on_gpus(on_grid(tiny_config("unused"), {2, 2, 2, 1}), transport);
    config.parallelism.chunks = 2;
    Config plain = config;
    plain.parallelism.overlap_input_gradients = plain.parallelism.overlap_weight_gradients =
        plain.parallelism.overlap_weights = plain.parallelism.overlap_data = false;
    EXPECT_EQ(losses_of(config), losses_of(plain));
  }
}

TEST(TrainingOnGpus, HasTheSameBitsWithAndWithoutGraphs) {
  Config config = on_gpus(on_grid(tiny_config("unused"), {2, 1, 2, 1}), TransportKind::nccl);
  Config captured = config;
  captured.training.cuda_graph = true;
  EXPECT_EQ(losses_of(captured), losses_of(config));
}
