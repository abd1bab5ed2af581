// The probes of many ranks, without MPI: messages arrive in the order in which they are sent.
#include "axonn/ranks/comm/mpi/mpi_prober.h"

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

using namespace axonn;

namespace {

class ProbedRanks {
 public:
  /// awaited[r] is the rank for which rank r waits, -1 if it computes.
  explicit ProbedRanks(std::vector<int> awaited)
      : awaited_(std::move(awaited)), found_(awaited_.size()) {
    const int size = static_cast<int>(awaited_.size());
    for (int rank = 0; rank < size; ++rank)
      probers_.push_back(std::make_unique<MpiProber>(
          rank,
          MpiProber::Handlers{.send =
                                  [this, rank](const MpiNote& note, int to) {
                                    ++messages_;
                                    in_flight_.push_back({note, rank, to});
                                  },
                              .found = [this, rank](MpiProbe& probe) { found_[rank] = probe; },
                              .state =
                                  [this, rank](const MpiCall& call) {
                                    return MpiRankState{.awaited = awaited_[rank], .in = call};
                                  }}));
  }

  void ask(int rank, std::size_t most_waits = MpiProbe().most_waits) {
    auto probe = std::make_shared<MpiProbe>();
    probe->most_waits = most_waits;
    probers_[rank]->ask(std::move(probe));
  }

  /// Delivers all messages, those to `silent` excepted.
  void deliver(int silent = -1) {
    for (; !in_flight_.empty(); in_flight_.pop_front()) {
      const Flight first = in_flight_.front();
      if (first.to != silent) probers_[first.to]->take(first.note, first.from);
    }
  }

  int messages() const { return messages_; }
  const std::optional<MpiProbe>& found(int rank) const { return found_[rank]; }

 private:
  struct Flight {
    MpiNote note;
    int from, to;
  };
  std::vector<int> awaited_;
  std::vector<std::unique_ptr<MpiProber>> probers_;
  std::vector<std::optional<MpiProbe>> found_;
  std::deque<Flight> in_flight_;
  int messages_ = 0;
};

/// Rank r waits for rank r + 1, the last one for none.
std::vector<int> chain(int ranks) {
  std::vector<int> awaited;
  for (int rank = 1; rank < ranks; ++rank) awaited.push_back(rank);
  awaited.push_back(-1);
  return awaited;
}

}  // namespace

TEST(MpiProber, SendsMessagesInProportionToTheRanksThatWaitForOne) {
  for (const int size : {8, 64, 512}) {
    std::vector<int> awaited(size, 0);  // all wait for rank 0, which tokenizes
    awaited[0] = -1;
    ProbedRanks ranks(awaited);
    for (int round = 1; round <= 3; ++round) {
      for (int rank = 1; rank < size; ++rank) ranks.ask(rank);
      ranks.deliver();
      EXPECT_EQ(ranks.messages(), round * 2 * (size - 1)) << size << " ranks";
    }
    EXPECT_EQ(ranks.found(size - 1)->waits.back().awaited, 0);
  }
}

TEST(MpiProber, AsksARankThatDoesNotAnswerOnce) {
  ProbedRanks ranks({1, -1});
  for (int round = 0; round < 100; ++round) {
    ranks.ask(0);
    ranks.deliver(1);
  }
  EXPECT_EQ(ranks.messages(), 1);
}

TEST(MpiProber, CutsALongChainUnlessItMayFollowAll) {
  constexpr int kRanks = 1000;
  const int most = static_cast<int>(MpiProbe().most_waits);
  ProbedRanks ranks(chain(kRanks));
  for (int rank = 0; rank < kRanks - 1; ++rank) ranks.ask(rank);
  ranks.deliver();
  EXPECT_LE(ranks.messages(), 2 * most * kRanks);
  EXPECT_TRUE(ranks.found(0)->cut);
  const MpiProbe& near = *ranks.found(kRanks - most);  // it ends the world
  EXPECT_FALSE(near.cut);
  EXPECT_EQ(near.waits.back().awaited, kRanks - 1);
  EXPECT_EQ(near.culprit.state, Culprit::State::running);

  ranks.ask(0, kRanks);
  ranks.deliver();
  EXPECT_FALSE(ranks.found(0)->cut);
  EXPECT_EQ(std::ssize(ranks.found(0)->waits), kRanks - 1);
  EXPECT_EQ(ranks.found(0)->culprit.state, Culprit::State::running);
}

TEST(MpiProber, FollowsALongCircleOnce) {
  constexpr int kRanks = 500;
  std::vector<int> circle = chain(kRanks);
  circle.back() = 0;
  ProbedRanks ranks(circle);
  ranks.ask(3, kRanks);
  ranks.deliver();
  EXPECT_LE(ranks.messages(), 2 * kRanks);
  EXPECT_FALSE(ranks.found(3)->cut);
  EXPECT_EQ(ranks.found(3)->culprit.state, Culprit::State::waiting);
}
