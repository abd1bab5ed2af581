#include "axonn/run/config/preference.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

struct TestPair {
  AnswerScore chosen, rejected;
};

constexpr std::array<TestPair, 4> kTestPairs = {
    {{{-10.099365234375, -9.26708984375, 5}, {-12.72705078125, -12.70947265625, 7}},
     {{-7.385009765625, -7.1318359375, 6}, {-8.0849609375, -9.470458984375, 6}},
     {{-9.668212890625, -8.973388671875, 9}, {-3.87646484375, -4.140869140625, 3}},
     {{-9.84765625, -10.170166015625, 8}, {-4.950439453125, -5.187744140625, 4}}}};

/// The mean loss of kTestPairs, and its derivative with respect to each sum, as TRL 1.16 computes
/// them from the same log-probabilities.
struct RecordedLoss {
  PreferenceConfig config;
  double loss;
  std::array<double, 4> d_chosen, d_rejected;
};

const std::vector<RecordedLoss> kRecorded = {
    {{.loss = PreferenceLoss::dpo, .more_losses = {"bco_pair"}, .loss_weights = {0.8, 0.2}},
     0.8746489710839407,
     {-0.013011097886835526, -0.013349152453821905, -0.013066064945643718, -0.012417087491888468},
     {0.01290492620871901, 0.013490418159643356, 0.013012295455694302, 0.012487059412666328}},
    {{.loss = PreferenceLoss::cpo, .alpha = 0.1},
     0.9383498644896384,
     {-0.020912480786240747, -0.02417907391751034, -0.0500024215928999, -0.049407179384139494},
     {0.02719721836910998, 0.02593212796965254, 0.028019386103011395, 0.03027656756413793}},
    {{.loss = PreferenceLoss::simpo, .alpha = 0.5},
     0.9726351161081992,
     {-0.008713396869379185, -0.004758851710504028, -0.002914335496634186, -0.003597970939622237},
     {0.005626727471934918, 0.005044687282095074, 0.009749428404246493, 0.007219918431444256}},
    {{.loss = PreferenceLoss::dpo},
     0.7360748444528983,
     {-0.013008904342222788, -0.01352188426947654, -0.013099058554886757, -0.012446747148347037},
     {0.013008904342222788, 0.01352188426947654, 0.013099058554886757, 0.012446747148347037}},
    {{.loss = PreferenceLoss::dpo, .f_divergence_type = Divergence::js_divergence},
     0.7132915354801322,
     {-0.0089244666934187, -0.007249569412605888, -0.00855892560007115, -0.005241172886768692},
     {0.006459844577633224, 0.0025771708998065385, 0.005572358425480302, 0.005501774742786542}},
    {{.loss = PreferenceLoss::dpo, .beta = 0.5},
     0.933853124514308,
     {-0.0750564950834394, -0.08676191998646457, -0.077207097904072, -0.06116887197869505},
     {0.0750564950834394, 0.08676191998646457, 0.077207097904072, 0.06116887197869505}},
    {{.loss = PreferenceLoss::hinge},
     1.0831848144531249,
     {-0.025, -0.025, -0.025, -0.025},
     {0.025, 0.025, 0.025, 0.025}},
    {{.loss = PreferenceLoss::ipo},
     26.585805938134673,
     {-0.5163943917410714, -0.4394259982638889, -0.286963192033179, -0.3136882781982422},
     {0.36885313695790817, 0.4394259982638889, 0.8608895760995371, 0.6273765563964844}},
    {{.loss = PreferenceLoss::robust, .label_smoothing = 0.1},
     0.746472946259539,
     {-0.01613390434222279, -0.01664688426947654, -0.016224058554886758, -0.015571747148347036},
     {0.01613390434222279, 0.01664688426947654, 0.016224058554886758, 0.015571747148347036}},
    {{.loss = PreferenceLoss::sigmoid_norm},
     0.7009551164825797,
     {-0.0025204925306865555, -0.002111780729605472, -0.001400370395156079, -0.001563985347300375},
     {0.001800351807633254, 0.002111780729605472, 0.0042011111854682376, 0.00312797069460075}},
    {{.loss = PreferenceLoss::nca_pair},
     1.4080396910594515,
     {-0.007029808097929713, -0.006487337786805035, -0.006901135763007347, -0.005947673299081278},
     {0.006244506837351946, 0.006682276860155309, 0.006332621529462239, 0.006324154234971742}},
    {{.loss = PreferenceLoss::bco_pair},
     1.42894547760811,
     {-0.013019872065286476, -0.012658225191203357, -0.012934090508671565, -0.012298448866054185},
     {0.012489013674703892, 0.013364553720310618, 0.012665243058924478, 0.012648308469943484}},
    {{.loss = PreferenceLoss::apo_zero},
     1.0207775555509804,
     {-0.006239189321429392, -0.006248998591554746, -0.0062424626172112516, -0.006248375085616206},
     {0.00624999517202626, 0.0062201018745878835, 0.006248907789259092, 0.006249120183909721}},
    {{.loss = PreferenceLoss::cpo},
     0.8052285813211082,
     {-0.01086708145831072, -0.012062709038567463, -0.01602193767022917, -0.015501021624965},
     {0.01086708145831072, 0.012062709038567463, 0.01602193767022917, 0.015501021624965}},
    {{.loss = PreferenceLoss::cpo, .label_smoothing = 0.1},
     0.7868252610086082,
     {-0.00836708145831072, -0.009562709038567464, -0.01352193767022917, -0.013001021624965},
     {0.00836708145831072, 0.009562709038567464, 0.01352193767022917, 0.013001021624965}},
    {{.loss = PreferenceLoss::cpo_hinge},
     1.1840332031249998,
     {-0.025, -0.025, -0.025, -0.025},
     {0.025, 0.025, 0.025, 0.025}},
    {{.loss = PreferenceLoss::cpo_ipo},
     24.67671375312447,
     {-0.5201722935267857, -0.40694512261284727, -0.26567171826774694, -0.3120841979980469},
     {0.37155163823341836, 0.40694512261284727, 0.7970151548032408, 0.6241683959960938}},
    {{.loss = PreferenceLoss::cpo_ipo, .beta = 0.5, .alpha = 0.2},
     0.9769579497404772,
     {-0.19412845850552185, -0.0905000434164211, -0.0498549465691959, -0.07926573178331497},
     {0.13318022331929374, 0.09263638918084789, 0.15622727272239892, 0.15874254060125004}},
    {{.loss = PreferenceLoss::simpo},
     0.9719361177737756,
     {-0.003135940267097731, -0.0025821413397356763, -0.0017147913584673864,
      -0.0019446967951462992},
     {0.0022399573336412365, 0.0025821413397356763, 0.0051443740754021595, 0.0038893935902925983}},
    {{.loss = PreferenceLoss::simpo, .beta = 2, .simpo_gamma = 1},
     1.2723688628633827,
     {-0.08027301268402408, -0.05690024260161582, -0.035412199345333385, -0.04552715609792002},
     {0.057337866202874344, 0.05690024260161582, 0.10623659803600016, 0.09105431219584004}},
    {{.loss = PreferenceLoss::orpo},
     0.0667710229754448,
     {-0.0032216976396739483, -0.0027062632143497467, -0.0017802121583372355,
      -0.0021966062486171722},
     {0.002382674952968955, 0.0025886758230626583, 0.004848212469369173, 0.004381230566650629}},
};

std::string label_of(const PreferenceConfig& config) {
  return std::string(kPreferenceLosses[static_cast<std::size_t>(config.loss)]);
}

/// Every loss of pairs and every divergence that it may have, with a label_smoothing where it reads
/// one.
std::vector<PreferenceConfig> all_losses() {
  std::vector<PreferenceConfig> all;
  for (std::size_t i = 1; i < kPreferenceLosses.size(); ++i) {
    const auto loss = static_cast<PreferenceLoss>(i);
    if (reads_labels(loss) || sorts_pairs(loss)) continue;
    all.push_back({.loss = loss, .beta = 0.4, .label_smoothing = smooths_labels(loss) ? 0.1 : 0});
    if (!reads_margin(loss)) continue;
    for (const Divergence divergence :
         {Divergence::forward_kl, Divergence::js_divergence, Divergence::alpha_divergence}) {
      PreferenceConfig config = all.back();
      config.f_divergence_type = divergence;
      all.push_back(config);
    }
  }
  return all;
}

}  // namespace

TEST(PreferenceLoss, AndItsDerivativesAreThoseOfTheRecordedCases) {
  for (const RecordedLoss& recorded : kRecorded) {
    SCOPED_TRACE(label_of(recorded.config));
    // Sums of log-probabilities of about 10 in f64, but TRL computes orpo in f32.
    const double error = recorded.config.loss == PreferenceLoss::orpo ? 1e-6 : 1e-12;
    double mean = 0;
    for (std::size_t i = 0; i < kTestPairs.size(); ++i) {
      const PairLoss got =
          preference_loss(recorded.config, kTestPairs[i].chosen, kTestPairs[i].rejected);
      mean += got.value / kTestPairs.size();
      EXPECT_NEAR(got.d_chosen / 4, recorded.d_chosen[i], error * std::abs(recorded.d_chosen[i]))
          << "chosen " << i;
      EXPECT_NEAR(got.d_rejected / 4, recorded.d_rejected[i],
                  error * std::abs(recorded.d_rejected[i]))
          << "rejected " << i;
    }
    EXPECT_NEAR(mean, recorded.loss, error * std::abs(recorded.loss));
  }
}

TEST(PreferenceLoss, OfSortedPairsIsThatOfTheRecordedCases) {
  const std::vector<RecordedLoss> all = {
      {{.loss = PreferenceLoss::aot},
       0.7359910910802436,
       {-0.013008904342222788, -0.01352188426947654, -0.013005552936168452, -0.012540435649971588},
       {0.013008904342222788, 0.01352188426947654, 0.013005552936168452, 0.012540435649971588}},
      {{.loss = PreferenceLoss::aot, .beta = 0.5, .label_smoothing = 0.1},
       0.8901988484927688,
       {-0.0625564950834394, -0.07426191998646457, -0.06247593740629655, -0.051010806631721875},
       {0.0625564950834394, 0.07426191998646457, 0.06247593740629655, 0.051010806631721875}},
      {{.loss = PreferenceLoss::aot_unpaired, .label_smoothing = 0.1},
       0.727336533779386,
       {-0.01050890434222279, -0.010323414132615739, -0.010582159113042592, -0.01066374279990803},
       {0.01050890434222279, 0.01066374279990803, 0.010323414132615739, 0.010582159113042592}},
      {{.loss = PreferenceLoss::aot, .more_losses = {"hinge"}, .loss_weights = {0.5, 2}},
       2.5343651744463713,
       {-0.0565044521711114, -0.05676094213473827, -0.05650277646808423, -0.0562702178249858},
       {0.0565044521711114, 0.05676094213473827, 0.05650277646808423, 0.0562702178249858}}};
  std::vector<std::array<AnswerScore, 2>> pairs;
  for (const auto& [chosen, rejected] : kTestPairs) pairs.push_back({chosen, rejected});
  for (const RecordedLoss& recorded : all) {
    const std::vector<PairLoss> sorted = sorted_losses(recorded.config, pairs);
    ASSERT_EQ(sorted.size(), pairs.size());
    double mean = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const PairLoss other = preference_loss(recorded.config, pairs[i][0], pairs[i][1]);
      mean += (sorted[i].value + other.value) / 4;
      EXPECT_NEAR((sorted[i].d_chosen + other.d_chosen) / 4, recorded.d_chosen[i], 1e-14) << i;
      EXPECT_NEAR((sorted[i].d_rejected + other.d_rejected) / 4, recorded.d_rejected[i], 1e-14)
          << i;
    }
    EXPECT_NEAR(mean, recorded.loss, 1e-12 * recorded.loss);
  }
}

TEST(PreferenceLoss, OfApoZeroUnpairedHasNoShift) {
  for (const bool good : {true, false}) {
    const PreferenceConfig config{.loss = PreferenceLoss::apo_zero_unpaired,
                                  .undesirable_weight = 2};
    const AnswerScore answer{-7.5, -9.0, 4};
    const AnswerLoss got = answer_loss(config, answer, good, 100);
    const double s = 1 / (1 + std::exp(-0.1 * 1.5));
    EXPECT_NEAR(got.value, good ? 1 - s : 2 * s, 1e-15);
    EXPECT_NEAR(got.d, (good ? -1 : 2) * 0.1 * s * (1 - s), 1e-15);
  }
}

TEST(PreferenceLoss, RefusesSumsThatThereAreNot) {
  const auto refusal = [](const PreferenceConfig& config) -> std::string {
    try {
      validate_preference(config);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  using enum PreferenceLoss;
  EXPECT_EQ(refusal({.loss = dpo, .more_losses = {"bco_pair", "aot"}, .loss_weights = {1, 0, 2}}),
            "");
  EXPECT_THAT(refusal({.loss = dpo, .more_losses = {"x"}}), HasSubstr("there is no loss 'x'"));
  EXPECT_THAT(refusal({.loss = dpo, .more_losses = {"simpo"}}),
              HasSubstr("more_losses: the loss simpo cannot be one of several"));
  EXPECT_THAT(refusal({.loss = kto, .more_losses = {"dpo"}}), HasSubstr("the loss kto cannot be"));
  EXPECT_THAT(refusal({.loss = dpo, .more_losses = {"ipo"}, .loss_weights = {1}}),
              HasSubstr("loss_weights has 1 numbers for 2 losses"));
  EXPECT_THAT(refusal({.loss = dpo, .loss_weights = {-1}}), HasSubstr("must be 0 or more"));
  EXPECT_THAT(refusal({.loss = aot, .use_weighting = true}),
              HasSubstr("use_weighting weighs pairs"));
  EXPECT_THAT(refusal({.loss = dpo,
                       .more_losses = {"bco_pair"},
                       .f_divergence_type = Divergence::js_divergence}),
              HasSubstr("f_divergence_type: the loss bco_pair"));
  EXPECT_THAT(refusal({.loss = dpo, .alpha = 0.1}), HasSubstr("alpha: the loss dpo does not read"));
}

TEST(PreferenceLoss, OfLabelledAnswersIsThatOfTheRecordedCases) {
  const std::array<AnswerScore, 6> answers = {{{-10.099365234375, -9.26709, 5},
                                               {-7.385009765625, -7.131836, 6},
                                               {-9.668212890625, -8.973389, 9},
                                               {-9.84765625, -10.170166, 8},
                                               {-12.72705078125, -12.709473, 7},
                                               {-8.0849609375, -9.470459, 6}}};
  const std::array<bool, 6> good = {true, false, true, true, false, true};
  struct Recorded {
    PreferenceConfig config;
    double divergence, loss;
    std::array<double, 6> d;
  };
  const std::vector<Recorded> all = {
      {{.loss = PreferenceLoss::kto},
       4.25 / 6,
       0.5040039095646754,
       {-0.004142040445202571, 0.004157051320031536, -0.004146224921348457, -0.00416511642798794,
        0.004161182453093329, -0.004161893730750551}},
      {{.loss = PreferenceLoss::kto},
       -25.75 / 6,
       0.4981243076988533,
       {-0.004159459550322577, 0.004165999061366081, -0.004161641749549637, -0.004165583390515751,
        0.004166663448143391, -0.004146734582610455}},
      {{.loss = PreferenceLoss::kto, .desirable_weight = 1.5, .undesirable_weight = 0.5},
       4.25 / 6,
       0.5963656957800559,
       {-0.006213060667803856, 0.002078525660015768, -0.006219337382022686, -0.006247674641981911,
        0.0020805912265466644, -0.006242840596125828}}};
  for (const auto& [config, divergence, loss, d] : all) {
    double mean = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const AnswerLoss got = answer_loss(config, answers[i], good[i], divergence);
      mean += got.value / answers.size();
      EXPECT_NEAR(got.d / 6, d[i], 1e-12 * std::abs(d[i])) << i;
    }
    EXPECT_NEAR(mean, loss, 1e-12);
  }
  EXPECT_THAT([&] { answer_loss({.loss = PreferenceLoss::dpo}, answers[0], true, 0); },
              testing::ThrowsMessage<Error>(HasSubstr("the loss is dpo, which is not one of")));
}

TEST(PreferenceLoss, HasDerivativesThatAreFiniteDifferences) {
  constexpr double kStep = 1e-5;  // of the second order: the error is about its square
  for (const PreferenceConfig& config : all_losses())
    for (const auto& [chosen, rejected] : kTestPairs) {
      SCOPED_TRACE(label_of(config));
      const auto at = [&](double of_chosen, double of_rejected) {
        AnswerScore w = chosen, l = rejected;
        w.policy += of_chosen;
        l.policy += of_rejected;
        return preference_loss(config, w, l);
      };
      const PairLoss here = at(0, 0);
      const double most = 1e-7 * (1 + std::abs(here.value));
      EXPECT_NEAR((at(kStep, 0).value - at(-kStep, 0).value) / (2 * kStep), here.d_chosen, most);
      EXPECT_NEAR((at(0, kStep).value - at(0, -kStep).value) / (2 * kStep), here.d_rejected, most);
    }
}

TEST(PreferenceLoss, StaysFiniteForAnswersThatDifferByThousandsOfNats) {
  for (const PreferenceConfig& config : all_losses())
    for (const double gap : {-4000.0, 4000.0}) {
      if (config.loss == PreferenceLoss::discopop && gap < 0) continue;  // its e^-u is not
      if (config.f_divergence_type == Divergence::forward_kl) continue;  // nor is its e^-c
      const PairLoss got =
          preference_loss(config, {-5000 + gap, -5000, 700}, {-5000 - gap, -5000, 700});
      EXPECT_TRUE(std::isfinite(got.value) && std::isfinite(got.d_chosen) &&
                  std::isfinite(got.d_rejected))
          << label_of(config) << ' ' << gap;
    }
}

TEST(PreferenceLoss, OfAModelThatIsItsReferenceIsTheLogarithmOfTwoForDpo) {
  const PairLoss got =
      preference_loss({.loss = PreferenceLoss::dpo}, {-12.5, -12.5, 4}, {-7.25, -7.25, 3});
  EXPECT_DOUBLE_EQ(got.value, std::log(2));
  EXPECT_EQ(got.d_chosen, -got.d_rejected);
}

TEST(PreferenceLoss, OfAnAlphaDivergenceNearOneIsThatOfItsLimit) {
  PreferenceConfig config{.loss = PreferenceLoss::dpo};
  const double want = preference_loss(config, kTestPairs[0].chosen, kTestPairs[0].rejected).value;
  config.f_divergence_type = Divergence::alpha_divergence;
  for (const double coefficient : {1.0, 1 + 1e-5}) {
    config.f_alpha_divergence_coef = coefficient;
    EXPECT_NEAR(preference_loss(config, kTestPairs[0].chosen, kTestPairs[0].rejected).value, want,
                1e-6);
  }
}

TEST(PreferenceLoss, RefusesSettingsThatItWouldNotReadOrCannotHave) {
  const auto refusal = [](const PreferenceConfig& config) -> std::string {
    try {
      validate_preference(config);
    } catch (const UsageError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(refusal({.loss = PreferenceLoss::dpo, .beta = 0}), HasSubstr("beta = 0"));
  EXPECT_THAT(refusal({.loss = PreferenceLoss::dpo, .label_smoothing = 0.1}),
              HasSubstr("the loss dpo does not read it"));
  EXPECT_THAT(refusal({.loss = PreferenceLoss::robust, .label_smoothing = 0.5}),
              HasSubstr("less than 0.5"));
  EXPECT_THAT(refusal({.loss = PreferenceLoss::exo_pair}), HasSubstr("its logarithm"));
  EXPECT_THAT(refusal({.loss = PreferenceLoss::simpo, .sft_weight = 1}),
              HasSubstr("its key is cpo_alpha"));
  EXPECT_THAT(refusal({.loss = PreferenceLoss::kto, .ld_alpha = 0.5}),
              HasSubstr("ld_alpha: the loss kto does not read it"));
  EXPECT_THAT(refusal({.loss = PreferenceLoss::dpo, .ld_alpha = 1.5}), HasSubstr("from 0 to 1"));
  EXPECT_THAT(refusal({.loss = PreferenceLoss::orpo, .use_weighting = true}),
              HasSubstr("use_weighting: the loss orpo does not read it"));
  EXPECT_THAT(refusal({.loss = PreferenceLoss::dpo, .sft_weight = 1, .use_weighting = true}),
              HasSubstr("leave one of them out"));
  EXPECT_THAT(
      refusal({.loss = PreferenceLoss::bco_pair, .f_divergence_type = Divergence::js_divergence}),
      HasSubstr("f_divergence_type: the loss bco_pair does not read it"));
  EXPECT_THAT(refusal({.loss = PreferenceLoss::dpo, .max_length = 1}), HasSubstr("at least 2"));
  for (const PreferenceConfig& config : all_losses()) EXPECT_EQ(refusal(config), "");
}

TEST(PreferenceLoss, RefusesAnAnswerWithoutATokenAndTheLossNone) {
  const auto of = [](PreferenceLoss loss, std::int64_t tokens) {
    preference_loss({.loss = loss}, {-1, -1, tokens}, {-1, -1, 2});
  };
  EXPECT_THAT([&] { of(PreferenceLoss::simpo, 0); },
              testing::ThrowsMessage<Error>(HasSubstr("answers of 0 and 2 tokens")));
  EXPECT_THAT(
      [&] { of(PreferenceLoss::none, 1); },
      testing::ThrowsMessage<Error>(HasSubstr("the loss is none, which is not one of pairs")));
}

TEST(Unlearning, LossesAreOfTheRejectedAnswerAlone) {
  for (const auto& [chosen, rejected] : kTestPairs) {
    const double r = rejected.policy - rejected.reference, beta = 0.3;
    const PairLoss ascent = preference_loss({.loss = PreferenceLoss::ascent}, chosen, rejected);
    EXPECT_NEAR(ascent.value, r / static_cast<double>(rejected.tokens), 1e-14);
    EXPECT_NEAR(ascent.d_rejected, 1 / static_cast<double>(rejected.tokens), 1e-14);
    const PairLoss npo =
        preference_loss({.loss = PreferenceLoss::npo, .beta = beta}, chosen, rejected);
    EXPECT_NEAR(npo.value, 2 / beta * std::log(1 + std::exp(beta * r)), 1e-12);
    EXPECT_NEAR(npo.d_rejected, 2 * std::exp(beta * r) / (1 + std::exp(beta * r)), 1e-12);
    EXPECT_EQ(ascent.d_chosen, 0);
    EXPECT_EQ(npo.d_chosen, 0);
  }
  EXPECT_NO_THROW(validate_preference({.loss = PreferenceLoss::npo, .sft_weight = 1}));
}
