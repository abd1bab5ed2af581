// The settings that make a run fit into memory.
#include "axonn/plan/planner/memory_fit.h"

#include <array>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/plan/planner/search.h"

#include "tests/plan/planner/configs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

ArenaBudget bytes(std::int64_t most) {
  return [most](const PreparedRun&) { return most; };
}

/// Four sequences at a time, of which activations take most of the memory.
Config small_llama() {
  Config config = tiny_llama_config();
  config.model.layers = 4;
  config.model.positions = config.training.seq_len = 64;
  config.training.global_batch = 4;
  config.training.micro_batch = 4;
  return config;
}

/// A Llama whose weights take most of the memory; its matrices are large enough for blocks of
/// moments in 8 bits.
Config wide_llama() {
  Config config = small_llama();
  config.model.hidden = 256;
  config.model.ffn = 512;
  config.training.micro_batch = 1;
  return config;
}

Config with_adapters(Config config) {
  config.model.lora.rank = 2;
  config.model.lora.alpha = 4;
  return config;
}

PreparedRun with(const PreparedRun& run, const FittedSettings& settings) {
  return within_budget(run.with([&](Config& config) {
    config.training.micro_batch = settings.micro_batch;
    config.optimizer.moments = settings.moments;
    config.model.quantize = settings.quantize;
    config.offload = settings.offload;
    config.activation_checkpoint.budget = settings.budget;
  }));
}

/// The settings, which must exist and keep a run of theirs within the budget to the byte.
FittedSettings fitted(const PreparedRun& run, std::int64_t most, const OpenSettings& open = {}) {
  const auto settings = fit_memory(run, bytes(most), open);
  AXONN_CHECK(settings, "no settings fit");
  EXPECT_LE(settings->peak_bytes, most);
  EXPECT_EQ(settings->peak_bytes, dry_step(with(run, *settings), 0).memory.peak_bytes);
  return *settings;
}

}  // namespace

TEST(MemoryFit, KeepsTheSettingsOfARunThatFits) {
  for (const Config& config : {small_llama(), with_adapters(wide_llama())}) {
    const PreparedRun run = prepared(config);
    const FittedSettings settings = fitted(run, peak_of_run(run), {.micro_batch = false});
    EXPECT_EQ(settings.micro_batch, config.training.micro_batch);
    EXPECT_EQ(settings.budget, 0);
    EXPECT_EQ(settings.moments, MomentType::f32);
    EXPECT_EQ(settings.quantize, Quantization::none);
  }
}

TEST(MemoryFit, TakesTheShortestStepOfAllMicroBatchesWithTheirRecomputation) {
  const PreparedRun run = prepared(small_llama());
  const std::int64_t whole = peak_of_run(run);
  for (const double share : {0.9, 0.7, 0.5}) {
    const auto most = static_cast<std::int64_t>(share * static_cast<double>(whole));
    double least = std::numeric_limits<double>::infinity();
    for (const std::int64_t micro : {4, 2, 1}) {
      const PreparedRun one = run.with([&](Config& config) {
        config.training.micro_batch = micro;
        config.activation_checkpoint.budget = most;
      });
      try {
        least = std::min(least, predict(within_budget(one), machine_of(run.config())).time.step_s);
      } catch (const UsageError&) {  // it does not fit
      }
    }
    const FittedSettings settings = fitted(run, most);
    EXPECT_EQ(settings.seconds, least) << share;
    EXPECT_EQ(settings.moments, MomentType::f32);
  }
}

TEST(MemoryFit, TakesSmallerMomentsOnlyIfNothingElseFits) {
  const PreparedRun run = prepared(wide_llama());
  const auto peak = [&](MomentType moments) {
    Config config = wide_llama();
    config.optimizer.moments = moments;
    return peak_of_run(prepared(config));
  };
  const OpenSettings closed{.micro_batch = false, .recomputation = false};
  EXPECT_EQ(fitted(run, peak(MomentType::f32), closed).moments, MomentType::f32);
  EXPECT_EQ(fitted(run, peak(MomentType::f32) - 1, closed).moments, MomentType::bf16);
  EXPECT_EQ(fitted(run, peak(MomentType::bf16) - 1, closed).moments, MomentType::eight_bits);
  EXPECT_FALSE(fit_memory(run, bytes(peak(MomentType::eight_bits) - 1), closed));
  OpenSettings kept = closed;
  kept.moments = false;
  EXPECT_FALSE(fit_memory(run, bytes(peak(MomentType::f32) - 1), kept));
}

TEST(MemoryFit, QuantizesFrozenWeightsOnlyIfNothingElseFits) {
  const PreparedRun run = prepared(with_adapters(wide_llama()));
  const auto peak = [&](Quantization kind) {
    Config config = with_adapters(wide_llama());
    config.model.quantize = kind;
    return peak_of_run(prepared(config));
  };
  const OpenSettings closed{.micro_batch = false, .recomputation = false};
  EXPECT_EQ(fitted(run, peak(Quantization::none) - 1, closed).quantize, Quantization::q8_0);
  EXPECT_EQ(fitted(run, peak(Quantization::q8_0) - 1, closed).quantize, Quantization::nf4);
  OpenSettings kept = closed;
  kept.quantize = false;
  EXPECT_FALSE(fit_memory(run, bytes(peak(Quantization::none) - 1), kept));
}

namespace {

constexpr OpenSettings kOffloadAlone{.micro_batch = false, .recomputation = false, .offload = true};

Config offloaded(Config config) {
  config.offload = {"unused", false, false, false};
  return config;
}

/// Which of parameters, gradients and optimizer are in the file.
std::array<bool, 3> parts_of(const OffloadConfig& offload) {
  return {offload.parameters, offload.gradients, offload.optimizer};
}

}  // namespace

TEST(MemoryFit, TakesADiskOnlyIfNothingInMemoryFitsAndBeforeValuesChange) {
  const PreparedRun run = prepared(offloaded(wide_llama()));
  const std::int64_t whole = peak_of_run(run);
  EXPECT_THAT(parts_of(fitted(run, whole, kOffloadAlone).offload), Each(false));
  const FittedSettings some = fitted(run, whole - 1, kOffloadAlone);
  EXPECT_EQ(some.moments, MomentType::f32);
  EXPECT_THAT(parts_of(some.offload), Contains(true));
  OpenSettings closed = kOffloadAlone;
  closed.offload = false;
  EXPECT_EQ(fitted(run, whole - 1, closed).moments, MomentType::bf16);
}

TEST(MemoryFit, OfADiskIsTheFastestThatFits) {
  const PreparedRun run = prepared(offloaded(wide_llama()));
  const auto with_parts = [&](bool parameters, bool gradients, bool optimizer) {
    return run.with([&](Config& config) {
      config.offload = {"unused", parameters, gradients, optimizer};
    });
  };
  const std::int64_t all = peak_of_run(with_parts(true, true, true)),
                     moments = peak_of_run(with_parts(false, false, true));
  ASSERT_LT(all, moments);
  const auto seconds = [&](const PreparedRun& one) {
    return predict(one, machine_of(one.config())).time.step_s;
  };
  EXPECT_LT(seconds(run), seconds(with_parts(false, false, true)));
  EXPECT_LT(seconds(with_parts(false, false, true)), seconds(with_parts(true, true, true)));
  EXPECT_THAT(parts_of(fitted(run, moments, kOffloadAlone).offload),
              ElementsAre(false, false, true));
  EXPECT_THAT(parts_of(fitted(run, all, kOffloadAlone).offload), Each(true));
  // Then moments take fewer bytes, as well.
  const auto less = fit_memory(run, bytes(all - 1), kOffloadAlone);
  EXPECT_TRUE(!less || less->moments != MomentType::f32);
}

TEST(MemoryFit, OfADiskNeedsItsRate) {
  Config config = offloaded(wide_llama());
  config.parallelism.machine = "frontier";
  EXPECT_THAT([&] { fit_memory(prepared(config), bytes(1'000'000), kOffloadAlone); },
              ThrowsMessage<UsageError>(HasSubstr("machine Frontier has no disk_bytes_per_s")));
  EXPECT_THAT([&] { search(prepared(config), read_machine("frontier"), {.devices = 1}); },
              ThrowsMessage<UsageError>(HasSubstr("machine Frontier has no disk_bytes_per_s")));
}

TEST(MemoryFit, IsThatOfEveryRankOfAGrid) {
  Config config = small_llama();
  config.parallelism.set_grid({2, 2, 1, 1});
  const PreparedRun run = prepared(config);
  const std::int64_t most = peak_of_run(run) * 3 / 4;
  const FittedSettings settings = fitted(run, most);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_LE(dry_step(with(run, settings), rank).memory.peak_bytes, most);
}

TEST(MemoryFit, ThatNoSettingsGiveIsNone) {
  EXPECT_FALSE(fit_memory(prepared(small_llama()), bytes(1000), {}));
  EXPECT_FALSE(fit_memory(prepared(small_llama()), bytes(0), {}));
}
