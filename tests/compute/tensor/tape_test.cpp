#include "axonn/compute/tensor/tape.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>

using namespace axonn;
using testing::ElementsAre;

TEST(Tape, RunsItsStepsOnceInReverse) {
  Tape tape;
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) tape.record([&ran, i] { ran.push_back(i); });
  tape.backward();
  EXPECT_THAT(ran, ElementsAre(2, 1, 0));
  tape.backward();
  EXPECT_EQ(ran.size(), 3) << "a second backward has nothing to do";
}

TEST(Tape, FreesAStepsTensorsAsSoonAsItHasRun) {
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

TEST(Tape, RunsAStepThatAnotherStepRecordedNext) {
  Tape tape;
  std::vector<int> ran;
  tape.record([&] { ran.push_back(1); });
  tape.record([&] { tape.record([&] { ran.push_back(2); }); });
  tape.backward();
  EXPECT_THAT(ran, ElementsAre(2, 1));
}

TEST(Tape, LetsLanesTakeTurnsFromPauseToPause) {
  Tape tape;
  std::vector<std::string> ran;
  const auto step = [&ran](std::string name) { return [&ran, name] { ran.push_back(name); }; };
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string lane(1, static_cast<char>('a' + i));
    tape.lane(i).record(step(lane + "0"));
    tape.lane(i).pause();
    tape.lane(i).record(step(lane + "1"));
    tape.lane(i).record(step(lane + "2"));
  }
  tape.backward();
  EXPECT_THAT(ran, ElementsAre("a2", "a1", "b2", "b1", "a0", "b0"));
}

TEST(Tape, PausesALaneInTheMiddleOfItsBranch) {
  Tape tape;
  std::vector<int> ran;
  for (int i = 0; i < 2; ++i) {
    const auto branch = tape.lane(i).branch();
    branch->record([&ran, i] { ran.push_back(10 + i); });
    branch->pause();
    branch->record([&ran, i] { ran.push_back(20 + i); });
  }
  tape.backward();
  EXPECT_THAT(ran, ElementsAre(20, 21, 10, 11));
}

TEST(Tape, RunsItsOwnStepsBetweenTheLanesRecordedBeforeAndAfter) {
  Tape tape;
  std::vector<int> ran;
  const auto record = [&ran](Tape& on, int step) {
    on.record([&ran, step] { ran.push_back(step); });
  };
  for (int i = 0; i < 2; ++i) {
    record(tape.lane(i), 1);
    tape.lane(i).pause();
  }
  record(tape, 2);
  for (int i = 0; i < 2; ++i) {
    tape.lane(i).pause();
    record(tape.lane(i), 3);
  }
  tape.backward();
  EXPECT_THAT(ran, ElementsAre(3, 3, 2, 1, 1));
}

TEST(Tape, RunsAStepOfTheLastLaneAfterAllLanesArriveAndOneOfTheFirstBeforeAnyContinues) {
  Tape tape;
  std::vector<int> ran;
  const auto record = [&ran](Tape& on, int step) {
    on.record([&ran, step] { ran.push_back(step); });
  };
  EXPECT_EQ(&tape.first_lane(), &tape) << "there are no lanes yet";
  EXPECT_EQ(&tape.last_lane(), &tape);
  const auto layer = [&](int step) {
    for (int i = 0; i < 3; ++i) {
      tape.lane(i).pause();
      record(tape.lane(i), step);
    }
  };
  layer(1);
  record(tape.last_lane(), 20);
  record(tape.first_lane(), 10);
  layer(2);
  tape.backward();
  EXPECT_THAT(ran, ElementsAre(2, 2, 2, 10, 1, 1, 20, 1));
}
