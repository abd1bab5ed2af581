#include "axonn/ranks/comm/mpi/flow_control.h"

#include <algorithm>
#include <array>
#include <random>

#include <gmock/gmock.h>

using namespace axonn;

namespace {

constexpr int kGroup = 7;

TEST(FlowControl, AllowsTwoLargeCollectivesOfAGroupInFlightInCallOrder) {
  FlowControl flow_control(8, 2);
  EXPECT_TRUE(flow_control.may_begin(kGroup, 0, true));
  EXPECT_TRUE(flow_control.may_begin(kGroup, 1, true));
  EXPECT_FALSE(flow_control.may_begin(kGroup, 2, true));
  EXPECT_FALSE(flow_control.may_begin(kGroup, 3, true));
  flow_control.ended(kGroup, 1, true);
  flow_control.begin_pass();
  EXPECT_TRUE(flow_control.may_begin(kGroup, 2, true));
  EXPECT_FALSE(flow_control.may_begin(kGroup, 3, true));
}

TEST(FlowControl, LetsSmallCollectivesOvertakeWaitingLargeOnes) {
  FlowControl flow_control(8, 1);
  EXPECT_TRUE(flow_control.may_begin(kGroup, 0, true));
  EXPECT_FALSE(flow_control.may_begin(kGroup, 1, true));
  EXPECT_TRUE(flow_control.may_begin(kGroup, 2, false));
}

TEST(FlowControl, NeverMakesAGroupWaitForAnother) {
  FlowControl flow_control(8, 1);
  EXPECT_TRUE(flow_control.may_begin(kGroup, 0, true));
  EXPECT_FALSE(flow_control.may_begin(kGroup, 1, true));
  EXPECT_TRUE(flow_control.may_begin(kGroup + 1, 0, true));
}

TEST(FlowControl, ReservesASlotForTheEarlierCallWhileThatWaits) {
  FlowControl flow_control(2, 1);
  EXPECT_TRUE(flow_control.may_begin(kGroup, 0, true));
  EXPECT_FALSE(flow_control.may_begin(kGroup, 1, true));
  flow_control.ended(kGroup, 0, true);
  flow_control.begin_pass();
  ASSERT_TRUE(flow_control.may_begin(kGroup, 1, true));
  EXPECT_FALSE(flow_control.may_begin(kGroup, 3, false)) << "call 1 holds slot 1";
  EXPECT_FALSE(flow_control.may_begin(kGroup, 4, false)) << "call 3 comes first";
}

/// A call on one of a rank's three groups in a grid with four ranks per row: along x, along y, or
/// all ranks.
struct Made {
  int axis;
  std::int64_t sequence;
  bool large;
};

/// Ranks of a 4 x 3 grid. Each makes the calls of its three groups: those of one group in the same
/// order as the other members, but interleaved with other groups in its own order. A collective
/// ends when it has begun on all members.
class World {
 public:
  static constexpr int kRanks = 12, kCalls = 60;

  explicit World(unsigned seed) : engine_(seed) {
    std::vector<std::vector<bool>> sizes(3);
    for (auto& large : sizes)
      for (int i = 0; i < kCalls; ++i) large.push_back(engine_() % 2);
    for (Rank& rank : ranks_) {
      std::array<int, 3> next{};
      while (std::ranges::min(next) < kCalls) {
        const int axis = static_cast<int>(engine_() % 3);
        if (next[axis] == kCalls) continue;
        rank.calls.push_back({axis, next[axis], sizes[axis][next[axis]]});
        ++next[axis];
      }
    }
  }

  /// Lets random ranks make their next calls and end collectives, until there is no more progress.
  void run() {
    for (int idle = 0; idle < 1000; ++idle) {
      const int r = static_cast<int>(engine_() % kRanks);
      Rank& rank = ranks_[r];
      if (rank.made < rank.calls.size()) {
        rank.waiting.push_back(rank.calls[rank.made++]);
        idle = 0;
      }
      rank.flow_control.begin_pass();
      std::erase_if(rank.waiting, [&](const Made& call) {
        if (!rank.flow_control.may_begin(group(r, call.axis), call.sequence, call.large))
          return false;
        rank.under_way.push_back(call);
        rank.begun[call.axis].push_back(call.sequence);
        return true;
      });
      const auto ended = std::erase_if(rank.under_way, [&](const Made& call) {
        if (!begun_everywhere(r, call)) return false;
        rank.flow_control.ended(group(r, call.axis), call.sequence, call.large);
        return true;
      });
      if (ended > 0) idle = 0;
    }
  }

  std::size_t left() const {
    std::size_t left = 0;
    for (const Rank& rank : ranks_)
      left += rank.calls.size() - rank.made + rank.waiting.size() + rank.under_way.size();
    return left;
  }

 private:
  struct Rank {
    FlowControl flow_control{4, 2};
    std::vector<Made> calls, waiting, under_way;
    std::size_t made = 0;
    std::array<std::vector<std::int64_t>, 3> begun;
  };
  static int group(int rank, int axis) { return std::array{rank / 4, 10 + rank % 4, 20}[axis]; }
  bool begun_everywhere(int r, const Made& call) const {
    for (int other = 0; other < kRanks; ++other)
      if (group(other, call.axis) == group(r, call.axis) &&
          !std::ranges::count(ranks_[other].begun[call.axis], call.sequence))
        return false;
    return true;
  }

  std::mt19937 engine_;
  std::array<Rank, kRanks> ranks_;
};

TEST(FlowControl, NeverDeadlocksWhateverTheOrderInWhichRanksCallTheirGroups) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    World world(seed);
    world.run();
    ASSERT_EQ(world.left(), 0) << "seed " << seed;
  }
}

}  // namespace
