// Which older checkpoints of a run stay: checkpoint.keep and checkpoint.keep_factor.
#include <algorithm>

#include <gmock/gmock.h>

#include "axonn/data/storage/checkpoint/checkpoint_saver.h"

using namespace axonn;
using testing::ElementsAre;

namespace {

/// The checkpoints that stay of a run with one each `every` steps, which prunes after each.
std::vector<std::int64_t> kept_of_run(std::int64_t steps, std::int64_t every, std::int64_t keep,
                                      double factor) {
  std::vector<std::int64_t> kept;
  for (std::int64_t step = every; step <= steps; step += every) {
    kept.push_back(step);
    kept = steps_to_keep(kept, keep, factor);
  }
  return kept;
}

}  // namespace

TEST(StepsToKeep, AreTheNewestWithoutAFactor) {
  EXPECT_THAT(steps_to_keep({30, 10, 40, 20}, 2, 0), ElementsAre(30, 40));
  EXPECT_THAT(steps_to_keep({30, 10, 40, 20}, 0, 2), ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(steps_to_keep({10}, 2, 2), ElementsAre(10));
  EXPECT_THAT(steps_to_keep({}, 2, 2), ElementsAre());
}

TEST(StepsToKeep, BoundTheStepsThatGoingBackRepeatsByTheFactor) {
  for (const double factor : {1.25, 1.5, 2.0, 4.0})
    for (const std::int64_t every : {1, 7, 10})
      for (std::int64_t steps = every; steps <= 100 * every; steps += every) {
        const auto kept = kept_of_run(steps, every, 1, factor);
        for (std::int64_t first = 1; first <= steps; ++first) {  // the step to go back before
          std::int64_t from = 0;
          for (const std::int64_t step : kept)
            if (step < first) from = step;
          const std::int64_t since = steps - first + 1, repeated = steps - from;
          ASSERT_LE(static_cast<double>(repeated), std::max(factor * static_cast<double>(since),
                                                            static_cast<double>(since + every - 1)))
              << "factor " << factor << ", step " << first << " of " << steps;
        }
        ASSERT_LE(std::ssize(kept), 1 + most_spaced(steps, every, factor))
            << "factor " << factor << ", every " << every << ", " << steps << " steps";
      }
}

TEST(StepsToKeep, AreFewOfALongRun) {
  EXPECT_LE(kept_of_run(10'000, 1, 2, 2).size(), 2 + 30);
  EXPECT_GE(kept_of_run(10'000, 1, 2, 2).size(), 2 + 10);
}
