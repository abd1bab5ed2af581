#include "axonn/plan/planner/simulate.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

namespace {

/// An operation takes as many seconds as its flops, a collective as its bytes. Collectives of z and
/// data leave the node.
struct Fixed final : Costs {
  double latency_s = 0;
  Slowdowns both = {};
  double late_s = 0;  // for each second and collective

  double compute_s(const Recording::Compute& op) const override { return op.flops; }
  CollectiveCost collective(const Recording::Start& start) const override {
    return {.latency_s = latency_s,
            .link_s = static_cast<double>(start.bytes),
            .leaves_node = start.group == "z" || start.group == "data"};
  }
  double lateness_s(double computed_s, double collectives) const override {
    return late_s * computed_s * collectives;
  }
  Slowdowns slowdowns() const override { return both; }
};

/// Builds a recording, one event per call.
class Program {
 public:
  Program& compute(double seconds, OperationKind kind = OperationKind::product) {
    recording_.events.emplace_back(Recording::Compute{
        .operation = {}, .kind = kind, .layer = {}, .operands = {}, .flops = seconds});
    return *this;
  }
  Program& start(const char* group, const char* operation, std::int64_t seconds) {
    recording_.events.emplace_back(Recording::Start{
        .group = group, .ranks = 2, .operation = operation, .label = {}, .bytes = seconds});
    return *this;
  }
  /// Waits for the collective that event `started` starts.
  Program& wait(std::size_t started) {
    recording_.events.emplace_back(Recording::Wait{started});
    return *this;
  }
  StepTime play(const Costs& costs = Fixed()) const { return simulate(recording_, costs); }

 private:
  Recording recording_;
};

/// Sums of a few round numbers.
constexpr double kRounding = 1e-9;
auto near(double value) { return DoubleNear(value, kRounding); }

}  // namespace

TEST(Simulate, ACollectiveIsExposedOnlyWhileNoComputeHidesIt) {
  const StepTime time = Program().start("z", "all_gather", 5).compute(3).wait(0).compute(1).play();
  EXPECT_THAT(time.step_s, near(6));
  EXPECT_THAT(time.compute_s, near(4));
  EXPECT_THAT(time.exposed_by, UnorderedElementsAre(Pair("z all_gather", near(2))));
  EXPECT_THAT(time.comm_by, UnorderedElementsAre(Pair("z all_gather", near(5))));
}

TEST(Simulate, AWaitForAFinishedCollectiveCostsNothing) {
  const StepTime time = Program().start("z", "all_gather", 2).compute(3).wait(0).play();
  EXPECT_THAT(time.step_s, near(3));
  EXPECT_THAT(time.exposed_s(), near(0));
}

TEST(Simulate, ADisksTransfersHideBehindComputeThatTheyDoNotSlow) {
  Fixed costs;
  costs.both = {.of_compute = 0.5, .of_collective = 1};
  costs.late_s = 0.1;
  const StepTime read =
      Program().start("disk", "transfer", 5).compute(3).wait(0).compute(1).play(costs);
  EXPECT_THAT(read.step_s, near(6));
  EXPECT_THAT(read.exposed_by, UnorderedElementsAre(Pair("disk transfer", near(2))));
  // What is written is not waited for, but a step lasts as long as its disk works.
  const StepTime write =
      Program().start("disk", "transfer", 2).compute(3).start("disk", "transfer", 7).play(costs);
  EXPECT_THAT(write.step_s, near(10));
  EXPECT_THAT(write.compute_s, near(3));
}

TEST(Simulate, AWaitForADiskLeavesTheLatenessOfRanksToTheNextCollective) {
  Fixed costs;
  costs.late_s = 0.1;
  const StepTime time = Program()
                            .start("disk", "transfer", 1)
                            .compute(3)
                            .wait(0)
                            .start("x", "all_reduce", 0)
                            .wait(3)
                            .play(costs);
  EXPECT_THAT(time.exposed_by.at(kLateRanks), near(0.3));
  EXPECT_THAT(time.step_s, near(3.3));
}

TEST(Simulate, CollectivesOfOneGroupAndOperationRunOneAfterAnother) {
  const StepTime time =
      Program().start("x", "all_gather", 2).start("x", "all_gather", 3).wait(1).wait(0).play();
  EXPECT_THAT(time.step_s, near(5));
}

TEST(Simulate, CollectivesInsideANodeAndOfOtherOperationsRunAtTheSameTime) {
  EXPECT_THAT(Program()
                  .start("x", "all_gather", 2)
                  .start("y", "all_gather", 3)
                  .wait(0)
                  .wait(1)
                  .play()
                  .step_s,
              near(3));
  EXPECT_THAT(Program()
                  .start("x", "all_gather", 2)
                  .start("x", "reduce_scatter", 3)
                  .wait(0)
                  .wait(1)
                  .play()
                  .step_s,
              near(3));
}

TEST(Simulate, CollectivesThatLeaveTheNodeShareItsLinks) {
  // Two of 2 and 6 seconds: each at half speed until the first ends after 4 s, then 4 s for the
  // rest of the other.
  const StepTime time =
      Program().start("z", "all_gather", 2).start("data", "all_gather", 6).wait(0).wait(1).play();
  EXPECT_THAT(time.exposed_by, UnorderedElementsAre(Pair("z all_gather", near(4)),
                                                    Pair("data all_gather", near(4))));
  EXPECT_THAT(time.step_s, near(8));
  EXPECT_THAT(time.comm_by.at("data all_gather"), near(8));
  EXPECT_THAT(time.alone_by.at("data all_gather"), near(6));
}

TEST(Simulate, ACollectiveDoesNotUseTheLinksDuringItsLatency) {
  Fixed costs;
  costs.latency_s = 2;
  // z uses the links from 2 s to 4 s, data from 4 s to 5 s: never both.
  const StepTime time = Program()
                            .start("z", "all_gather", 2)
                            .compute(2)
                            .start("data", "all_gather", 1)
                            .wait(0)
                            .wait(2)
                            .play(costs);
  EXPECT_THAT(time.step_s, near(5));
}

TEST(Simulate, ComputeIsSlowerOnlyDuringACollective) {
  Fixed costs;
  costs.both.of_compute = 0.5;
  // The 3 seconds of the collective do 2 seconds of compute; the other 2 follow at full speed.
  const StepTime time = Program().start("x", "all_gather", 3).compute(4).wait(0).play(costs);
  EXPECT_THAT(time.compute_s, near(5));
  EXPECT_THAT(time.exposed_s(), near(0));
}

TEST(Simulate, EachCollectiveUnderWaySlowsCompute) {
  Fixed costs;
  costs.both.of_compute = 0.5;
  // Two collectives: 2 seconds do 1 second of compute. Then one: 1.5 seconds do another.
  const StepTime time = Program()
                            .start("x", "all_gather", 2)
                            .start("x", "reduce_scatter", 4)
                            .compute(2)
                            .wait(0)
                            .wait(1)
                            .play(costs);
  EXPECT_THAT(time.compute_s, near(3.5));
  EXPECT_THAT(time.step_s, near(4));
}

TEST(Simulate, EveryWaitWaitsForLateRanksWhileTheCollectiveContinues) {
  Fixed costs;
  costs.late_s = 0.5;
  // After 2 s of computation the last rank is 1 s late; then 1 s of the collective is left. The
  // second wait follows without computation, the third after 4 s of it.
  const StepTime time = Program()
                            .start("z", "all_gather", 4)
                            .compute(2)
                            .wait(0)
                            .start("x", "all_reduce", 3)
                            .wait(3)
                            .start("x", "all_reduce", 1)
                            .compute(4)
                            .wait(5)
                            .play(costs);
  EXPECT_THAT(time.exposed_by,
              UnorderedElementsAre(Pair("z all_gather", near(1)), Pair("x all_reduce", near(3)),
                                   Pair(kLateRanks, near(3))));
  EXPECT_THAT(time.late_by,
              UnorderedElementsAre(Pair("z all_gather", near(1)), Pair("x all_reduce", near(2))));
  EXPECT_THAT(time.step_s, near(2 + 1 + 1 + 3 + 4 + 2));
}

TEST(Simulate, ACollectiveThatAStepLeavesOverlapsTheNextStep) {
  // Weights are gathered for 5 s from the step's end on; the next step needs them after 3 s.
  const StepTime time =
      Program().compute(3).wait(3).compute(4).start("data", "all_gather", 5).play();
  EXPECT_THAT(time.step_s, near(9));
  EXPECT_THAT(time.exposed_by, UnorderedElementsAre(Pair("data all_gather", near(2))));
  EXPECT_THAT(time.compute_s, near(7));
}

TEST(Simulate, TheStepEndsAfterCollectivesWithoutAWait) {
  const StepTime time = Program().start("z", "reduce_scatter", 5).compute(1).play();
  EXPECT_THAT(time.step_s, near(5));
  EXPECT_THAT(time.exposed_s(), near(4));
}

TEST(Simulate, ComputeByKindAndExposedTimesAddUpToTheStep) {
  const StepTime time = Program()
                            .compute(1, OperationKind::product)
                            .compute(2, OperationKind::attention)
                            .compute(3, OperationKind::attention)
                            .start("y", "all_reduce", 4)
                            .compute(0.25, OperationKind::rowwise)
                            .compute(0.25, OperationKind::device)
                            .wait(3)
                            .compute(5, OperationKind::update)
                            .compute(6, OperationKind::update)
                            .play();
  EXPECT_THAT(time.compute_by,
              UnorderedElementsAre(Pair("products", near(1)), Pair("attention", near(5)),
                                   Pair("row-wise", near(0.5)), Pair("optimizer", near(11))));
  EXPECT_THAT(time.compute_s + time.exposed_s(), near(time.step_s));
}

TEST(Simulate, ThrowsIfAWaitDoesNotReferToAStart) {
  EXPECT_THAT([] { Program().compute(1).wait(0).play(); },
              ThrowsMessage<Error>(HasSubstr("event 0, which is not a Start")));
  EXPECT_THAT([] { Program().wait(7).play(); }, ThrowsMessage<Error>(HasSubstr("event 7")));
}
