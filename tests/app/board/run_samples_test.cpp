#include "axonn/app/board/run_samples.h"

#include <gmock/gmock.h>

#include "tests/app/board/made_up_run.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;

namespace {

class RunSamplesTest : public testing::Test {
 protected:
  std::vector<std::string> prompts_at(std::int64_t step) const {
    std::vector<std::string> prompts;
    for (const TextSample& one : samples_.at(step)) prompts.push_back(one.prompt);
    return prompts;
  }

  test::TemporaryPath folder_;
  std::string file_ = (make_folders(folder_ / ""), folder_ / "samples.jsonl");
  RunSamples samples_{file_};
};

TEST_F(RunSamplesTest, AreThoseOfTheLastStepUpToOne) {
  samples_.read(1);
  EXPECT_EQ(samples_.last_step(), 0);
  EXPECT_THAT(prompts_at(7), ElementsAre());
  append(file_, sample_line(5, "a") + sample_line(5, "b") + "garbage\n" + sample_line(9, "c") +
                    R"({"step": 9, "pro)");
  samples_.read(1);
  EXPECT_THAT(samples_.steps(), ElementsAre(5, 9));
  EXPECT_THAT(prompts_at(8), ElementsAre("a", "b"));
  EXPECT_THAT(prompts_at(1), ElementsAre("a", "b"));
  EXPECT_THAT(prompts_at(100), ElementsAre("c"));
  append(file_, R"(mpt": "d", "text": 7})"
                "\n");
  samples_.read(1);
  EXPECT_THAT(prompts_at(9), ElementsAre("c", "d"));
  EXPECT_EQ(samples_.at(9)[1].text, "");
  write_file_atomically(file_, sample_line(5, "a"));  // the run resumed
  samples_.read(1);
  EXPECT_THAT(samples_.steps(), ElementsAre(5));
}

TEST_F(RunSamplesTest, OfManyStepsAreThinnedButForTheNewest) {
  std::string lines;
  for (std::int64_t step = 1; step <= 5000; ++step) lines += sample_line(step, "a");
  append(file_, lines);
  samples_.read(1);
  const std::vector<std::int64_t> steps = samples_.steps();
  EXPECT_LE(steps.size(), RunSamples::kMostSteps);
  EXPECT_GE(steps.size(), RunSamples::kMostSteps / 2);
  EXPECT_EQ(steps.front(), 1);
  EXPECT_EQ(steps.back(), 5000);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  for (const std::int64_t step : steps) EXPECT_EQ(samples_.at(step).at(0).step, step);
}

}  // namespace
