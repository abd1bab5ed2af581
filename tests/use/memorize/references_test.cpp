#include "axonn/use/memorize/references.h"

#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/use/memorize/arms.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

/// References whose losses of a document are all alike: in learn it, out do not.
std::vector<Reference> references_of(const std::vector<double>& in, const std::vector<double>& out,
                                     std::size_t targets) {
  std::vector<Reference> references;
  for (const auto* some : {&in, &out})
    for (const double loss : *some)
      references.push_back(
          {{some == &in}, {std::vector<float>(targets, static_cast<float>(loss))}});
  return references;
}

double confidence_of(float loss) {
  const double p = std::exp(-static_cast<double>(loss));
  return std::log(p / (1 - p));
}

struct Fit {
  double mean = 0, squares = 0, count = 0;
};
Fit fit_of(const std::vector<double>& losses) {
  Fit fit{.count = static_cast<double>(losses.size())};
  for (const double one : losses) fit.mean += confidence_of(static_cast<float>(one)) / fit.count;
  for (const double one : losses)
    fit.squares += std::pow(confidence_of(static_cast<float>(one)) - fit.mean, 2);
  return fit;
}

MembershipScores scores_of(const std::vector<float>& losses,
                           const std::vector<Reference>& references) {
  MembershipScores scores;
  set_reference_scores({losses}, references, std::vector<MembershipScores*>{&scores});
  return scores;
}

}  // namespace

TEST(ReferenceScores, AreThoseWorkedOutByHand) {
  // mean log p in (-.30, -.42, -.25, -.38), out (-1.10, -.90, -1.25, -1.05), target -.50
  const std::vector<double> in{.30, .42, .25, .38}, out{1.10, .90, 1.25, 1.05};
  const MembershipScores scores = scores_of({.5F, .5F}, references_of(in, out, 2));
  EXPECT_NEAR(scores.ratio, 1.075 - .5, 1e-6);
  EXPECT_EQ(scores.windows, 1);
  EXPECT_NEAR(scores.lira_offline, 4.918293, 2e-6);
  const Fit of_in = fit_of(in), of_out = fit_of(out);
  const double variance = (of_in.squares + of_out.squares) / 6, phi = confidence_of(.5F);
  EXPECT_NEAR(scores.lira_online,
              (std::pow(phi - of_out.mean, 2) - std::pow(phi - of_in.mean, 2)) / (2 * variance),
              1e-9);
}

TEST(ReferenceScores, UseADocumentsOwnDeviationWithManyReferences) {
  const Random random(4, "losses");
  std::vector<double> in, out;
  for (std::int64_t i = 0; i < kOwnDeviation; ++i) {
    in.push_back(.2 + .3 * random.uniform(i));
    out.push_back(1 + random.uniform(100 + i));
  }
  const MembershipScores scores = scores_of({.7F}, references_of(in, out, 1));
  const Fit of_in = fit_of(in), of_out = fit_of(out);
  const double phi = confidence_of(.7F);
  const auto density = [&](const Fit& fit) {
    const double variance = fit.squares / (fit.count - 1);
    return -std::log(variance) / 2 - std::pow(phi - fit.mean, 2) / (2 * variance);
  };
  EXPECT_NEAR(scores.lira_online, density(of_in) - density(of_out), 1e-9);
  EXPECT_NEAR(scores.lira_offline,
              (phi - of_out.mean) / std::sqrt(of_out.squares / (of_out.count - 1)), 1e-9);
}

TEST(ReferenceScores, CountWindowsThatThePlainLoopCounts) {
  const std::vector<float> losses{.1F, 2.3F, .05F, 1.2F, .4F, 3.F, .02F, .9F};
  const std::vector<float> others{.6F, 2.1F, .5F, 1.6F, .35F, 3.4F, .3F, .8F};
  std::vector<Reference> references = references_of({1, 2}, {1, 2}, 8);
  for (Reference& one : references)
    if (!one.learned[0]) one.losses[0] = others;
  EXPECT_DOUBLE_EQ(scores_of(losses, references).windows, 1);
  const std::vector<float> worse{1, 0, 1, 1, 1, 1, 1, 1};  // against ones
  for (Reference& one : references) one.losses[0] = std::vector<float>(8, 1);
  // The windows with the second: two of each width below 8; wider ones are all eight targets.
  const double want = 2. / 7 + 2. / 6 + 2. / 5 + 2. / 3 + 6;
  EXPECT_NEAR(scores_of(worse, references).windows, want / 10, 1e-12);
}

TEST(ReferenceScores, NeedTwoReferencesOfEachKind) {
  EXPECT_THROW(scores_of({1}, references_of({1, 2}, {1}, 1)), Error);
  EXPECT_THROW(scores_of({1}, references_of({1}, {1, 2}, 1)), Error);
}

TEST(References, LearnComplementaryHalvesThatDoNotDependOnTheirNumber) {
  std::int64_t learned = 0;
  for (std::int64_t r = 0; r < 20; r += 2) {
    const auto one = learned_by(r, 100, 7), other = learned_by(r + 1, 100, 7);
    for (std::size_t d = 0; d < 100; ++d) EXPECT_NE(one[d], other[d]);
    learned += std::ranges::count(one, true);
    const auto fewer = learned_by(r, 60, 7);
    EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), one.begin()));
  }
  EXPECT_GT(learned, 1000 / 2 - 80) << "of 1,000 draws, five deviations";
  EXPECT_LT(learned, 1000 / 2 + 80);
  EXPECT_NE(learned_by(0, 100, 7), learned_by(0, 100, 8));
}

TEST(References, ReadLossesThatWereWrittenAndNameDamagedFiles) {
  const Reference one{{true, false}, {{.25F, 1.F / 3}, {2}}};
  const Reference read = parse_reference(to_json(one), 2, "losses.json");
  EXPECT_EQ(read.learned, one.learned);
  EXPECT_EQ(read.losses, one.losses);
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      parse_reference(text, 3, "losses.json");
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("{"), HasSubstr("losses.json: damaged"));
  EXPECT_THAT(refusal("{}"), HasSubstr("learned"));
  EXPECT_THAT(refusal(to_json(one)), HasSubstr("losses of 2 documents; the study has 3"));
}

TEST(References, LearnDocumentsAsOftenAsInTheTrialAndThoseOfTheControlInTurn) {
  Config config;
  config.training.steps = 20;
  config.training.global_batch = 8;
  config.training.seq_len = 64;
  config.lr_scheduler.warmup_steps = 4;
  constexpr DocumentKind kUniform = DocumentKind::uniform;
  MemorizeConfig memorize{.suffix_tokens = 10};
  memorize.buckets = {
      {.name = "none", .size = 5, .times = 0, .kind = kUniform, .tokens = 20},
      {.name = "often", .size = 3, .times = 6, .kind = kUniform, .tokens = 20},
      {.name = "late", .size = 2, .times = 2, .when = {0.5, 1}, .kind = kUniform, .tokens = 20}};
  const TrialPlan plan = plan_of_trial(config, memorize, *make_tokenizer("bytes"), {});
  const std::vector<bool> learned{true, true, false, true, false, true, false, true, false, true};
  const InjectedSlots slots = slots_of_reference(config, memorize, plan.documents, learned);
  std::vector<std::int64_t> came(10, 0);
  for (std::size_t i = 0; i < slots.documents.size(); ++i) {
    const std::int32_t d = slots.documents[i];
    if (d < 0) continue;
    ++came[d];
    EXPECT_TRUE((d != 1 && d != 3 && d != 9) || i >= 6u * 8) << "from step 10 on, " << d;
  }
  EXPECT_THAT(came, testing::ElementsAre(6, 2, 0, 2, 0, 6, 0, 6, 0, 2));
  EXPECT_TRUE(slots.replaces);
  const std::vector<std::int64_t> controls{0, 0, 0};
  EXPECT_EQ(group_in_turn(controls, 0, 0), 1);
  EXPECT_EQ(group_in_turn(controls, 0, 3), 2);
}
