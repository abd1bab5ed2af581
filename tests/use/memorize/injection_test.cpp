#include <map>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/use/memorize/documents.h"

using namespace axonn;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr std::int64_t kLength = 8;

/// Sequence n is n, n + 1, ...
class Counting : public Sequences {
 public:
  explicit Counting(bool packed) : packed_(packed) {}
  std::int64_t count() const override { return 1000; }
  void read(std::int64_t n, Sequence& to) const override {
    to = {};
    for (std::int32_t i = 0; i < kLength; ++i) {
      to.ids.push_back(static_cast<std::int32_t>(n) + i);
      to.targets.push_back(static_cast<std::int32_t>(n) + i + 1);
      if (packed_) to.positions.push_back(i % 4);
      if (packed_) to.starts.push_back(i / 4 * 4);
    }
  }
  Size size(std::int64_t) const override { return {kLength, kLength}; }
  std::string where(std::int64_t n) const override { return concat("counting ", n); }

 private:
  bool packed_;
};

std::shared_ptr<const std::vector<StudyDocument>> documents(int count) {
  auto all = std::make_shared<std::vector<StudyDocument>>();
  for (int d = 0; d < count; ++d)
    all->push_back({concat("document ", d), {1000 + d, 2000 + d, 3000 + d, 4000 + d}});
  return all;
}

std::string refusal(const InjectionPlan& plan, const std::vector<std::int64_t>& epochs) {
  try {
    injections(plan, epochs);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST(Injections, InjectEveryDocumentOncePerEpochInOrNearThatEpochsPartOfTheSteps) {
  const InjectionPlan plan{.steps = 110, .warmup_steps = 10, .batch = 4, .seed = 3};
  std::vector<std::int64_t> epochs;
  for (int d = 0; d < 30; ++d) epochs.push_back(d < 10 ? 0 : d < 20 ? 4 : 16);
  const auto all = injections(plan, epochs);
  ASSERT_EQ(std::ssize(all), 400);
  std::map<std::int32_t, std::vector<std::size_t>> at;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] >= 0) at[all[i]].push_back(i);
  int inside = 0;
  for (int d = 0; d < 30; ++d) {
    ASSERT_EQ(std::ssize(at[d]), epochs[d]) << d;
    // Visit e is drawn in the e-th part. Before any time t, each of 20 documents has had less than
    // one visit more or less than t · epochs; so even spacing shifts a visit by less than 20 of
    // 200.
    for (std::int64_t e = 0; e < epochs[d]; ++e) {
      const double time = static_cast<double>(at[d][e]) / 400,
                   parts = static_cast<double>(epochs[d]),
                   early = static_cast<double>(e) / parts - time,
                   late = time - static_cast<double>(e + 1) / parts;
      EXPECT_LT(std::max(early, late), 0.1 + 1.0 / 400) << d;
      inside += std::max(early, late) <= 0 ? 1 : 0;
    }
  }
  EXPECT_GE(inside, 200 * 9 / 10);
  // Other sequences are spread evenly between them: 200 of 400, and 20 in each tenth.
  for (std::size_t tenth = 0; tenth < 10; ++tenth) {
    const auto part = std::span(all).subspan(tenth * 40, 40);
    EXPECT_EQ(std::ranges::count(part, -1), 20);
  }
}

TEST(Injections, DependOnTheSeedAlone) {
  const std::vector<std::int64_t> epochs(20, 5);
  InjectionPlan plan{.steps = 60, .warmup_steps = 10, .batch = 2, .seed = 1};
  const auto first = injections(plan, epochs);
  EXPECT_EQ(injections(plan, epochs), first);
  plan.seed = 2;
  EXPECT_NE(injections(plan, epochs), first);
}

TEST(Injections, AreRefusedWithTheStepsThatAreNeeded) {
  const std::vector<std::int64_t> epochs(10, 5);
  EXPECT_EQ(refusal({.steps = 60, .warmup_steps = 10, .batch = 1}, epochs), "accepted");
  EXPECT_THAT(refusal({.steps = 59, .warmup_steps = 10, .batch = 1}, epochs),
              AllOf(HasSubstr("50 sequences"), HasSubstr("set training.steps to 60 or more")));
  EXPECT_THAT(refusal({.steps = 12, .warmup_steps = 10, .batch = 8}, epochs),
              HasSubstr("set training.steps to 17 or more"));
}

TEST(InjectedSequences, AreWholeDocumentsAndAllOtherSequencesInOrder) {
  const InjectionPlan plan{.steps = 6, .warmup_steps = 2, .batch = 2, .seed = 1};
  const std::vector<std::int64_t> epochs = {0, 2, 1};
  const InjectedSequences all(std::make_unique<Counting>(false), documents(3),
                              {.first = 4, .documents = injections(plan, epochs)}, kLength);
  ASSERT_EQ(all.count(), 12);
  std::int64_t other = 0, injected = 0;
  for (std::int64_t n = 0; n < all.count(); ++n) {
    Sequence s;
    all.read(n, s);
    ASSERT_EQ(std::ssize(s.ids), kLength);
    EXPECT_TRUE(s.starts.empty());
    if (s.ids[0] < 1000) {
      EXPECT_EQ(s.ids[0], other) << "no other sequence is left out";
      EXPECT_EQ(all.where(n), concat("counting ", other++));
      EXPECT_EQ(all.size(n).targets, kLength);
      continue;
    }
    EXPECT_GE(n, 4) << "in the warm-up";
    const int d = s.ids[0] - 1000;
    EXPECT_THAT(s.ids, ElementsAre(1000 + d, 2000 + d, 3000 + d, 0, 0, 0, 0, 0));
    EXPECT_THAT(s.targets, ElementsAre(2000 + d, 3000 + d, 4000 + d, -1, -1, -1, -1, -1));
    EXPECT_EQ(all.size(n).targets, 3);
    EXPECT_EQ(all.where(n), concat("document ", d));
    ++injected;
  }
  EXPECT_EQ(injected, 3);
  EXPECT_EQ(other, 9);
}

TEST(InjectedSequences, ThatReplaceOtherTextLeaveTheRestWhereItIs) {
  const InjectedSequences all(std::make_unique<Counting>(false), documents(2),
                              {.first = 2, .documents = {-1, 1, -1, 0}, .replaces = true}, kLength);
  std::vector<std::int32_t> firsts;
  for (std::int64_t n = 0; n < all.count(); ++n) {
    Sequence s;
    all.read(n, s);
    firsts.push_back(s.ids[0]);
  }
  EXPECT_THAT(firsts, ElementsAre(0, 1, 2, 1001, 4, 1000));
}

TEST(InjectedSequences, HavePositionsAndStartsIfTheOthersHave) {
  const std::vector<std::int64_t> epochs = {1};
  const InjectedSequences all(
      std::make_unique<Counting>(true), documents(1),
      {.documents = injections({.steps = 1, .warmup_steps = 0, .batch = 1}, epochs)}, kLength);
  Sequence s;
  all.read(0, s);
  EXPECT_THAT(s.starts, Each(0));
  EXPECT_THAT(s.positions, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(InjectedSequences, BehindOtherTextFollowItInItsPlace) {
  InjectedSlots slots{.first = 2, .documents = {-1, 0, 1}, .places = {{3}, {5}}, .replaces = true};
  const InjectedSequences sequences(std::make_unique<Counting>(false), documents(2), slots,
                                    kLength);
  Sequence read;
  sequences.read(3, read);
  EXPECT_THAT(read.ids, ElementsAre(3, 4, 5, 1000, 2000, 3000, 0, 0));
  EXPECT_THAT(read.targets, ElementsAre(4, 5, 1000, 2000, 3000, 4000, -1, -1));
  EXPECT_TRUE(read.starts.empty());
  EXPECT_EQ(sequences.size(3).inputs, 6);
  sequences.read(4, read);
  EXPECT_THAT(read.ids, ElementsAre(4, 5, 6, 7, 8, 1001, 2001, 3001));
  EXPECT_THAT(read.targets, ElementsAre(5, 6, 7, 8, 1001, 2001, 3001, 4001));
  slots.places = {{3}, {6}};
  const InjectedSequences full(std::make_unique<Counting>(false), documents(2), slots, kLength);
  EXPECT_THROW(full.read(4, read), Error) << "9 inputs";
  EXPECT_THROW(InjectedSequences(std::make_unique<Counting>(true), documents(2), slots, kLength),
               Error)
      << "documents that are separate would not see the text";
}

TEST(InjectedSequences, OfWhichNothingIsLearnedStandAmongTextThatIs) {
  InjectedSlots slots{.first = 2,
                      .documents = {-1, 0, 1},
                      .places = {{.learned = false}, {.offset = 2, .learned = false}},
                      .replaces = true};
  const InjectedSequences sequences(std::make_unique<Counting>(false), documents(2), slots,
                                    kLength);
  EXPECT_TRUE(sequences.counts_by_reading());
  Sequence read;
  sequences.read(3, read);
  EXPECT_THAT(read.ids, ElementsAre(1000, 2000, 3000, 4000, 7, 8, 9, 10));
  EXPECT_THAT(read.targets, ElementsAre(-1, -1, -1, 7, 8, 9, 10, 11));
  sequences.read(4, read);
  EXPECT_THAT(read.ids, ElementsAre(4, 5, 1001, 2001, 3001, 4001, 10, 11));
  EXPECT_THAT(read.targets, ElementsAre(5, -1, -1, -1, -1, 10, 11, 12));
  // At the end of a sequence the document's last token would only be a target.
  slots.places[1].offset = 5;
  const InjectedSequences full(std::make_unique<Counting>(false), documents(2), slots, kLength);
  full.read(4, read);
  EXPECT_THAT(read.ids, ElementsAre(4, 5, 6, 7, 8, 1001, 2001, 3001));
  EXPECT_THAT(read.targets, ElementsAre(5, 6, 7, 8, -1, -1, -1, -1));
  EXPECT_GE(full.size(4).targets, 4) << "an upper bound";
  EXPECT_THROW(InjectedSequences(std::make_unique<Counting>(true), documents(2), slots, kLength),
               Error);
}
