#include "axonn/options/options_suggest.h"

#include <gmock/gmock.h>

using namespace axonn;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwappedNeighboursAsOneEach) {
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("steps", "step"), 1);
  EXPECT_EQ(edit_distance("steps", "stepps"), 1);
  EXPECT_EQ(edit_distance("steps", "stops"), 1);
  EXPECT_EQ(edit_distance("steps", "stesp"), 1);
  EXPECT_EQ(edit_distance("steps", "tseps"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(EditDistance, IgnoresCaseAndTheKindOfDash) {
  EXPECT_EQ(edit_distance("Seq-Len", "seq_len"), 0);
}

TEST(Nearest, GivesAllCandidatesAtTheLeastDistanceAndNoneThatIsTooFar) {
  const std::vector<std::string> words = {"beta1", "beta2", "eps", "weight_decay"};
  EXPECT_THAT(nearest("beta", words), ElementsAre("beta1", "beta2"));
  EXPECT_THAT(nearest("beta11", words), ElementsAre("beta1"));
  EXPECT_THAT(nearest("weigt_deacy", words), ElementsAre("weight_decay"));
  EXPECT_THAT(nearest("momentum", words), IsEmpty());
}

TEST(DidYouMean, JoinsGuessesIntoAQuestionAndIsEmptyWithoutAny) {
  EXPECT_EQ(did_you_mean({}), "");
  const std::vector<std::string> one = {"lr"}, three = {"x", "y", "[data] z"};
  EXPECT_EQ(did_you_mean(one), "; did you mean 'lr'?");
  EXPECT_EQ(did_you_mean(three), "; did you mean 'x', 'y' or [data] z?");
}
