#include "axonn/infer/multiple_choice.h"

#include <algorithm>
#include <cmath>

#include "axonn/base/check.h"

namespace axonn {

namespace {

constexpr std::int64_t kLengthStep =
    16;  // lengths are padded to multiples of it, so that they are few

/// All choices of all questions, each after its question, the longest first.
class ChoiceSequences final : public ScoredSequences {
 public:
  ChoiceSequences(std::span<const ChoiceQuestion> questions, const Tokenizer& tokenizer,
                  std::int64_t positions)
      : positions_(positions) {
    for (std::size_t q = 0; q < questions.size(); ++q)
      for (std::size_t c = 0; c < questions[q].choices.size(); ++c)
        sequences_.push_back({q, c, encode(questions[q], c, tokenizer, q + 1)});
    std::ranges::stable_sort(sequences_, [](const Sequence& a, const Sequence& b) {
      return a.text.tokens.size() > b.text.tokens.size();
    });
  }

  std::int64_t count() const override { return std::ssize(sequences_); }
  std::int64_t length(std::int64_t n) const override {
    const std::int64_t inputs = std::ssize(sequences_[n].text.tokens) - 1;
    return std::min((inputs + kLengthStep - 1) / kLengthStep * kLengthStep, positions_);
  }
  void read(std::int64_t n, std::span<std::int32_t> ids,
            std::span<std::int32_t> targets) const override {
    const Continuation& text = sequences_[n].text;
    const std::int64_t inputs = std::ssize(text.tokens) - 1;
    std::copy_n(text.tokens.begin(), inputs, ids.begin());
    std::copy(text.tokens.end() - text.scored, text.tokens.end(),
              targets.begin() + inputs - text.scored);
  }

  std::size_t question(std::int64_t n) const { return sequences_[n].question; }
  std::size_t choice(std::int64_t n) const { return sequences_[n].choice; }

 private:
  struct Sequence {
    std::size_t question, choice;
    Continuation text;
  };

  Continuation encode(const ChoiceQuestion& question, std::size_t choice,
                      const Tokenizer& tokenizer, std::size_t number) const {
    Continuation text;
    try {
      text = encode_continuation(tokenizer, question.question, " " + question.choices[choice]);
    } catch (const UsageError& error) {
      refuse("question ", number, ": ", error.what());
    }
    if (text.scored > positions_)
      refuse("question ", number, ": choice ", choice, " has ", text.scored,
             " tokens; the model has ", positions_, " positions");
    const std::int64_t beyond = std::ssize(text.tokens) - (positions_ + 1);
    if (beyond > 0) text.tokens.erase(text.tokens.begin(), text.tokens.begin() + beyond);
    return text;
  }

  std::int64_t positions_;
  std::vector<Sequence> sequences_;
};

void choose(ChoiceScore& score, const ChoiceQuestion& question) {
  const auto largest = [](const std::vector<double>& values) {
    return std::ranges::max_element(values) - values.begin();
  };
  std::vector<double> by_byte = score.log_likelihoods;
  for (std::size_t c = 0; c < by_byte.size(); ++c)
    by_byte[c] /= static_cast<double>(question.choices[c].size());
  score.chosen = largest(score.log_likelihoods);
  score.chosen_by_byte = largest(by_byte);
}

Accuracy accuracy_of(std::int64_t right, std::int64_t of) {
  const double share = static_cast<double>(right) / static_cast<double>(of);
  const double freedom = static_cast<double>(std::max<std::int64_t>(of - 1, 1));
  return {share, std::sqrt(share * (1 - share) / freedom)};
}

}  // namespace

ChoiceReport evaluate_choices(LoadedModel& model, std::span<const ChoiceQuestion> questions,
                              const Tokenizer& tokenizer, const ScoreOptions& options) {
  AXONN_CHECK(!questions.empty(), "evaluate_choices: there are no questions");
  const ChoiceSequences sequences(questions, tokenizer, model.config().model.positions);
  ChoiceReport report;
  for (const ChoiceQuestion& question : questions) {
    const std::size_t choices = question.choices.size();
    report.questions.push_back(
        {.log_likelihoods = std::vector<double>(choices), .greedy = std::vector<bool>(choices)});
  }
  const std::vector<SequenceScore> scores = score(model, sequences, options);
  for (std::int64_t n = 0; n < std::ssize(scores); ++n) {
    ChoiceScore& question = report.questions[sequences.question(n)];
    question.log_likelihoods[sequences.choice(n)] = -scores[n].nats;
    question.greedy[sequences.choice(n)] = scores[n].greedy == scores[n].targets;
  }
  std::int64_t right = 0, right_by_byte = 0;
  for (std::size_t q = 0; q < questions.size(); ++q) {
    choose(report.questions[q], questions[q]);
    right += report.questions[q].chosen == questions[q].answer;
    right_by_byte += report.questions[q].chosen_by_byte == questions[q].answer;
  }
  report.accuracy = accuracy_of(right, std::ssize(questions));
  report.accuracy_by_byte = accuracy_of(right_by_byte, std::ssize(questions));
  return report;
}

}  // namespace axonn
