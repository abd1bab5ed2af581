// Values of TRL 1.16.0: GRPOTrainer and RLOOTrainer with these log-probabilities, in float64;
// rewards and advantages in float32.
#include "axonn/run/config/policy_loss.h"

#include <array>
#include <cmath>
#include <string>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

using TokenValues = std::vector<std::vector<double>>;

/// Of two prompts, four answers each.
const TokenValues kPolicy = {
    {-1.697998046875, -1.091552734375, -4.452392578125, -1.703125, -1.403076171875, -1.637939453125,
     -0.73876953125},
    {-0.852783203125, -2.273193359375, -2.530029296875, -0.934814453125, -0.719970703125,
     -2.2763671875, -1.556884765625},
    {-0.42138671875, -0.97900390625, -0.8203125, -1.9658203125, -1.30908203125, -1.450439453125,
     -0.384765625, -0.865478515625},
    {-0.94970703125, -1.581298828125, -1.364990234375, -1.89501953125, -1.598876953125,
     -0.796630859375, -1.15283203125, -1.621826171875},
    {-0.58935546875, -0.752197265625, -1.593505859375, -0.6806640625, -0.737548828125,
     -1.113525390625, -0.235107421875, -2.7236328125},
    {-1.87890625, -2.162109375, -2.02197265625, -0.306396484375, -0.335693359375, -0.95849609375,
     -3.391845703125, -1.519775390625},
    {-0.49609375, -1.64892578125, -1.518310546875, -0.509521484375, -0.604248046875, -0.7470703125,
     -2.0634765625},
    {-1.78662109375, -1.591552734375, -1.24365234375, -1.778076171875, -2.036376953125},
};
const TokenValues kOld = {
    {-1.9228515625, -0.924072265625, -4.591796875, -1.448486328125, -1.46923828125, -2.197998046875,
     -1.15185546875},
    {-0.183837890625, -2.1357421875, -2.891845703125, -0.94921875, -1.091796875, -2.03857421875,
     -1.33447265625},
    {-0.542724609375, -1.1396484375, -0.854248046875, -2.057861328125, -1.785888671875,
     -1.151123046875, -0.091552734375, -1.024169921875},
    {-1.15087890625, -1.54296875, -1.637451171875, -1.4892578125, -1.092041015625, -1.0546875,
     -0.869140625, -1.55224609375},
    {-0.572509765625, -0.7890625, -1.906005859375, -0.38671875, -0.49365234375, -0.63134765625,
     -0.0048828125, -2.9599609375},
    {-2.09033203125, -2.663330078125, -1.959716796875, -0.427978515625, -0.163818359375,
     -0.882080078125, -4.099609375, -1.541015625},
    {-0.570068359375, -0.93701171875, -1.333251953125, -0.71875, -0.622802734375, -0.593505859375,
     -1.903564453125},
    {-1.74951171875, -1.798095703125, -1.66357421875, -1.704345703125, -2.078369140625},
};
const TokenValues kReference = {
    {-2.14697265625, -2.133544921875, -4.493408203125, -1.855224609375, -0.912841796875,
     -2.090576171875, -0.859619140625},
    {-1.0673828125, -2.737060546875, -2.05908203125, -1.1318359375, -0.07666015625, -2.7900390625,
     -1.699462890625},
    {-0.08642578125, -1.461669921875, -1.4755859375, -2.065185546875, -0.4853515625, -1.49560546875,
     -1.17919921875, -0.7294921875},
    {-0.874267578125, -1.6865234375, -1.19677734375, -1.339599609375, -2.214599609375,
     -0.23583984375, -1.263916015625, -2.16943359375},
    {-1.21826171875, -0.011962890625, -1.91552734375, -0.706787109375, -0.78857421875,
     -0.82373046875, -0.0048828125, -3.230224609375},
    {-1.445068359375, -2.440185546875, -2.611572265625, -0.876953125, -0.992431640625,
     -0.0048828125, -2.639404296875, -1.807861328125},
    {-0.597412109375, -1.395263671875, -0.0048828125, -0.021240234375, -0.49951171875, -0.96875,
     -2.955810546875},
    {-1.860595703125, -1.009033203125, -1.561279296875, -1.8994140625, -1.68701171875},
};
const TokenValues kSampler = {
    {-1.772216796875, -0.72998046875, -4.859375, -1.049560546875, -1.633056640625, -1.884521484375,
     -1.22998046875},
    {-0.325927734375, -2.4072265625, -2.177001953125, -0.50732421875, -1.255615234375,
     -1.829345703125, -1.80615234375},
    {-0.68798828125, -1.32275390625, -0.755615234375, -2.510009765625, -2.25048828125,
     -1.527587890625, -0.00390625, -0.99072265625},
    {-1.149658203125, -1.36181640625, -1.646728515625, -1.39794921875, -1.166015625, -1.18115234375,
     -0.592529296875, -1.782958984375},
    {-0.72412109375, -1.224365234375, -1.74560546875, -0.413330078125, -0.916015625, -0.34716796875,
     -0.00390625, -3.20654296875},
    {-1.724609375, -2.924072265625, -2.086669921875, -0.60791015625, -0.199951171875, -0.701171875,
     -3.56591796875, -1.33984375},
    {-0.515869140625, -1.03173828125, -1.3359375, -0.849365234375, -0.415771484375, -0.3095703125,
     -2.07275390625},
    {-1.966796875, -2.3369140625, -1.794921875, -1.489501953125, -2.2236328125},
};
/// Of each answer: whether it is right, and its format.
const TokenValues kRewards = {
    {0.0, 0.694}, {0.0, 0.552}, {0.5, 0.388}, {0.0, 0.319},
    {0.0, 0.989}, {0.0, 0.171}, {1.0, 0.426}, {0.0, 0.326},
};
constexpr std::array<bool, 8> kTruncated = {false, false, true, false, true, false, false, false};

struct PublishedLoss {
  const char* name;
  RlConfig config;
  double loss;
  std::array<double, 8> advantages;
  std::array<double, 8> slopes;  // of each answer, the sum of the derivatives, the t-th times t
};

/// What a config makes of the answers.
struct Losses {
  double loss = 0;
  std::vector<double> advantages, slopes;
};

Losses losses_of(const RlConfig& config, const TokenValues& policy) {
  std::vector<double> rewards;
  std::vector<std::vector<std::uint8_t>> counts;
  PolicyDivisors by{.answers = 8};
  for (std::size_t i = 0; i < 8; ++i) {
    const bool counted = !config.mask_truncated || !kTruncated[i];
    counts.emplace_back(policy[i].size(), counted ? 1 : 0);
    by.tokens += counted ? static_cast<double>(policy[i].size()) : 0;
    double reward = reward_sum(config, kRewards[i]);
    if (config.loss == PolicyLoss::rloo)
      for (std::size_t t = 0; t < policy[i].size(); ++t)
        reward -= kl_of(config) * (kOld[i][t] - kReference[i][t]);
    rewards.push_back(reward);
  }
  Losses all{.advantages = advantages(config, rewards)};
  for (std::size_t i = 0; i < 8; ++i) {
    std::vector<double> d(policy[i].size());
    all.loss += policy_loss(config,
                            {.policy = policy[i],
                             .old = kOld[i],
                             .reference = kReference[i],
                             .sampler = kSampler[i],
                             .counts = counts[i],
                             .advantage = all.advantages[i]},
                            by, d)
                    .loss;
    double slope = 0;
    for (std::size_t t = 0; t < d.size(); ++t) slope += static_cast<double>(t + 1) * d[t];
    all.slopes.push_back(slope);
  }
  return all;
}

const std::vector<PublishedLoss> kPublished = {
    PublishedLoss{
        "grpo dapo (default)",
        {.loss = PolicyLoss::dapo,
         .group = 4,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.037507943492696476,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.07886740805922761, 0.10114108959743665, -0.5928992317309995, 0.47215761374336906,
         -0.14780489704503516, 0.7223359672320973, -0.4268182443798662, 0.2003605277966583}},
    PublishedLoss{
        "grpo grpo",
        {.loss = PolicyLoss::grpo,
         .group = 4,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.05226531342917637,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.08168410120420003, 0.10475327136877365, -0.5373149287562183, 0.42789283745492823,
         -0.1339481879470631, 0.6546169703040879, -0.44206175310771856, 0.29052276530515464}},
    PublishedLoss{
        "grpo bnpo",
        {.loss = PolicyLoss::bnpo,
         .group = 4,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.037507943492696476,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.07886740805922761, 0.10114108959743665, -0.5928992317309995, 0.47215761374336906,
         -0.14780489704503516, 0.7223359672320973, -0.4268182443798662, 0.2003605277966583}},
    PublishedLoss{
        "grpo dr_grpo, no std",
        {.loss = PolicyLoss::dr_grpo,
         .group = 4,
         .scale_rewards = RewardScale::none,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.020996176771444365,
        {0.0807499885559082, -0.06125003099441528, 0.2747499942779541, -0.2942500114440918,
         0.26100003719329834, -0.5569999814033508, 0.6980000138282776, -0.40199998021125793},
        {-0.0171380978622903, 0.021978229585920273, -0.12883858467425935, 0.10260110837476852,
         -0.07839227664081733, 0.3831101851514477, -0.22637446521402774, 0.10626655675647588}},
    PublishedLoss{
        "grpo grpo, batch std",
        {.loss = PolicyLoss::grpo,
         .group = 4,
         .scale_rewards = RewardScale::batch,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.07695052262524998,
        {0.1929159015417099, -0.14632949233055115, 0.6563919186592102, -0.7029784917831421,
         0.6235426068305969, -1.3307017087936401, 1.6675580739974976, -0.9603987336158752},
        {-0.04679291737643056, 0.06000814554317066, -0.30780202931003303, 0.24511935298353474,
         -0.1872832090663612, 0.9152700090812109, -0.6180803270338183, 0.4062020758548519}},
    PublishedLoss{
        "grpo gspo",
        {.loss = PolicyLoss::grpo,
         .group = 4,
         .clip = 0.05,
         .clip_high = 0.06,
         .importance_sampling_level = RatioLevel::sequence,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.03290026192637324,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {0.0, 0.0, -0.6819030124234869, 0.0, -0.23037525022986338, 0.6261026929698447,
         -0.5237353621976891, 0.28797506883252577}},
    PublishedLoss{
        "grpo dapo, clip higher",
        {.loss = PolicyLoss::dapo,
         .group = 4,
         .clip = 0.2,
         .clip_high = 0.28,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.0328956370684788,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.08613767046757549, 0.10114108959743665, -0.5928992317309995, 0.47215761374336906,
         -0.22571649806644345, 0.7223359672320973, -0.5282135330814555, 0.2003605277966583}},
    PublishedLoss{
        "grpo kl 0.04",
        {.loss = PolicyLoss::grpo,
         .group = 4,
         .kl = 0.04,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.058266254743006674,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.07714662483744472, 0.10350531014466724, -0.5375251159722005, 0.42797910375647874,
         -0.13178569501571827, 0.6507111463275403, -0.4423405054172917, 0.2892409694595662}},
    PublishedLoss{
        "grpo kl 0.04, not corrected",
        {.loss = PolicyLoss::grpo,
         .group = 4,
         .kl = 0.04,
         .kl_correction = false,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.05798465338315534,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.08014209943299214, 0.10380524479255827, -0.5381085888416463, 0.42695336412032636,
         -0.13469673477479815, 0.6483681860420396, -0.4483853254046183, 0.2881955852503134}},
    PublishedLoss{
        "grpo truncated answers masked",
        {.loss = PolicyLoss::dapo,
         .group = 4,
         .mask_truncated = true,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.35622064643140744,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.10891213493893337, 0.1396710284916982, 0.0, 0.6520271808837002, 0.0, 0.9975115737967055,
         -0.5894156708102913, 0.276688347909671}},
    PublishedLoss{
        "grpo truncated answers masked, grpo",
        {.loss = PolicyLoss::grpo,
         .group = 4,
         .mask_truncated = true,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.25204353885953135,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.08168410120420003, 0.10475327136877365, 0.0, 0.42789283745492823, 0.0,
         0.6546169703040879, -0.44206175310771856, 0.29052276530515464}},
    PublishedLoss{
        "grpo reward weights",
        {.loss = PolicyLoss::dapo,
         .group = 4,
         .reward_weights = {1.0, 0.2},
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.028251143516289517,
        {-0.3512120842933655, -0.47016772627830505, 1.486735463142395, -0.665355384349823,
         -0.2966408133506775, -0.6249929666519165, 1.4844086170196533, -0.5627747178077698},
        {0.19873436481129325, 0.18616206507843172, -0.7692968151684052, 0.25600073966612946,
         0.08843800808325511, 0.47434642068545474, -0.5312237133558952, 0.1641561418697712}},
    PublishedLoss{
        "grpo cispo, bound 5",
        {.loss = PolicyLoss::cispo,
         .group = 4,
         .clip_high = 5.0,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        -0.20037152259443924,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.20856278899702052, 0.12422955418216686, -0.7520237704202792, 0.7038119463745345,
         -0.2572458047984011, 0.7223359672320971, -0.5282135330814555, 0.2003605277966583}},
    PublishedLoss{
        "grpo sampler: sequence_mask (default)",
        {.loss = PolicyLoss::dapo,
         .group = 4,
         .sampler_correction = SamplerCorrection::sequence_mask,
         .max_tokens = 8},
        0.14316892868765857,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.04561153483951021, 0.0736719358379839, 0.0, 0.42303274018542314, -0.34131547744206364,
         0.3667777153230087, -0.3681200274986468, 0.45395109704405845}},
    PublishedLoss{
        "grpo sampler: token_truncate, 2",
        {.loss = PolicyLoss::dapo,
         .group = 4,
         .sampler_correction = SamplerCorrection::token_truncate,
         .sampler_clip = 2.0,
         .max_tokens = 8},
        -0.0003919705805198775,
        {0.33676382899284363, -0.25544020533561707, 1.1458312273025513, -1.227155089378357,
         0.4459684491157532, -0.9517409205436707, 1.1926664113998413, -0.6868938207626343},
        {-0.08287655566918885, 0.10802237422627076, -0.6749025622862045, 0.5292783900967546,
         -0.16710793283915673, 0.6197432986854818, -0.4046634239957514, 0.2326580599767314}},
    PublishedLoss{
        "rloo default",
        {.loss = PolicyLoss::rloo,
         .group = 4,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.3244471854612308,
        {0.09936589002609253, -0.09997723499933875, 0.388338553905487, -0.38772720893224083,
         0.263173359632492, -0.6964711964130402, 0.9252996305624644, -0.49200179378191633},
        {0.0, 0.0, 0.0, 0.0, -0.5991391587180908, 10.968572106005567, -1.3053012972640288,
         1.611157605603094}},
    PublishedLoss{
        "rloo beta 0",
        {.loss = PolicyLoss::rloo,
         .group = 4,
         .kl = 0.0,
         .sampler_correction = SamplerCorrection::none,
         .max_tokens = 8},
        0.34931202649113,
        {0.10766667127609253, -0.08166670799255371, 0.3663333058357239, -0.39233332872390747,
         0.34800004959106445, -0.7426666617393494, 0.9306666851043701, -0.5360000133514404},
        {0.0, 0.0, 0.0, 0.0, -0.792255178248301, 11.696094356762949, -1.3128724915287209,
         1.7552385154459864}},
};

class PolicyLosses : public testing::TestWithParam<PublishedLoss> {};

}  // namespace

TEST_P(PolicyLosses, AreThoseOfTrl) {
  const PublishedLoss& want = GetParam();
  const Losses got = losses_of(want.config, kPolicy);
  EXPECT_NEAR(got.loss, want.loss, 2e-6 * std::max(1.0, std::abs(want.loss)));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(got.advantages[i], want.advantages[i], 1e-6) << i;
    EXPECT_NEAR(got.slopes[i], want.slopes[i], 1e-6) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Published, PolicyLosses, testing::ValuesIn(kPublished),
                         [](const auto& published) {
                           std::string name;
                           for (const char c : std::string(published.param.name))
                             if (std::isalnum(static_cast<unsigned char>(c))) name += c;
                           return name;
                         });

/// Of losses that TRL's values do not have, too.
TEST(PolicyLossSlopes, AreThoseOfDifferences) {
  for (const PolicyLoss loss :
       {PolicyLoss::grpo, PolicyLoss::dapo, PolicyLoss::dr_grpo, PolicyLoss::bnpo, PolicyLoss::gspo,
        PolicyLoss::cispo, PolicyLoss::sapo, PolicyLoss::luspo, PolicyLoss::rloo})
    for (const bool whole : {false, true}) {
      RlConfig config{.loss = loss, .group = 4, .delta = 2, .kl = 0.1, .max_tokens = 8};
      // Of an even loss k1, of an odd one k2, and k3 of single tokens.
      if (whole) config.kl_estimator = static_cast<KlEstimator>(static_cast<int>(loss) % 2 + 1);
      config.sampler_correction = SamplerCorrection::none;
      if (whole) config.importance_sampling_level = RatioLevel::sequence;
      const Losses at = losses_of(config, kPolicy);
      for (std::size_t i = 0; i < 8; ++i) {
        double slope = 0;
        for (std::size_t t = 0; t < kPolicy[i].size(); ++t) {
          constexpr double kStep = 1e-6;
          TokenValues above = kPolicy, below = kPolicy;
          above[i][t] += kStep;
          below[i][t] -= kStep;
          // The first factor of cispo has no gradient.
          if (loss == PolicyLoss::cispo) continue;
          slope += static_cast<double>(t + 1) *
                   (losses_of(config, above).loss - losses_of(config, below).loss) / (2 * kStep);
        }
        if (loss != PolicyLoss::cispo) {
          EXPECT_NEAR(at.slopes[i], slope, 1e-7)
              << kPolicyLosses[static_cast<std::size_t>(loss)] << ' ' << whole << ' ' << i;
        }
      }
    }
}

TEST(PolicyLossSlopes, OfEqualRewardsAreExactly0) {
  RlConfig config{.loss = PolicyLoss::grpo, .group = 4};
  const std::vector<double> equal(8, 0.7), none(8, NAN);
  EXPECT_THAT(advantages(config, equal), testing::Each(0.0));
  EXPECT_THAT(advantages(config, none), testing::Each(0.0));
  EXPECT_EQ(share_without_spread(config, equal), 1);
}

/// Those of the policy itself: the ratio is 1, and the slope that of REINFORCE.
TEST(PolicyLossSlopes, WithoutAnOldPolicyAreMinusTheAdvantage) {
  RlConfig config{.loss = PolicyLoss::dapo, .group = 2};
  const std::vector<double> policy = {-1, -2, -3};
  const std::vector<std::uint8_t> counts = {1, 0, 1};
  std::vector<double> d(3);
  const PolicyPart part =
      policy_loss(config, {.policy = policy, .counts = counts, .advantage = 0.5},
                  {.answers = 1, .tokens = 2}, d);
  EXPECT_EQ(part.loss, -0.5);
  EXPECT_THAT(d, testing::ElementsAre(-0.25, 0, -0.25));
}

TEST(KlEstimators, AreThoseOfTheirFormulas) {
  const std::vector<double> policy{-1.2}, reference{-1.0};
  const std::vector<std::uint8_t> counts{1};
  for (const auto& [estimator, value, slope] :
       {std::tuple{KlEstimator::k1, -0.2, 1.0},
        {KlEstimator::k2, 0.02, -0.2},
        {KlEstimator::k3, 0.0214027581601699, -0.2214027581601699}}) {
    RlConfig config{.loss = PolicyLoss::dapo, .kl = 0.5, .kl_correction = false};
    config.kl_estimator = estimator;
    std::vector<double> d(1);
    const PolicyPart part = policy_loss(
        config, {.policy = policy, .reference = reference, .counts = counts}, {1, 1}, d);
    EXPECT_NEAR(part.kl, value, 1e-15);
    EXPECT_NEAR(part.loss, 0.5 * value, 1e-15);
    EXPECT_NEAR(d[0], 0.5 * slope, 1e-15);
  }
}

TEST(OverlongReward, FallsOverTheLastTokens) {
  const RlConfig config{.max_tokens = 100, .rewards = {"overlong"}, .overlong_buffer = 20};
  for (const auto& [tokens, reward] :
       {std::pair{1, 0.0}, {80, 0.0}, {81, -0.05}, {90, -0.5}, {100, -1.0}, {120, -1.0}})
    EXPECT_DOUBLE_EQ(overlong_reward(config, tokens), reward) << tokens;
}

TEST(PolicyLossKeys, AreRefusedWithTheRemedy) {
  const auto refused = [](RlConfig config) { validate_rl(config); };
  EXPECT_THAT([&] { refused({.loss = PolicyLoss::grpo, .group = 1}); },
              ThrowsMessage<UsageError>(HasSubstr("[rl] group = 1")));
  EXPECT_THAT([&] { refused({.loss = PolicyLoss::grpo, .clip = 1.5}); },
              ThrowsMessage<UsageError>(HasSubstr("[rl] clip = 1.5")));
  EXPECT_THAT([&] { refused({.loss = PolicyLoss::grpo, .delta = 1.1}); },
              ThrowsMessage<UsageError>(HasSubstr("[rl] delta = 1.1")));
  EXPECT_THAT([&] { refused({.loss = PolicyLoss::grpo, .temperature = 0}); },
              ThrowsMessage<UsageError>(HasSubstr("[rl] temperature = 0")));
  EXPECT_THAT(
      [&] { refused({.loss = PolicyLoss::grpo, .max_tokens = 9, .rewards = {"overlong"}}); },
      ThrowsMessage<UsageError>(HasSubstr("[rl] overlong_buffer = 0")));
  EXPECT_THAT(
      [&] { refused({.loss = PolicyLoss::gspo, .importance_sampling_level = RatioLevel::token}); },
      ThrowsMessage<UsageError>(HasSubstr("importance_sampling_level = token")));
}
