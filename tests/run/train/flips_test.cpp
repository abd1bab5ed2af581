// Bits that flip anywhere in a step, with all checks on: each is set right or ends the run with the
// name of its rank, or changes nothing. The long form is tests/attacks/flips.cpp.
#include "tests/support/flips.h"

#include <gmock/gmock.h>

#include "axonn/run/config/prepared_run.h"

#include "tests/support/sanitized.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

Config with_all_checks(Config config) {
  config.training.verify_products = true;
  config.training.verify_operations = true;
  config.training.verify_values = true;
  return config;
}

}  // namespace

TEST(Flips, AreSetRightOrFoundOnTheirRankWhereverTheyAre) {
  const int each = sanitized() ? 1 : 3;
  int changed = 0;
  std::uint64_t seed = 7000;
  for (const auto& [name, config] : flip_settings()) {
    const PreparedRun run = prepared(with_all_checks(config));
    const FlippedRun clean = run_with_flip(run, nullptr);
    ASSERT_EQ(clean.error, "") << name;
    for (int in = 0; in < kFlips; ++in)
      for (int i = 0; i < each; ++i) {
        const Flip flip = random_flip(static_cast<FlipIn>(in), clean, ++seed);
        const FlippedRun flipped = run_with_flip(run, &flip);
        const FlipEnd end = end_of(flipped, clean, flip);
        EXPECT_TRUE(end != FlipEnd::missed && end != FlipEnd::other)
            << name << ", seed " << seed << ": " << flipped.hit << ": " << flipped.error;
        changed += end == FlipEnd::repaired || end == FlipEnd::found ? 1 : 0;
      }
  }
  EXPECT_GT(changed, 6 * kFlips * each / 2);
}

TEST(Flips, TheChecksRaiseNoAlarmAndChangeNoBit) {
  for (const auto& [name, config] : flip_settings()) {
    const FlippedRun with = run_with_flip(prepared(with_all_checks(config)), nullptr),
                     without = run_with_flip(prepared(config), nullptr);
    EXPECT_EQ(with.error, "") << name;
    EXPECT_EQ(with.digest, without.digest) << name;
    EXPECT_EQ(with.remarks, without.remarks) << name;
  }
}
