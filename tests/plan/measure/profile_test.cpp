#include "axonn/plan/measure/profile.h"

#include <map>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

StepProfile profile_of(const Config& config) {
  const PreparedRun run = prepared(config);
  StepProfile profile;
  run_ranks(config.parallelism.grid().ranks(), [&](Communicator& world) {
    StepProfile mine = profile_steps(run, world);
    if (world.rank() == 0) profile = std::move(mine);
  });
  return profile;
}

}  // namespace

TEST(StepProfile, HasEveryOperationOfAStepOnce) {
  test::TemporaryPath folder;
  for (const GridShape& grid : {GridShape{}, GridShape{.x = 2, .z = 2}}) {
    const Config config = on_grid(tiny_config(folder.path()), grid);
    const StepProfile profile = profile_of(config);
    std::map<std::string, std::int64_t> calls, want;
    double flops = 0, want_flops = 0;
    for (const ProfileRow& row : profile.rows)
      if (row.calls > 0) {
        calls[row.operation] += static_cast<std::int64_t>(row.calls);
        flops += row.flops;
        EXPECT_EQ(row.calls, static_cast<double>(static_cast<std::int64_t>(row.calls)));
      }
    // The CPU fuses no epilogue, as a dry step.
    for (const auto& event : dry_step(prepared(config), 0, {.recording = true}).recording.events)
      if (const auto* const compute = std::get_if<Recording::Compute>(&event)) {
        want[compute->operation] += compute->count;
        want_flops += compute->flops;
      }
    for (auto* const all : {&calls, &want}) all->erase("copy_from_host");  // of tokens: not all
    EXPECT_EQ(calls, want);
    EXPECT_NEAR(flops, want_flops, 1e-9 * want_flops);
  }
}

TEST(StepProfile, AddsUpToItsStepWithWhatLiesBetween) {
  test::TemporaryPath folder;
  const StepProfile profile = profile_of(on_grid(tiny_config(folder.path()), {.z = 2}));
  double sum = profile.between_s;
  bool waits = false;
  for (const ProfileRow& row : profile.rows) {
    sum += row.seconds;
    waits |= row.operation.starts_with("wait for z ");
  }
  EXPECT_NEAR(sum, profile.step_s, 1e-9);
  EXPECT_TRUE(waits);
  EXPECT_TRUE(std::ranges::is_sorted(profile.rows, std::greater<>(), &ProfileRow::seconds));
}

TEST(StepProfile, AsTextNamesTheMostExpensiveRowsAndAsJsonAll) {
  StepProfile profile{.device = "cpu",
                      .rows = {{.operation = "matmul",
                                .shape = "f32 NT 8x8x8",
                                .calls = 2,
                                .seconds = 0.006,
                                .flops = 6e9,
                                .bytes = 768,
                                .bound_seconds = 0.003},
                               {.operation = "gelu", .calls = 1, .seconds = 0.003, .bytes = 3e6},
                               {.operation = "add", .calls = 4, .seconds = 0.0005}},
                      .step_s = 0.01,
                      .usual_step_s = 0.009,
                      .between_s = 0.0005,
                      .product_rate = 2e12,
                      .memory_rate = 1e9};
  const std::string text = to_text(profile, 2);
  EXPECT_THAT(text, testing::HasSubstr("60.0 %        6.0 ms        2      3000.0 us     1.00 "
                                       "Tflop/s    50 %  matmul f32 NT 8x8x8"));
  EXPECT_THAT(text, testing::HasSubstr("1.0 GB/s"));
  EXPECT_THAT(text, testing::HasSubstr("all others"));
  EXPECT_THAT(text, testing::HasSubstr("5.0 %        0.5 ms"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("add")));
  const auto json = nlohmann::json::parse(to_json(profile));
  EXPECT_EQ(json["rows"].size(), 3u);
  EXPECT_EQ(json["rows"][0]["bound_s"], 0.003);
}
