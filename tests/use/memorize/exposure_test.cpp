#include "axonn/use/memorize/exposure.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/memorize/arms.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

const std::vector<BucketConfig> kCanaryArms{
    {.name = "none",
     .size = 2,
     .times = 0,
     .when = {0, 1},
     .kind = DocumentKind::canary,
     .digits = 2},
    {.name = "seen",
     .size = 3,
     .times = 4,
     .when = {0, 1},
     .kind = DocumentKind::canary,
     .digits = 2},
    {.name = "others", .size = 1, .times = 0, .when = {0, 1}}};

TrialDocuments canaries(std::int64_t most) {
  return documents_of_arms(kCanaryArms, {}, *make_tokenizer("bytes"),
                           {.limits = {.least = 2, .most = most}});
}

}  // namespace

TEST(Exposure, IsTheBitsOfTheSpaceLessThoseOfTheRank) {
  EXPECT_DOUBLE_EQ((Exposure{.rank = 1, .candidates = 1024}.bits()), 10);
  EXPECT_DOUBLE_EQ((Exposure{.rank = 256, .candidates = 1024}.bits()), 2);
  EXPECT_DOUBLE_EQ((Exposure{.rank = 1024, .candidates = 1024}.bits()), 0);
}

TEST(Exposure, RanksEqualLossesLast) {
  EXPECT_EQ(rank_of_first(std::vector{1.0, 2.0, 3.0}), 1);
  EXPECT_EQ(rank_of_first(std::vector{1.0, 2.0, 0.5, 1.5, 0.9}), 3);
  EXPECT_EQ(rank_of_first(std::vector{1.0, 1.0, 1.0}), 3);
}

TEST(Canaries, AreRankedAmongAllOrSomeTextsWithOtherLastDigits) {
  const std::string text = "In 1842 Ada had 1234567.";
  const std::vector<std::string> all = other_canaries(text, {.digits = 2});
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 99u);
  EXPECT_EQ(all.front(), "In 1842 Ada had 1234500.");
  EXPECT_EQ(all.back(), "In 1842 Ada had 1234599.");
  EXPECT_THAT(all, testing::Not(testing::Contains(text)));
  const std::vector<std::string> some =
      other_canaries(text, {.digits = 4, .others = 50, .seed = 7});
  EXPECT_EQ(std::set<std::string>(some.begin(), some.end()).size(), 50u);
  EXPECT_THAT(some, testing::Not(testing::Contains(text)));
  for (const std::string& one : some) EXPECT_THAT(one, testing::StartsWith("In 1842 Ada had 123"));
  EXPECT_NE(some, other_canaries(text, {.digits = 4, .others = 50, .seed = 8}));
  EXPECT_EQ((CanarySpace{.digits = 4}.candidates()), 10'000);
  EXPECT_EQ((CanarySpace{.digits = 4, .others = 50}.candidates()), 51);
  EXPECT_THROW(other_canaries("Nobody had 12.", {.digits = 3}), Error);
}

TEST(Canaries, ThatWouldBeCutAreRefused) {
  EXPECT_EQ(canaries(193).tested, 6);
  EXPECT_THAT([] { canaries(100); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  HasSubstr("\"none\": a canary of 100 tokens"), HasSubstr("training.seq_len"))));
}

TEST(AddExposure, RanksByTheLossesOfWholeTextsOnEveryGrid) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.training.seq_len = 192;
  train_on_threads(config);
  const auto tokenizer = make_tokenizer("bytes");
  const TrialDocuments documents = canaries(193);
  const auto tested = std::span(*documents.all).first(documents.tested);
  const std::vector<CanarySpace> spaces = canary_spaces(kCanaryArms, documents, 1);
  EXPECT_EQ(spaces[4], (CanarySpace{.digits = 2}));
  EXPECT_EQ(spaces[5].digits, 0);
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    Config model = config_of_model(config.output.dir + "/checkpoints");
    model.parallelism.set_grid(grid);
    const PreparedRun run = prepared_model(model);
    run_ranks(grid.ranks(), [&](Communicator& world) {
      LoadedModel loaded(run, world, make_cpu_backend(1), {.trainable = false});
      loaded.initialise();
      const ReciteOptions options{
          .suffix_tokens = 20, .prompt_lengths = {kWholePrompt, 10}, .writes = false};
      std::vector<Recitation> found =
          recite(loaded, *tokenizer, {documents.all, documents.tested}, options);
      add_exposure(loaded, *tokenizer, {tested, spaces}, options, found);
      for (const Recitation& one : found) {
        ASSERT_EQ(one.exposure.has_value(), one.prompt == 0 && one.document < 5);
        if (!one.exposure) continue;
        // By the losses of whole texts, one text at a time.
        const auto nats = [&](const std::string& text) {
          const std::vector<std::int32_t> tokens = tokenizer->encode_prompt(text);
          const std::int64_t targets = std::ssize(tokens) - 1;
          const auto at = [&](std::int64_t) {
            return ScoredSequence{.tokens = tokens, .scored = targets, .positions = targets};
          };
          return score(loaded, {.count = 1, .at = at}, {}).at(0).nats;
        };
        const std::string text = tokenizer->decode(tested[one.document].tokens);
        const double own = nats(text);
        std::int64_t less = 1, near = 0;
        for (const std::string& other : other_canaries(text, spaces[one.document])) {
          const double loss = nats(other);
          near += std::abs(loss - own) < 1e-3;  // of sums of 150 losses in f32
          less += loss < own - 1e-3;
        }
        EXPECT_EQ(one.exposure->candidates, 100);
        EXPECT_GE(one.exposure->rank, less);
        EXPECT_LE(one.exposure->rank, less + near);
      }
    });
  }
}
