#include "axonn/plan/measure/dry_run.h"

#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/options/options.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/convert/convert.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
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
    const DryRun run = dry_run(prepared(config), rank);
    EXPECT_EQ(run.parameters, 124'439'808);
    EXPECT_EQ(run.checkpoint_bytes, 124'439'808 * std::int64_t{12});
    EXPECT_THAT(run.rank, StartsWith("rank " + std::to_string(rank) + " (x "));
    EXPECT_THAT(to_text(run, prepared(config)),
                HasSubstr("on this rank at the peak of a step: exact\n"));
  }
}

TEST(DryRun, ReportsMemoryEvenIfTheDiskIsTooSmall) {
  const Config config = resolved(on_grid(llama_405b(), {8, 1, 16, 1}));
  const DryRun run = dry_run(prepared(config), 77);
  const std::int64_t parameters = 405'853'388'800;
  EXPECT_EQ(run.parameters, parameters);
  EXPECT_NEAR(static_cast<double>(run.share), parameters / 128.0, 0.01 * parameters / 128);
  EXPECT_GT(run.memory.peak_bytes, parameters / 128 * (2 + 4 + 4 + 8));
  EXPECT_THAT(run.fault, HasSubstr("a checkpoint takes 4.43TiB"));
}

TEST(DryRun, CountsTheStateInFewBitsOfACheckpoint) {
  test::TemporaryPath folder;
  for (const MomentType moments : {MomentType::bf16, MomentType::eight_bits}) {
    Config config =
        on_grid(tiny_config(folder / std::to_string(static_cast<int>(moments))), {.x = 2, .z = 2});
    config.model.hidden = 96;
    config.optimizer.moments = moments;
    const std::int64_t stated = dry_run(prepared(config), 0).checkpoint_bytes;
    train_on_threads(config);
    std::int64_t written = 0, headers = 0;
    const CheckpointReader reader(config.output.dir + "/checkpoints");
    for (const StoredFile& file : reader.index().files) {
      written += file.bytes;
      headers += 4096;
    }
    EXPECT_LE(stated, written);
    EXPECT_GE(stated, written - headers);
  }
}

TEST(DryRun, OneRankReadsAllParametersOfTheModelAndNoneOfTheAdapters) {
  for (const std::int64_t rank : {0, 8}) {
    Config config = tiny_config("unused");
    config.model.lora.rank = rank;
    const DryRun run = dry_run(prepared(config), 0);
    EXPECT_EQ(run.share, run.parameters) << rank;
  }
}

TEST(DryRun, WithAdaptersNeedsDiskSpaceOnlyForThem) {
  Config config = on_grid(llama_405b(), {8, 1, 16, 1});
  config.model.lora.rank = 1;
  const DryRun run = dry_run(prepared(config), 77);
  EXPECT_EQ(run.checkpoint_bytes, run.trained * 12);
  // Per layer one row and one column of each of q, k, v and o, gate, up and down.
  const std::int64_t c = 16384, kv = 1024, ffn = 53248;
  EXPECT_EQ(run.trained, 126 * ((c + c) + 2 * (c + kv) + (c + c) + 3 * (c + ffn)));
  EXPECT_LT(run.memory.peak_bytes, 10'000'000'000);
  EXPECT_EQ(run.fault, "");
}

TEST(DryRun, CountsTheBytesOfLocalCheckpointsAndTheirMemory) {
  Config config = resolved(on_grid(gpt2_124m(), {.z = 4}));
  const DryRun without = dry_run(prepared(config), 0);
  EXPECT_EQ(without.local.stored + without.local.sent + without.local.memory, 0);
  config.checkpoint.local_every = 10;
  const DryRun run = dry_run(prepared(config), 0);
  const std::int64_t shard = run.snapshot_bytes;
  EXPECT_EQ(run.local.stored, 4 * shard);
  EXPECT_EQ(run.local.sent, shard);
  EXPECT_EQ(run.local.memory, 5 * shard);
  EXPECT_THAT(to_text(run, prepared(config)),
              testing::ContainsRegex("local     .* of this rank every 10 steps, also to another "
                                     "node if there is one; at most .* for it in /dev/shm/axonn"));
  const MemoryLimits limits{.device = "this machine",
                            .device_bytes = 4 * (run.memory.peak_bytes + shard + run.data_bytes),
                            .ranks_on_device = 4,
                            .ranks_on_host = 4};
  EXPECT_NE(dry_run(prepared(config), 0, {.limits = limits}).fault, "");
  const MemoryLimits links{.node_bytes_per_s = 4 * static_cast<double>(shard)};
  const DryRun sent = dry_run(prepared(config), 0, {.limits = links});
  EXPECT_EQ(sent.local_seconds, 0.25);
  EXPECT_THAT(to_text(sent, prepared(config)),
              HasSubstr("also to another node if there is one, in 0.25 s or more; at most"));
  config.checkpoint.local_folder = "/local/disk";
  config.checkpoint.local_node_ranks = 4;  // all of them
  const DryRun alone = dry_run(prepared(config), 0);
  EXPECT_EQ(alone.local.stored, 2 * shard);
  EXPECT_EQ(alone.local.sent, 0);
  EXPECT_EQ(alone.local.memory, shard);
  config.offload.dir = testing::TempDir();  // where the snapshot is then
  config.offload.optimizer = true;
  const DryRun offloaded = dry_run(prepared(config), 0);
  EXPECT_EQ(offloaded.snapshot_bytes, 0);
  EXPECT_THAT(to_text(offloaded, prepared(config)),
              HasSubstr("local     " + format_bytes(shard) + " of this rank"));
}

TEST(DryRun, ComparesTheMemoryOfAllRanksThatShareItWithWhatThereIs) {
  Config given = on_grid(gpt2_124m(), {.z = 4});
  given.training.global_batch = given.training.steps = 4;
  const Config config = resolved(given);
  const DryRun alone = dry_run(prepared(config), 0);
  EXPECT_EQ(alone.fault + alone.needs, "");
  const std::int64_t peak = alone.memory.peak_bytes, copy = alone.snapshot_bytes;
  EXPECT_NEAR(static_cast<double>(copy), 12 * 124.44e6 / 4, 1e6);
  const auto with = [&](const MemoryLimits& limits) {
    return dry_run(prepared(config), 0, {.limits = limits});
  };
  MemoryLimits limits{.device = "this machine",
                      .device_bytes = 4 * (peak + copy + alone.data_bytes),
                      .ranks_on_device = 4,
                      .ranks_on_host = 4};
  DryRun run = with(limits);
  EXPECT_EQ(run.fault, "");
  EXPECT_THAT(run.needs, testing::ContainsRegex("4 ranks need .* of the .* of this machine"));
  EXPECT_THAT(to_text(run, prepared(config)), HasSubstr("No problem found"));
  limits.free_bytes = limits.device_bytes - 1;
  EXPECT_THAT(with(limits).warnings, testing::ElementsAre(HasSubstr("are free now")));
  EXPECT_THAT(to_text(with(limits), prepared(config)),
              HasSubstr("No fault found, but see the warnings: "));
  --limits.device_bytes;
  run = with(limits);
  EXPECT_THAT(run.fault, AllOf(HasSubstr("too little memory: 4 ranks need "),
                               HasSubstr("parallelism.machine")));
  EXPECT_THAT(to_text(run, prepared(config)), Not(HasSubstr("found")));

  limits = {.device = "a GPU", .device_bytes = peak, .host_bytes = 1, .one = false};
  EXPECT_THAT(with(limits).fault, HasSubstr("of the 1B of this machine"));
  limits.host_bytes = 0;
  EXPECT_EQ(with(limits).fault, "");
  limits.ranks_on_device = 2;
  EXPECT_THAT(with(limits).fault, HasSubstr("2 ranks need "));
}

TEST(DryRun, OfARunHereCountsItsRanksAndRefusesWhatExceedsTheMachine) {
  Config config = resolved(on_grid(gpt2_124m(), {.z = 4}));
  config.parallelism.device = DeviceKind::cpu;
  config.parallelism.transport = TransportKind::threads;
  MemoryLimits limits = limits_here(config);
  EXPECT_EQ(limits.ranks_on_device, 4);
  EXPECT_EQ(static_cast<double>(limits.device_bytes), std::floor(total_memory()));
  EXPECT_NO_THROW(refuse_too_large(prepared(config), {}));
  limits.device_bytes = 4 * dry_step(prepared(config), 0).memory.peak_bytes;
  EXPECT_NO_THROW(refuse_too_large(prepared(config), limits));
  --limits.device_bytes;
  EXPECT_THROW(refuse_too_large(prepared(config), limits), Error);
}

TEST(DryRun, OpensTheWeightsAndSaysWhatIsWrongWithThem) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "base");
  train_on_threads(config);
  const std::string model = folder / "model", weights = model + "/model.safetensors";
  convert({.model = folder / "base/checkpoints", .out = model});
  config.output.dir = folder / "out";
  config.model.path = model;
  config = with_stored_model(config, {});
  EXPECT_EQ(dry_run(prepared(config), 0).fault, "");
  EXPECT_EQ(dry_run(prepared(config), 0).weights, model);
  const std::string whole = test::slurp(weights);
  const auto fault_with = [&](const std::string& contents) {
    test::spill(weights, contents);
    const DryRun run = dry_run(prepared(config), 0);
    EXPECT_GT(run.memory.peak_bytes, 0);
    EXPECT_NE(run.input, "");
    return run.fault;
  };
  EXPECT_THAT(fault_with(whole.substr(0, whole.size() / 2)), HasSubstr("cut short"));
  EXPECT_THAT(fault_with("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"),
              AllOf(HasSubstr(weights + " is a Git LFS pointer"), HasSubstr("git lfs pull")));
  std::filesystem::remove(weights);
  EXPECT_THAT(dry_run(prepared(config), 0).fault, HasSubstr("has neither model.safetensors"));
  test::spill(weights, whole);
  config.model.ffn = 48;
  EXPECT_THAT(dry_run(prepared(config), 0).fault, HasSubstr("wanted (24, 48)"));
}

TEST(DryRun, CountsConversationsThatAreCutAndEpochs) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  config.data = {.jsonl = {folder / "chats.jsonl"}, .validation = "0"};
  test::spill(config.data.jsonl.front(), R"({"prompt": "one", "completion": "two"})"
                                         "\n"
                                         R"({"prompt": "a longer one", "completion": "two"})"
                                         "\n");
  config.training.seq_len = 8;
  DryRun run = dry_run(prepared(config), 0);
  EXPECT_EQ(run.fault, "");
  EXPECT_THAT(
      run.warnings,
      testing::ElementsAre(HasSubstr("1 of 2 conversations are longer than training.seq_len = 8"),
                           HasSubstr("the run sees its data ")));
  config.training.seq_len = 4;
  EXPECT_THAT(dry_run(prepared(config), 0).fault, HasSubstr("2 of 2 conversations"));
  config.training.seq_len = 64;
  config.training.steps = 1;
  config.lr_scheduler.warmup_steps = 0;
  EXPECT_THAT(dry_run(prepared(config), 0).warnings, testing::IsEmpty());
}

TEST(DryRun, CountsTheStepsOfEpochsOrSaysThatTheyNeedTheData) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  config.data.synthetic = 1000;
  config.training.steps = 0;
  config.training.epochs = 3;
  const DryRun run = dry_run(prepared(config), 0);
  EXPECT_EQ(run.steps, 28);  // of 12: three times 112 sequences
  EXPECT_THAT(to_text(run, prepared(config)), HasSubstr("; 28 steps are 3.00 epochs\n"));
  config.data = {.text = {"/no/such/file"}};
  EXPECT_THAT(to_text(dry_run(prepared(config), 0), prepared(config)),
              HasSubstr("; 3 epochs, whose steps are not known without the data\n"));
}

TEST(DryRun, ShowsTheFirstSampleOfTheRankAndItsTargetsShiftedByOne) {
  test::TemporaryPath folder;
  test::spill(folder / "text.txt", "zero.567one.4567two.4567three.67four.567five.567six");
  Config config = on_grid(tiny_config(folder / "out"), {.z = 3, .data = 2});
  config.data = {.text = {folder / "text.txt"}, .validation = "0", .shuffle = false};
  config.training.global_batch = 6;
  config = resolved(config);
  EXPECT_EQ(dry_run(prepared(config), 0).input, R"("zero.567")");
  EXPECT_EQ(dry_run(prepared(config), 0).target, R"("ero.567o")");
  EXPECT_EQ(dry_run(prepared(config), 1).input, R"("one.4567")");
  EXPECT_EQ(dry_run(prepared(config), 3).input, R"("three.67")");
  EXPECT_THAT(dry_run(prepared(config), 3).sample,
              StartsWith("sequence 4 of step 1: token 24 of "));
  config.training.global_batch = 4;
  const DryRun padded = dry_run(prepared(config), 5);
  EXPECT_THAT(to_text(padded, prepared(config)),
              HasSubstr("4 sequences of 8 tokens and 2 of padding, 1 at a time on each"));
  EXPECT_THAT(padded.sample, StartsWith("sequence 4 of step 1: ")) << "its ids are computed";
  EXPECT_THAT(test::names_in(folder.path()), testing::ElementsAre("text.txt"));
}

TEST(DryRun, RejectsWhatTheRunWouldReject) {
  const auto refusal = [](Config config, int rank = 0) -> std::string {
    try {
      return dry_run(prepared(config), rank).fault;
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  const Config config = tiny_config("unused");
  EXPECT_EQ(refusal(on_grid(config, {.x = 5})), "") << "12 heads: 3 on each rank but the last";
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
  EXPECT_EQ(dry_run(prepared(config), 0).resumes_from, folder / "checkpoints/step-10");
  EXPECT_THAT(to_text(dry_run(prepared(config), 0), prepared(config)),
              AllOf(HasSubstr("step-10, at step 10 of 10: nothing to do"),
                    HasSubstr("without --dry-run has nothing to do")));
  Config other = config;
  other.model.ffn = 48;
  EXPECT_THAT(dry_run(prepared(other), 0).fault, HasSubstr("model.ffn was 96 and is 48"));
  other = config;
  other.training.seed = 2;
  EXPECT_THAT(dry_run(prepared(other), 0).fault, HasSubstr("training.seed was 1 and is 2"));
  other.checkpoint.changed_data = ChangedData::restart;
  EXPECT_EQ(dry_run(prepared(other), 0).fault, "");
  other.output.dir = folder / "new";
  EXPECT_THAT(to_text(dry_run(prepared(other), 0), prepared(other)),
              HasSubstr("no checkpoint in " + other.output.dir + "/checkpoints: the run starts"));
}
