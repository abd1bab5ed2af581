#include "axonn/run/load/devices.h"

#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/compute/ops/verifying_backend.h"
#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/compute/tensor/gpu/gpu_platform.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/train/resume.h"
#include "axonn/run/train/state_blocks.h"
#include "axonn/run/train/training.h"
#include "axonn/use/infer/generator.h"

#include "tests/support/gpu_of_host_memory.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// The CPU backend with memory that the host cannot read directly, as on a GPU.
class BackendOnGpu final : public ForwardingBackend {
 public:
  BackendOnGpu() : ForwardingBackend(make_cpu_backend(1)) {}
  Device& device() override { return gpu_; }
  Arena& arena() override { return arena_; }

 private:
  GpuOfHostMemory gpu_;
  Arena arena_{gpu_};
};

std::unique_ptr<Backend> on_host() { return make_cpu_backend(1); }
std::unique_ptr<Backend> on_gpu() { return std::make_unique<BackendOnGpu>(); }

using MakeBackend = std::unique_ptr<Backend> (*)();

double step(Training& training, std::int64_t i) {
  StepInput input = training.input(i);
  input.lr = 0.01;
  return training.step.run(training.model.context(), input).loss;
}

/// Returns the losses of three steps. Between steps everything is saved, and read by a new run.
std::vector<double> losses_of(const Config& given, MakeBackend make) {
  const PreparedRun run = prepared(given);
  std::vector<double> losses(3);
  run_ranks(run->parallelism.grid().ranks(), [&](Communicator& world) {
    CheckpointSaver saver({.folder = run->output.dir, .keep = 0, .async = false});
    std::string saved;
    for (std::int64_t i = 0; i < 3; ++i) {
      Training training(run, world, make());
      if (i == 0)
        training.model.initialise();
      else
        resume(training.model, training.optimizer, saved);
      const double loss = step(training, i);
      if (world.rank() == 0) losses[i] = loss;
      saver.begin(world, i + 1, state_blocks(training.model, training.optimizer),
                  {{"state.json", "{}"}});
      saved = saver.finish(world).folder;
    }
  });
  return losses;
}

}  // namespace

TEST(Devices, ProductsAreVerifiedIfTheConfigSaysSo) {
  const auto world = make_self();
  Config config;
  for (const bool verify : {false, true}) {
    config.training.verify_products = verify;
    const auto backend = make_backend(config, *world, 1);
    EXPECT_EQ(dynamic_cast<VerifyingBackend*>(backend.get()) != nullptr, verify);
  }
}

TEST(Devices, DeviceMemoryChangesNoBitOfTrainingOrCheckpointsOnAnyGrid) {
  for (const GridShape grid :
       {GridShape{1, 1, 1, 1}, GridShape{2, 1, 1, 1}, GridShape{1, 2, 1, 1}, GridShape{1, 1, 3, 1},
        GridShape{1, 1, 1, 2}, GridShape{2, 1, 2, 1}}) {
    SCOPED_TRACE(to_string(grid));
    test::TemporaryPath host, gpu;
    EXPECT_EQ(losses_of(on_grid(tiny_config(host.path()), grid), on_host),
              losses_of(on_grid(tiny_config(gpu.path()), grid), on_gpu));
  }
}

TEST(Devices, DeviceMemoryChangesNoGeneratedTokenOnAnyGrid) {
  const std::vector<std::vector<std::int32_t>> prompts{{5}, {1, 2, 3, 4, 5, 6, 7}, {9, 8, 7}};
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{1, 1, 1, 1}, GridShape{2, 1, 1, 1}, GridShape{1, 2, 2, 1},
                               GridShape{1, 1, 1, 2}}) {
    SCOPED_TRACE(to_string(grid));
    const auto texts = [&](MakeBackend make) {
      const Config config = resolved(on_grid(tiny_config(folder.path()), grid));
      std::vector<std::vector<std::int32_t>> tokens;
      run_ranks(grid.ranks(), [&](Communicator& world) {
        LoadedModel model(prepared_model(config), world, make(), {.trainable = false});
        model.initialise();
        Generator generator(model, {});
        const auto all = generator.generate(prompts, {.max_tokens = 8});
        for (const Generation& one : all)
          if (world.rank() == 0) tokens.push_back(one.tokens);
      });
      return tokens;
    };
    const auto on_the_gpu = texts(on_gpu);
    EXPECT_EQ(on_the_gpu.size(), prompts.size());
    EXPECT_EQ(on_the_gpu, texts(on_host));
  }
}

TEST(Devices, ACheckpointCanBeReadOnAnotherDevice) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder.path());
  config.parallelism.device = DeviceKind::cuda;
  config.parallelism.transport = TransportKind::nccl;
  const auto world = make_self();
  CheckpointSaver saver({.folder = folder.path(), .keep = 0, .async = false});
  saver.begin(*world, 1, {}, {{"config.toml", stored_config_text(config, Origins())}});
  const std::string saved = saver.finish(*world).folder;
  const ParallelismConfig read = config_of_model(saved).parallelism;
  EXPECT_EQ(read.device, DeviceKind::automatic);
  EXPECT_EQ(read.transport, TransportKind::automatic);
}

TEST(Devices, HostMemoryNeedsNoSeparateTransport) {
  const auto world = make_self();
  const auto device = make_cpu_device();
  Arena arena(*device);
  EXPECT_EQ(make_device_world({}, *world, arena), nullptr);
}

TEST(Devices, RanksThatShareAGpuUseNcclOnlyOnRequestWhichFails) {
  run_ranks(2, [](Communicator& world) {
    GpuOfHostMemory gpu;
    Arena arena(gpu);
    EXPECT_NE(make_device_world({}, world, arena), nullptr);
    EXPECT_THROW(make_device_world({.transport = TransportKind::nccl}, world, arena), UsageError);
  });
}

TEST(Devices, AMissingGpuIsRejectedByValidation) {
  const CudaStatus status = cuda_status();
  if (status.trouble.empty()) GTEST_SKIP() << "this machine has a GPU";
  test::TemporaryPath folder;
  Config config = tiny_config(folder.path());
  for (const DeviceKind kind : {DeviceKind::cuda, DeviceKind::hip}) {
    config.parallelism.device = kind;
    const GpuPlatform& platform = kind == DeviceKind::hip ? kHip : kCuda;
    const std::string of_build = trouble_of_build(platform, gpu_platform());
    EXPECT_THAT(
        [&] { validate(config); },
        ThrowsMessage<UsageError>(AllOf(HasSubstr(of_build.empty() ? status.trouble : of_build),
                                        HasSubstr(concat("device = \"", platform.device, '"')))));
  }
  EXPECT_THAT([] { make_cuda_device(0); }, ThrowsMessage<UsageError>(HasSubstr(status.trouble)));
}
