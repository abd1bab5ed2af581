#include "axonn/use/memorize/arms.h"

#include <cmath>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr DocumentLimits kLimits{.least = 51, .most = 193};

std::vector<BucketConfig> three_arms() {
  return {{.name = "none", .size = 6, .times = 0, .when = {0.1, 1}},
          {.name = "early", .size = 5, .times = 4, .when = {0.1, 0.5}},
          {.name = "late", .size = 5, .times = 8, .when = {0.8, 1}}};
}

TrialDocuments arm_documents(const std::vector<BucketConfig>& arms, std::uint64_t seed = 1) {
  return documents_of_arms(arms, {}, *make_tokenizer("bytes"), {.seed = seed, .limits = kLimits});
}

/// Places of each document, by arm and number in the arm.
std::map<std::pair<std::string, std::int64_t>, std::vector<std::int64_t>> arm_slots(
    const std::vector<BucketConfig>& arms, const InjectionPlan& plan) {
  const TrialDocuments all = arm_documents(arms, plan.seed);
  const std::vector<std::int32_t> slots = slots_of_arms(arms, all, plan);
  std::map<std::pair<std::string, std::int64_t>, std::vector<std::int64_t>> found;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0) continue;
    std::int64_t d = all.original.at(slots[i]), first = d;
    while (first > 0 && all.group[first - 1] == all.group[d]) --first;
    found[{arms[all.group[d]].name, d - first}].push_back(static_cast<std::int64_t>(i));
  }
  return found;
}

std::string refused_arms(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

constexpr InjectionPlan kPlan{.steps = 100, .warmup_steps = 10, .batch = 4, .seed = 3};

}  // namespace

TEST(Arms, ComeInEachOfTheEqualPartsOfTheirSteps) {
  const auto found = arm_slots(three_arms(), kPlan);
  ASSERT_EQ(found.size(), 10u) << "none of the control";
  for (const auto& [document, slots] : found) {
    const bool early = document.first == "early";
    // Sequences after the 10 steps of the warm-up: 0 to 160, and 280 to 360.
    const double begin = early ? 0 : 280, part = early ? 40 : 10;
    ASSERT_EQ(slots.size(), early ? 4u : 8u);
    for (std::size_t e = 0; e < slots.size(); ++e) {
      EXPECT_GE(static_cast<double>(slots[e]), begin + static_cast<double>(e) * part);
      EXPECT_LT(static_cast<double>(slots[e]), begin + static_cast<double>(e + 1) * part);
    }
  }
}

TEST(Arms, ThatAreAddedAtTheEndMoveNoVisitAndNoDocumentOfTheOthers) {
  std::vector<BucketConfig> arms = three_arms();
  const auto before = arm_slots(arms, kPlan);
  const TrialDocuments documents_before = arm_documents(arms);
  arms.push_back({.name = "more", .size = 10, .times = 5, .when = {0.1, 1}});
  auto after = arm_slots(arms, kPlan);
  std::erase_if(after, [](const auto& one) { return one.first.first == "more"; });
  EXPECT_EQ(after, before);
  const TrialDocuments documents_after = arm_documents(arms);
  for (std::int64_t d = 0; d < documents_before.tested; ++d)
    EXPECT_EQ((*documents_after.all)[d].tokens, (*documents_before.all)[d].tokens);
  // Nor does another size of an arm before them change a document.
  arms.front().size = 8;
  EXPECT_EQ((*arm_documents(arms).all)[8].tokens, (*documents_before.all)[6].tokens);
}

TEST(Arms, FillEachSequenceOnceAndAreRefusedBeyondThat) {
  // 20 steps of 4 sequences hold 80 visits.
  std::vector<BucketConfig> arms{{.name = "none", .size = 1, .times = 0, .when = {0.8, 1}},
                                 {.name = "full", .size = 10, .times = 8, .when = {0.8, 1}}};
  std::set<std::int64_t> used;
  for (const auto& [document, slots] : arm_slots(arms, kPlan))
    used.insert(slots.begin(), slots.end());
  EXPECT_EQ(used.size(), 80u);
  EXPECT_EQ(*used.begin(), 280);
  arms.push_back({.name = "extra", .size = 1, .times = 1, .when = {0.9, 1}});
  EXPECT_THAT(refused_arms([&] { arm_slots(arms, kPlan); }),
              AllOf(HasSubstr("[[memorize.bucket]] \"extra\""), HasSubstr("when = [0.9, 1]"),
                    HasSubstr("raise training.steps")));
}

TEST(Arms, OfUniformTokensHaveEachTokenAboutAsOften) {
  const std::vector<BucketConfig> arms{
      {.name = "u", .size = 200, .times = 0, .when = {0, 1}, .kind = DocumentKind::uniform}};
  std::vector<std::int64_t> counts(256, 0);
  const TrialDocuments drawn = arm_documents(arms);
  for (const StudyDocument& one : *drawn.all) {
    ASSERT_EQ(one.tokens.size(), 64u);
    for (const std::int32_t token : one.tokens) ++counts.at(token);
  }
  // 12,800 draws, 50 of each token expected, deviation 7: no count is off by 6 deviations.
  for (const std::int64_t count : counts) EXPECT_NEAR(static_cast<double>(count), 50, 42);
}

TEST(Arms, WithNearDuplicatesLearnEachInTurn) {
  std::vector<BucketConfig> arms = three_arms();
  arms[1].variants = 2;
  arms[1].change_every = 16;
  const TrialDocuments all = arm_documents(arms);
  ASSERT_EQ(all.tested, 16);
  ASSERT_EQ(all.all->size(), 26u);
  const std::vector<std::int32_t> slots = slots_of_arms(arms, all, kPlan);
  for (std::int64_t d = 6; d < 11; ++d) {
    EXPECT_EQ(std::ranges::count(slots, d), 0) << "the document itself is never learned";
    const auto first = static_cast<std::int32_t>(all.first_variant[d]);
    EXPECT_EQ(std::ranges::count(slots, first), 2);
    EXPECT_EQ(std::ranges::count(slots, first + 1), 2);
    EXPECT_EQ(all.original[first], d);
    const std::vector<std::int32_t>&itself = (*all.all)[d].tokens, &copy = (*all.all)[first].tokens;
    ASSERT_EQ(copy.size(), itself.size());
    EXPECT_NE(copy, (*all.all)[first + 1].tokens);
    for (std::size_t begin = 0; begin < itself.size(); begin += 16) {
      int differ = 0;
      for (std::size_t i = begin; i < std::min(begin + 16, itself.size()); ++i)
        differ += copy[i] != itself[i];
      EXPECT_EQ(differ, 1) << "of 16 tokens from " << begin;
    }
  }
}

TEST(Arms, OfTheOldKeysAreAControlAndABucketForEachNumberOfEpochs) {
  Config config;
  config.training.steps = 100;
  config.lr_scheduler.warmup_steps = 25;
  const auto arms = arms_of(config, {.bucket_size = 7, .epochs = {1, 16}});
  ASSERT_EQ(arms.size(), 3u);
  EXPECT_EQ(arms[0].name, "control");
  EXPECT_EQ(arms[1].name, "1 epoch");
  EXPECT_EQ(arms[2].name, "16 epochs");
  EXPECT_EQ(arms[2].times, 16);
  EXPECT_EQ(arms[2].size, 7);
  EXPECT_THAT(arms[2].when, ElementsAre(0.25, 1.0));
  EXPECT_THAT(controls_of(arms), ElementsAre(0, 0, 0));
}

TEST(TrialPlan, OfTheOldKeysHasTheDocumentsAndSequencesThatItAlwaysHad) {
  Config config;
  config.training = {.steps = 40, .seq_len = 192, .global_batch = 2, .seed = 5};
  config.lr_scheduler.warmup_steps = 10;
  const auto tokenizer = make_tokenizer("bytes");
  const TrialPlan plan =
      plan_of_trial(config, {.bucket_size = 3, .epochs = {1, 4}}, *tokenizer, {});
  const auto drawn =
      draw_documents(generated_documents(9, 5, *tokenizer, {.least = 51, .most = 193}), 9, 5);
  ASSERT_EQ(plan.documents.tested, 9);
  for (std::size_t d = 0; d < 9; ++d)
    EXPECT_EQ((*plan.documents.all)[d].tokens, drawn[d].tokens) << d;
  EXPECT_THAT(plan.documents.group, ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2));
  const std::vector<std::int64_t> epochs{0, 0, 0, 1, 1, 1, 4, 4, 4};
  EXPECT_EQ(plan.slots.documents,
            injections({.steps = 40, .warmup_steps = 10, .batch = 2, .seed = 5}, epochs));
  EXPECT_EQ(plan.slots.first, 20);
  EXPECT_FALSE(plan.slots.replaces);
}

TEST(Arms, NeedOneControlOfTheirKind) {
  std::vector<BucketConfig> arms = three_arms();
  EXPECT_THAT(controls_of(arms), ElementsAre(0, 0, 0));
  arms[2].kind = DocumentKind::uniform;
  EXPECT_THAT(refused_arms([&] { controls_of(arms); }),
              HasSubstr("\"late\" has no control; add a bucket with times = 0 and kind = "
                        "\"uniform\""));
  arms.push_back({.name = "random", .size = 2, .times = 0, .kind = DocumentKind::uniform});
  EXPECT_THAT(controls_of(arms), ElementsAre(0, 0, 3, 3));
  arms.push_back({.name = "also", .size = 2, .times = 0});
  EXPECT_THAT(refused_arms([&] { controls_of(arms); }),
              HasSubstr("\"none\" and \"also\" are both"));
}

TEST(Exposures, AreTheStepsInWhichADocumentOrItsNearDuplicatesCome) {
  TrialPlan plan{.documents = {.tested = 2, .group = {0, 1}, .original = {0, 1, 1}},
                 .slots = {.first = 8, .documents = {-1, 1, 2, -1, -1, -1, 0, 2}}};
  plan.documents.all = std::make_shared<const std::vector<StudyDocument>>(3);
  // Sequence 8 is the first of step 3, of 4 sequences each.
  EXPECT_THAT(exposures_of(plan, 4), ElementsAre(ElementsAre(4), ElementsAre(3, 3, 4)));
}

TEST(Variants, AreEachLossWithEachSchedule) {
  const auto names = [](const MemorizeConfig& memorize) {
    std::vector<std::string> all;
    for (const StudyVariant& one : variants_of(memorize))
      all.push_back(one.name + "|" + one.folder);
    return all;
  };
  EXPECT_THAT(names({}), ElementsAre("standard|standard", "goldfish|goldfish"));
  EXPECT_THAT(names({.losses = {"standard"}, .schedules = {"wsd", "constant"}}),
              ElementsAre("wsd|standard-wsd", "constant|standard-constant"));
  EXPECT_THAT(names({.schedules = {"wsd"}}),
              ElementsAre("standard, wsd|standard-wsd", "goldfish, wsd|goldfish-wsd"));
}
