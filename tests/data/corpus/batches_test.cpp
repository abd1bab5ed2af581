#include "axonn/data/corpus/batches.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <span>
#include <thread>

#include <gmock/gmock.h>

#include "axonn/data/corpus/goldfish.h"
#include "axonn/data/corpus/packed_stream.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

constexpr std::int64_t kLength = 4;

/// Sequence n has the ids 4 n, 4 n + 1, ...; each target is the next id. Reading takes some time,
/// and sequence `bad` cannot be read.
class Counted : public Sequences {
 public:
  explicit Counted(double seconds = 0, std::int64_t bad = -1) : seconds_(seconds), bad_(bad) {}

  std::int64_t count() const override { return 1'000; }
  void read(std::int64_t n, Sequence& to) const override {
    ++reads;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
    if (n == bad_) refuse("sequence ", n, " is damaged");
    to.ids.resize(kLength);
    std::iota(to.ids.begin(), to.ids.end(), static_cast<std::int32_t>(n * kLength));
    to.targets.resize(kLength);
    std::iota(to.targets.begin(), to.targets.end(), to.ids.front() + 1);
  }
  Size size(std::int64_t) const override { return {kLength, kLength}; }
  std::string where(std::int64_t) const override { return "nowhere"; }

  mutable std::atomic<int> reads = 0;

 private:
  double seconds_;
  std::int64_t bad_;
};

/// The first ids of each sequence of a batch.
std::vector<std::vector<std::int64_t>> sequences_of(const Batch& batch) {
  std::vector<std::vector<std::int64_t>> all;
  for (const MicroBatch& micro : batch.micro_batches) {
    all.emplace_back();
    for (std::int64_t i = 0; i < micro.sequences; ++i)
      all.back().push_back(micro.rows.ids[i * kLength] / kLength);
  }
  return all;
}

BatchOptions options(int coordinate, int coordinates, std::int64_t end = 0) {
  return {.seq_len = kLength,
          .global_batch = 12,
          .micro_batch = 2,
          .coordinate = coordinate,
          .coordinates = coordinates,
          .end = end};
}

}  // namespace

TEST(Batches, GiveEachCoordinateItsRunOfTheStepsSequences) {
  for (const int ahead : {0, 1, 2}) {
    BatchOptions second = options(1, 3);
    second.ahead = ahead;
    Batches batches(std::make_shared<Counted>(), SequenceMask(), second);
    for (const std::int64_t step : {0, 1, 2, 7, 7, 3}) {  // in order, jumping, again, back
      const auto batch = batches.at(step);
      const std::int64_t first = 12 * step + 4;
      EXPECT_THAT(sequences_of(*batch),
                  ElementsAre(ElementsAre(first, first + 1), ElementsAre(first + 2, first + 3)));
      EXPECT_EQ(batch->micro_batches[1].first, first + 2);
      EXPECT_EQ(batch->counted, 4 * kLength);
      EXPECT_EQ(batch->whole.targets, 12 * kLength);
    }
  }
}

TEST(Batches, OfAnEndCoverEverySequenceBeforeItOnce) {
  for (const int coordinates : {1, 2, 3}) {
    std::vector<std::int64_t> targets;
    std::int64_t whole = 0;
    for (int coordinate = 0; coordinate < coordinates; ++coordinate) {
      Batches batches(std::make_shared<Counted>(), SequenceMask(),
                      options(coordinate, coordinates, 29));
      EXPECT_EQ(batches.steps(), 3);
      for (std::int64_t step = 0; step < batches.steps(); ++step) {
        const auto batch = batches.at(step);
        if (coordinate == 0) whole += batch->whole.targets;
        for (const MicroBatch& micro : batch->micro_batches)
          for (const std::int32_t target : micro.rows.targets)
            if (target >= 0) targets.push_back(target);
      }
    }
    std::ranges::sort(targets);
    ASSERT_EQ(targets.size(), 29u * kLength) << coordinates;
    EXPECT_EQ(whole, 29 * kLength);
    for (std::size_t i = 0; i < targets.size(); ++i) EXPECT_EQ(targets[i], i + 1);
  }
}

TEST(Batches, ThatTheCoordinatesDoNotDivideEndWithPadding) {
  std::vector<std::vector<std::int64_t>> ids, real;
  for (int coordinate = 0; coordinate < 4; ++coordinate) {
    BatchOptions some = options(coordinate, 4);
    some.global_batch = 9;  // two micro-batches of two sequences each: 16 coordinates
    Batches batches(std::make_shared<Counted>(), SequenceMask(), some);
    const auto batch = batches.at(1);
    EXPECT_EQ(batch->whole.targets, 9 * kLength);
    EXPECT_EQ(batch->end, 18);
    EXPECT_EQ(batches.first_here(1), 9 + 4 * coordinate);
    ASSERT_EQ(batch->micro_batches.size(), 2u);
    std::int64_t here = 0;
    for (const MicroBatch& micro : batch->micro_batches) {
      EXPECT_TRUE(micro.may_pad);
      ids.emplace_back();
      real.emplace_back();
      for (std::int64_t i = 0; i < 2; ++i) {
        ids.back().push_back(micro.rows.ids[i * kLength] / kLength);
        const std::span<const std::int32_t> targets(&micro.rows.targets[i * kLength], kLength);
        if (std::ranges::count(targets, kPaddingTarget) == kLength) continue;
        real.back().push_back(micro.first + i);
        ++here;
      }
    }
    EXPECT_EQ(batch->counted, here * kLength);
    EXPECT_EQ(batch->targets, here * kLength);
    EXPECT_EQ(batch->inputs, here * kLength);
  }
  using Sequences = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(
      ids,
      (Sequences{{9, 10}, {11, 12}, {13, 14}, {15, 16}, {17, 17}, {17, 17}, {17, 17}, {17, 17}}));
  EXPECT_EQ(real, (Sequences{{9, 10}, {11, 12}, {13, 14}, {15, 16}, {17}, {}, {}, {}}));
}

TEST(Batches, OfPaddingAreNotMasked) {
  BatchOptions some = options(1, 2);
  some.global_batch = 3;
  some.micro_batch = 2;
  const auto all = [](std::int64_t, Sequence& one) { std::ranges::fill(one.targets, -1); };
  Batches batches(std::make_shared<Counted>(), all, some);
  const std::vector<std::int32_t>& targets = batches.at(0)->micro_batches.at(0).rows.targets;
  EXPECT_EQ(std::ranges::count(targets, -1), kLength);
  EXPECT_EQ(std::ranges::count(targets, kPaddingTarget), kLength);
}

TEST(Batches, AreReadAheadWhileTheCallerComputes) {
  const auto slow = std::make_shared<Counted>(0.001);
  Batches batches(slow, SequenceMask(), options(0, 1));
  batches.at(0);
  while (slow->reads < 3 * 12) std::this_thread::yield();  // steps 1 and 2, which nobody asked for
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(slow->reads, 3 * 12) << "read more than two steps ahead";
  batches.at(1);
  EXPECT_LE(slow->reads, 4 * 12);
}

TEST(Batches, ThrowOnlyIfTheDamagedStepIsAskedFor) {
  for (const int ahead : {0, 2}) {
    BatchOptions all = options(0, 1);
    all.ahead = ahead;
    Batches batches(std::make_shared<Counted>(0, 30), SequenceMask(), all);
    EXPECT_NO_THROW(batches.at(0));
    EXPECT_NO_THROW(batches.at(1));
    EXPECT_THAT([&] { batches.at(2); }, ThrowsMessage<UsageError>(HasSubstr("sequence 30")));
    EXPECT_THAT([&] { batches.at(2); }, ThrowsMessage<UsageError>(HasSubstr("sequence 30")));
    EXPECT_NO_THROW(batches.at(3));
  }
}

TEST(Batches, ReadEverySequenceOnceWithTheGoldfishLoss) {
  const auto sequences = std::make_shared<Counted>();
  BatchOptions one = options(0, 1);
  Batches batches(sequences, goldfish_mask({.k = 2, .h = 1}, 1, -1), one);
  for (std::int64_t step = 0; step < 3; ++step) {
    const auto batch = batches.at(step);
    std::int64_t counted = 0;
    for (const MicroBatch& micro : batch->micro_batches)
      counted += std::ranges::count_if(micro.rows.targets, [](auto target) { return target >= 0; });
    EXPECT_EQ(batch->counted, counted);
    EXPECT_LT(counted, 12 * kLength);
    EXPECT_EQ(batch->whole.targets, 12 * kLength);
  }
  while (sequences->reads < 5 * 12) std::this_thread::yield();
  EXPECT_EQ(sequences->reads, 5 * 12);
}

TEST(Batches, BeginAtAnySequenceWhateverWasReadBefore) {
  for (const int ahead : {0, 2}) {
    BatchOptions one = options(0, 6);
    one.ahead = ahead;
    Batches batches(std::make_shared<Counted>(), SequenceMask(), one);
    batches.at(3);
    for (const std::int64_t first : {7, 0, 31}) {
      batches.begin_at(3, first);
      for (const std::int64_t step : {3, 5})
        EXPECT_THAT(sequences_of(*batches.at(step)),
                    ElementsAre(ElementsAre(first + 12 * (step - 3), first + 12 * (step - 3) + 1)));
      EXPECT_THAT([&] { batches.at(2); },
                  ThrowsMessage<Error>(HasSubstr("step 2 comes before the first, 3")));
    }
  }
}

TEST(BatchStages, LastUntilTheirSequencesAreConsumedWhereverARunBegins) {
  // Step by step: a stage ends with the first step that begins at or beyond `until`.
  const std::vector<BatchStage> all{
      {.batch = 4, .until = 10}, {.batch = 6, .until = 11}, {.batch = 8, .until = 40}, {12}};
  for (const std::int64_t begin : {0, 3, 10, 11, 12, 39, 40, 100}) {
    BatchStages stages(all);
    stages.begin_at(5, begin);
    std::int64_t consumed = begin;
    for (std::int64_t step = 5; step < 30; ++step) {
      std::int64_t batch = 12;
      for (std::size_t i = 3; i-- > 0;)
        if (consumed < all[i].until) batch = all[i].batch;
      EXPECT_EQ(stages.batch_of(step), batch) << begin << ", step " << step;
      EXPECT_EQ(stages.consumed_before(step), consumed) << begin << ", step " << step;
      consumed += batch;
    }
    EXPECT_EQ(stages.consumed_before(0), begin);
  }
}

TEST(Batches, OfStagesShareEachStepsSequencesAndGoOnInTheOrder) {
  for (const int coordinate : {0, 1}) {
    BatchOptions some = options(coordinate, 2);
    some.stages = {{.batch = 4, .until = 6}, {.batch = 8}};
    Batches batches(std::make_shared<Counted>(), SequenceMask(), some);
    EXPECT_THAT(sequences_of(*batches.at(1)),
                ElementsAre(ElementsAre(4 + 2 * coordinate, 5 + 2 * coordinate)));
    const std::int64_t first = 8 + 4 * coordinate;
    EXPECT_THAT(sequences_of(*batches.at(2)),
                ElementsAre(ElementsAre(first, first + 1), ElementsAre(first + 2, first + 3)));
    EXPECT_EQ(batches.at(2)->whole.targets, 8 * kLength);
    // An order that began anew has the batches of all that was consumed.
    batches.begin_at(3, 16, {0});
    EXPECT_EQ(batches.first_of(4), 8);
    EXPECT_EQ(batches.consumed_before(4), 24);
    batches.begin_at(3, 2);
    EXPECT_EQ(batches.batch_of(3), 4);
  }
}

TEST(Batches, TakeEachSourceFromItsFirstStepAndGoOnInItsOrder) {
  // The second source's sequences are half as long: two take the coordinate of one.
  const auto whole = std::make_shared<Counted>(), halves = std::make_shared<Counted>();
  for (const int coordinate : {0, 1}) {
    BatchOptions some = options(coordinate, 2);
    some.global_batch = 4;
    Batches batches({{.name = "whole", .first_step = 0, .sequences = whole},
                     {.name = "halves", .first_step = 2, .sequences = halves, .in_one = 2},
                     {.name = "end", .first_step = 5, .sequences = whole}},
                    some);
    const auto first_of = [&](std::int64_t n) { return sequences_of(*batches.at(n)).front(); };
    EXPECT_THAT(first_of(1), ElementsAre(4 + 2 * coordinate, 5 + 2 * coordinate));
    EXPECT_EQ(batches.at(1)->micro_batches.front().sequences, 2);
    const std::int64_t second = 4 * coordinate;
    EXPECT_THAT(first_of(2), ElementsAre(second, second + 1, second + 2, second + 3));
    EXPECT_EQ(batches.at(2)->micro_batches.front().sequences, 4);
    EXPECT_EQ(batches.at(4)->micro_batches.front().first, 16 + second);
    EXPECT_EQ(batches.source_of(4).name, "halves");
    EXPECT_THAT(first_of(6), ElementsAre(4 + 2 * coordinate, 5 + 2 * coordinate));
    for (const auto& [n, done] : std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>>{
             {0, {0, 0, 0}}, {2, {8, 0, 0}}, {4, {8, 16, 0}}, {7, {8, 24, 8}}})
      for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(batches.done(s, n), done[s]) << n << ' ' << s;

    // Resumed in the second source, which has done more than its steps say, and by other steps.
    batches.begin_at(3, 100, {50, 70, 30});
    EXPECT_EQ(batches.first_of(3), 70);
    EXPECT_EQ(batches.first_of(4), 78);
    EXPECT_EQ(batches.first_of(5), 30);
    EXPECT_EQ(batches.consumed_before(5), 108);
    EXPECT_EQ(batches.done(0, 9), 50);
    EXPECT_EQ(batches.done(1, 9), 86);
  }
  Batches late({{.name = "late", .first_step = 2, .sequences = whole}}, options(0, 1));
  EXPECT_THAT([&] { late.at(1); },
              ThrowsMessage<UsageError>(HasSubstr("step 2 has no data: the first stage, late, "
                                                  "begins with step 3; set its from_step")));
}

TEST(Batches, CountInputsThatAreNotPaddingAndTargetsBeforeTheMask) {
  const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7};
  const std::vector<std::int64_t> begins{0, 3};
  const auto source = std::make_shared<MemoryTokens>("documents", tokens, begins);
  const std::vector<TokenStream> streams{{.source = source, .end = 7}};
  const SequenceMask mask = [](std::int64_t, Sequence& one) { one.targets[0] = -1; };
  Batches batches(std::make_shared<PackedStream>(streams, 8, 0), mask,
                  {.seq_len = 8, .global_batch = 1, .micro_batch = 1, .ahead = 0});
  const auto batch = batches.at(0);
  EXPECT_EQ(batch->inputs, 5) << "3 of one document, 2 of the other, and 3 rows of padding";
  EXPECT_EQ(batch->targets, 5);
  EXPECT_EQ(batch->counted, 4);
}
