#include <stdexcept>
#include <utility>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/device.h"

using namespace axonn;

namespace {

/// Counts its waits. Every wait throws if `fails` is set.
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

TEST(Work, IsDoneIfEmpty) {
  Work work;
  EXPECT_TRUE(work.done());
  work.wait();
}

TEST(Work, WaitsOnceEvenIfWaitIsCalledTwice) {
  const auto state = std::make_shared<CountedState>();
  Work work(state);
  EXPECT_FALSE(work.done());
  work.wait();
  work.wait();
  EXPECT_EQ(state->waits, 1);
  EXPECT_TRUE(work.done());
}

TEST(Work, WaitsInItsDestructorUnlessItWasMovedFrom) {
  const auto state = std::make_shared<CountedState>();
  {
    Work outer;
    {
      Work inner(state);
      outer = std::move(inner);
      EXPECT_TRUE(inner.done());  // NOLINT: a moved-from Work is empty
    }
    EXPECT_EQ(state->waits, 0);
  }
  EXPECT_EQ(state->waits, 1);
}

TEST(Work, WaitsForTheOldOneWhenANewOneIsAssigned) {
  const auto old_state = std::make_shared<CountedState>(),
             new_state = std::make_shared<CountedState>();
  Work work(old_state);
  work = Work(new_state);
  EXPECT_EQ(old_state->waits, 1);
  EXPECT_EQ(new_state->waits, 0);
}

TEST(Work, KeepsABufferUntilTheWait) {
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
  EXPECT_TRUE(seen.expired()) << "a failed collective no longer needs its buffer";
  work.wait();  // throws only once
  { const Work silent(std::make_shared<CountedState>(true)); }
}
