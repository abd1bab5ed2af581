#include "axonn/tensor/work.h"

#include <stdexcept>
#include <utility>

#include <gmock/gmock.h>

using namespace axonn;

namespace {

/// Counts its waits, the first of which may throw.
class CountedState : public Work::State {
 public:
  explicit CountedState(bool fails = false) : fails_(fails) {}
  void wait() override {
    ++waits;
    if (fails_) throw std::runtime_error("lost");
  }
  bool done() override { return waits > 0; }

  int waits = 0;

 private:
  bool fails_;
};

}  // namespace

TEST(Work, ThatIsEmptyIsDone) {
  Work work;
  EXPECT_TRUE(work.done());
  work.wait();
}

TEST(Work, WaitsOnceHoweverOftenItIsAsked) {
  const auto state = std::make_shared<CountedState>();
  Work work(state);
  EXPECT_FALSE(work.done());
  work.wait();
  work.wait();
  EXPECT_EQ(state->waits, 1);
  EXPECT_TRUE(work.done());
}

TEST(Work, WaitsInItsDestructorUnlessItWasMovedAway) {
  const auto state = std::make_shared<CountedState>();
  {
    Work outer;
    {
      Work inner(state);
      outer = std::move(inner);
      EXPECT_TRUE(inner.done());  // NOLINT: moved-from is empty, as the header says of handles
    }
    EXPECT_EQ(state->waits, 0);
  }
  EXPECT_EQ(state->waits, 1);
}

TEST(Work, WaitsForTheOldOneWhenANewOneTakesItsPlace) {
  const auto old_state = std::make_shared<CountedState>(),
             new_state = std::make_shared<CountedState>();
  Work work(old_state);
  work = Work(new_state);
  EXPECT_EQ(old_state->waits, 1);
  EXPECT_EQ(new_state->waits, 0);
}

TEST(Work, KeepsABufferUntilItIsDone) {
  auto buffer = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = buffer;
  Work work(std::make_shared<CountedState>());
  work.keep(std::move(buffer));
  Work moved = std::move(work), assigned;
  assigned = std::move(moved);
  EXPECT_FALSE(seen.expired());
  assigned.wait();
  EXPECT_TRUE(seen.expired());
}

TEST(Work, ThrowsFromWaitAndNotFromItsDestructor) {
  const auto state = std::make_shared<CountedState>(true);
  auto buffer = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = buffer;
  Work work(state);
  work.keep(std::move(buffer));
  EXPECT_THROW(work.wait(), std::runtime_error);
  EXPECT_TRUE(seen.expired()) << "what failed needs its buffer no more";
  work.wait();  // it has told
  { const Work silent(std::make_shared<CountedState>(true)); }
}
