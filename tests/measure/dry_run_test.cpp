#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/measure/dry_step.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

Config gpt2_124m() {
  Config config = tiny_config("unused");
  config.model = {.layers = 12, .hidden = 768, .heads = 12, .vocab = 50257};
  config.training.seq_len = 1024;
  config.training.global_batch = 65536;
  config.training.micro_batch = 1;
  config.data.synthetic = 100'000;
  return config;
}

Config llama_405b() {
  Config config = gpt2_124m();
  config.model = {.family = ModelFamily::llama,
                  .layers = 126,
                  .hidden = 16384,
                  .heads = 128,
                  .kv_heads = 8,
                  .ffn = 53248,
                  .vocab = 128256,
                  .tied = false};
  config.training.dtype = DType::bf16;
  config.training.global_batch = 128;
  config.activation_checkpoint.mode = RecomputeMode::full;
  return config;
}

}  // namespace

TEST(DryRun, OfAnyOf32768RanksReportsItsPlaceAndTheModelsSize) {
  const Config config = resolved(on_grid(gpt2_124m(), {4, 4, 32, 64}));
  for (const int rank : {0, 12345, 32767}) {
    const DryRun run = dry_run(config, rank);
    EXPECT_EQ(run.parameters, 124'439'808);
    EXPECT_EQ(run.checkpoint_bytes, 124'439'808 * std::int64_t{12});
    EXPECT_THAT(run.place, StartsWith("rank " + std::to_string(rank) + " (x "));
    EXPECT_THAT(to_text(run, config), HasSubstr("on this rank at the peak of a step: exact\n"));
  }
}

TEST(DryRun, ReportsMemoryEvenIfTheDiskIsTooSmall) {
  const Config config = resolved(on_grid(llama_405b(), {8, 1, 16, 1}));
  const DryRun run = dry_run(config, 77);
  const std::int64_t parameters = 405'853'388'800;
  EXPECT_EQ(run.parameters, parameters);
  EXPECT_NEAR(static_cast<double>(run.share), parameters / 128.0, 0.01 * parameters / 128);
  EXPECT_GT(run.memory.peak_bytes, parameters / 128 * (2 + 4 + 4 + 8));
  EXPECT_THAT(run.fault, HasSubstr("a checkpoint takes 4.43TiB"));
}

TEST(DryRun, WithAdaptersNeedsDiskSpaceOnlyForThem) {
  Config config = on_grid(llama_405b(), {8, 1, 16, 1});
  config.model.lora.rank = 1;
  const DryRun run = dry_run(resolved(config), 77);
  EXPECT_EQ(run.checkpoint_bytes, run.trained * 12);
  // Per layer one row and one column of each of q, k, v and o, gate, up and down.
  const std::int64_t c = 16384, kv = 1024, ffn = 53248;
  EXPECT_EQ(run.trained, 126 * ((c + c) + 2 * (c + kv) + (c + c) + 3 * (c + ffn)));
  EXPECT_LT(run.memory.peak_bytes, 10'000'000'000);
  EXPECT_EQ(run.fault, "");
}

TEST(DryRun, ShowsTheFirstSampleOfTheRankAndItsTargetsShiftedByOne) {
  test::TemporaryPath folder;
  test::spill(folder / "text.txt", "zero.567one.4567two.4567three.67four.567five.567six");
  Config config = on_grid(tiny_config(folder / "out"), {.z = 3, .data = 2});
  config.data = {.text = {folder / "text.txt"}, .validation = "0", .shuffle = false};
  config.training.global_batch = 6;
  config = resolved(config);
  EXPECT_EQ(dry_run(config, 0).input, R"("zero.567")");
  EXPECT_EQ(dry_run(config, 0).target, R"("ero.567o")");
  EXPECT_EQ(dry_run(config, 1).input, R"("one.4567")");
  EXPECT_EQ(dry_run(config, 3).input, R"("three.67")");
  EXPECT_THAT(dry_run(config, 3).sample, StartsWith("sequence 4 of step 1: token 24 of "));
  EXPECT_THAT(test::names_in(folder.path()), testing::ElementsAre("text.txt"));
}

TEST(DryRun, RejectsWhatTheRunWouldReject) {
  const auto refusal = [](Config config, int rank = 0) -> std::string {
    try {
      dry_run(resolved(config), rank);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  const Config config = tiny_config("unused");
  EXPECT_THAT(refusal(on_grid(config, {.x = 5})),
              HasSubstr("12 heads cannot be cut over x = 5; x must be one of 1, 2, 3, 4, 6, 12"));
  EXPECT_THAT(refusal(on_grid(config, {.y = 5})), HasSubstr("width of 24 cannot be cut over y"));
  EXPECT_EQ(refusal(on_grid(config, {.x = 2}), 2),
            "--rank 2 is not on grid 2,1,1,1: ranks are 0 to 1");
  Config missing = config;
  missing.data = {.text = {"/no/such/file"}};
  EXPECT_THAT(refusal(missing), HasSubstr("/no/such/file"));
  Config resumed = config;
  resumed.checkpoint.resume = "/no/such/checkpoint";
  EXPECT_THAT(refusal(resumed), HasSubstr("/no/such/checkpoint"));
}

TEST(DryRun, NamesTheCheckpointToResumeFromAndRejectsAnotherModels) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder.path());
  train_on_threads(config);
  config.checkpoint.resume = "auto";
  EXPECT_EQ(dry_run(resolved(config), 0).resumes_from, folder / "checkpoints/step-10");
  config.model.ffn = 48;
  EXPECT_THROW(dry_run(resolved(config), 0), UsageError);
}
