// What rank 0 tells the other ranks of a server arrives complete.
#include "axonn/app/serve/orders.h"

#include <gtest/gtest.h>

using namespace axonn;

TEST(Orders, ArriveWithEveryOption) {
  RequestQueue::Orders sent{.stop = true, .cancel = {3, 5}};
  sent.add.push_back({.prompt = {1, 2, 3},
                      .options = {.max_tokens = 7,
                                  .sampling = {0.5, 40, 0.9, 1.1, 0.1, 0.2, -0.3},
                                  .beams = {5, 3, -0.5, EarlyStopping::never},
                                  .seed = std::uint64_t{1} << 63,
                                  .random_stream = 9,
                                  .likeliest = 4,
                                  .score_prompt = true,
                                  .stop_tokens = {0, 2},
                                  .stop_strings = {"\xFF, not UTF-8"},
                                  .min_tokens = 3,
                                  .logit_bias = {{4, -1.5f}},
                                  .form = R"({"text":"a"})",
                                  .shown_tokens = {11},
                                  .slides = true,
                                  .ends_if_not_finite = true,
                                  .pooling = Pooling::last,
                                  .adapter = 2}});
  sent.add.push_back({.prompt = {4}});
  const RequestQueue::Orders got = unpacked(packed(sent));
  EXPECT_TRUE(got.stop);
  EXPECT_EQ(got.cancel, sent.cancel);
  ASSERT_EQ(got.add.size(), 2u);
  EXPECT_EQ(got.add[0].prompt, sent.add[0].prompt);
  EXPECT_EQ(got.add[0].options, sent.add[0].options);
  EXPECT_EQ(got.add[1].options, GenerationOptions());
}
