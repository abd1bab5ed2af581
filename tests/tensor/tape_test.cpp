#include "axonn/tensor/tape.h"

#include <memory>

#include <gmock/gmock.h>

using namespace axonn;
using testing::ElementsAre;

TEST(Tape, RunsItsStepsOnceInReverse) {
  Tape tape;
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) tape.record([&ran, i] { ran.push_back(i); });
  EXPECT_EQ(tape.size(), 3);
  tape.backward();
  EXPECT_THAT(ran, ElementsAre(2, 1, 0));
  tape.backward();
  EXPECT_EQ(ran.size(), 3) << "a second backward has nothing to do";
}

TEST(Tape, FreesWhatAStepKeptAsSoonAsItRan) {
  Tape tape;
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = kept;
  bool gone = false;
  tape.record([&] { gone = seen.expired(); });
  tape.record([kept] {});
  kept.reset();
  EXPECT_FALSE(seen.expired());
  tape.backward();
  EXPECT_TRUE(gone) << "the later step's tensor was still there when the earlier step ran";

  kept = std::make_shared<int>(1);
  const std::weak_ptr<int> last = kept;
  tape.record([kept] {});
  kept.reset();
  tape.backward();
  EXPECT_TRUE(last.expired()) << "nothing is kept beyond backward";
}

TEST(Tape, RunsAStepRecordedByAStepNext) {
  Tape tape;
  std::vector<int> ran;
  tape.record([&] { ran.push_back(1); });
  tape.record([&] { tape.record([&] { ran.push_back(2); }); });
  tape.backward();
  EXPECT_THAT(ran, ElementsAre(2, 1));
}
