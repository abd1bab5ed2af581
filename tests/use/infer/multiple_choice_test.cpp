#include "axonn/use/infer/multiple_choice.h"

#include <array>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/runs.h"
#include "tests/support/with_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

Config small_gpt() {
  Config config;
  config.model = {.layers = 2, .hidden = 24, .heads = 12, .vocab = 256, .positions = 24};
  config.model.init_std = 0.3;
  config.training.threads = 1;
  return config;
}

const std::vector<ChoiceQuestion> kQuestions{
    {"Which way", {"up", "down the hill", "x"}, 1},
    {"It", {"is", "was"}, 0},
    {"A question that is longer than the model has positions", {"yes", "no"}, 1},
    {"The end", {"b", "aa", "b"}, 2}};

ChoiceReport report_on(const GridShape& grid, std::int64_t batch) {
  ChoiceReport result;
  const auto tokenizer = make_tokenizer("bytes");
  with_model(on_grid(small_gpt(), grid), [&](LoadedModel& model) {
    const ChoiceReport mine = evaluate_choices(model, kQuestions, *tokenizer, {.batch = batch});
    if (model.grid().world().rank() == 0) result = mine;
  });
  return result;
}

/// Returns the log-likelihood of the last `scored` bytes of text, computed byte by byte, each from
/// the text before it.
double log_likelihood(LoadedModel& model, std::string text, std::size_t scored) {
  const auto positions = static_cast<std::size_t>(model.config().model.positions);
  if (text.size() > positions + 1) text = text.substr(text.size() - positions - 1);
  double sum = 0;
  for (std::size_t at = text.size() - scored; at < text.size(); ++at) {
    const std::vector<std::int32_t> ids(text.begin(), text.begin() + at);
    const auto count = static_cast<std::int64_t>(at);
    const Context ctx = model.context();
    const Tensor logits = model.model().next_logits(ctx, make_tokens(ctx, ids, {}, {1, count}),
                                                    std::array{count - 1});
    const float* values = logits.view().as<float>();
    double total = 0;
    for (int v = 0; v < 256; ++v) total += std::exp(double{values[v]});
    sum += values[static_cast<unsigned char>(text[at])] - std::log(total);
  }
  return sum;
}

}  // namespace

TEST(Choices, LogLikelihoodsAreSumsOverTheChoicesBytesGivenTheQuestion) {
  const auto tokenizer = make_tokenizer("bytes");
  with_model(small_gpt(), [&](LoadedModel& model) {
    const ChoiceReport report = evaluate_choices(model, kQuestions, *tokenizer, {.batch = 3});
    for (std::size_t q = 0; q < kQuestions.size(); ++q)
      for (std::size_t c = 0; c < kQuestions[q].choices.size(); ++c) {
        const std::string& choice = kQuestions[q].choices[c];
        const double want =
            log_likelihood(model, kQuestions[q].question + ' ' + choice, choice.size() + 1);
        EXPECT_NEAR(report.questions[q].log_likelihoods[c], want, 1e-5 * -want) << q << ' ' << c;
      }
  });
}

TEST(Choices, ChoosesTheLikeliestInTotalAndPerByteAndTheFirstOfEquals) {
  const ChoiceReport report = report_on({}, 2);
  std::int64_t right = 0, right_by_byte = 0;
  for (std::size_t q = 0; q < kQuestions.size(); ++q) {
    const ChoiceScore& score = report.questions[q];
    std::int64_t best = 0, best_by_byte = 0;
    const auto by_byte = [&](std::int64_t c) {
      return score.log_likelihoods[c] / static_cast<double>(kQuestions[q].choices[c].size());
    };
    for (std::int64_t c = 1; c < std::ssize(score.log_likelihoods); ++c) {
      if (score.log_likelihoods[c] > score.log_likelihoods[best]) best = c;
      if (by_byte(c) > by_byte(best_by_byte)) best_by_byte = c;
    }
    EXPECT_EQ(score.chosen, best);
    EXPECT_EQ(score.chosen_by_byte, best_by_byte);
    right += best == kQuestions[q].answer;
    right_by_byte += best_by_byte == kQuestions[q].answer;
  }
  const ChoiceScore& equal = report.questions[3];
  EXPECT_EQ(equal.log_likelihoods[0], equal.log_likelihoods[2]);
  EXPECT_NE(equal.chosen, 2);
  EXPECT_DOUBLE_EQ(report.accuracy.share, static_cast<double>(right) / 4);
  EXPECT_DOUBLE_EQ(report.accuracy.error,
                   std::sqrt(report.accuracy.share * (1 - report.accuracy.share) / 3));
  EXPECT_DOUBLE_EQ(report.accuracy_by_byte.share, static_cast<double>(right_by_byte) / 4);
  EXPECT_NE(report.questions[0].chosen, report.questions[0].chosen_by_byte)
      << "the test needs a question where the two choices differ";
}

TEST(Choices, HaveTheAccuraciesOfTheHarnessAlsoBeyondAscii) {
  // Lengths as Python's len(text) and len(text.encode()) have them.
  const ChoiceQuestion question{"Where?", {"\u00fc", "ab", "\u5317\u4eac", "\U0001f600!"}, 1};
  const std::vector<double> characters{1, 2, 2, 2}, bytes{2, 2, 6, 5};
  const auto tokenizer = make_tokenizer("bytes");
  with_model(small_gpt(), [&](LoadedModel& model) {
    const ChoiceReport report =
        evaluate_choices(model, std::array{question}, *tokenizer, {.batch = 4});
    const ChoiceScore& score = report.questions[0];
    std::size_t in_total = 0, by_character = 0, by_byte = 0;
    for (std::size_t c = 1; c < 4; ++c) {
      const auto better = [&](std::size_t than, auto length) {
        return score.log_likelihoods[c] / length(c) > score.log_likelihoods[than] / length(than);
      };
      if (better(in_total, [](std::size_t) { return 1; })) in_total = c;
      if (better(by_character, [&](std::size_t i) { return characters[i]; })) by_character = c;
      if (better(by_byte, [&](std::size_t i) { return bytes[i]; })) by_byte = c;
    }
    EXPECT_EQ(score.chosen, in_total);
    EXPECT_EQ(score.chosen_by_character, by_character);
    EXPECT_EQ(score.chosen_by_byte, by_byte);
    EXPECT_NE(by_character, by_byte) << "the test needs a question where these differ";
    EXPECT_EQ(report.accuracy.share, in_total == 1 ? 1 : 0);
    EXPECT_EQ(report.accuracy_by_character.share, by_character == 1 ? 1 : 0);
    EXPECT_EQ(report.accuracy_by_byte.share, by_byte == 1 ? 1 : 0);
  });
}

TEST(Choices, AgreeOnEveryGridAndForEveryBatchSize) {
  const ChoiceReport one = report_on({}, 1);
  for (const GridShape grid : {GridShape{}, GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2},
                               GridShape{2, 1, 2, 1}, GridShape{.data = 5}})
    for (const std::int64_t batch : {1, 4}) {
      const ChoiceReport other = report_on(grid, batch);
      for (std::size_t q = 0; q < kQuestions.size(); ++q) {
        EXPECT_EQ(other.questions[q].chosen, one.questions[q].chosen);
        EXPECT_EQ(other.questions[q].greedy, one.questions[q].greedy);
        for (std::size_t c = 0; c < kQuestions[q].choices.size(); ++c) {
          const double want = one.questions[q].log_likelihoods[c];
          EXPECT_NEAR(other.questions[q].log_likelihoods[c], want, 2e-6 * -want)
              << to_string(grid) << " batch " << batch;
        }
      }
    }
}

TEST(Choices, AChoiceLongerThanTheModelsPositionsIsRejected) {
  const auto tokenizer = make_tokenizer("bytes");
  with_model(small_gpt(), [&](LoadedModel& model) {
    const std::vector<ChoiceQuestion> fits{{"q", {std::string(23, 'a'), "b"}, 0}};
    EXPECT_EQ(evaluate_choices(model, fits, *tokenizer, {}).questions.size(), 1);
    const std::vector<ChoiceQuestion> long_ones{kQuestions[0], {"q", {std::string(24, 'a'), "b"}}};
    EXPECT_THAT([&] { evaluate_choices(model, long_ones, *tokenizer, {}); },
                ThrowsMessage<UsageError>(HasSubstr("question 2: choice 0 has 25 tokens")));
  });
}
