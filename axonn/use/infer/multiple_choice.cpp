#include "axonn/use/infer/multiple_choice.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using nlohmann::json;

const json& member(const json& line, const char* key, const std::string& location) {
  const auto found = line.find(key);
  if (found == line.end()) refuse(location, ": there is no \"", key, '"');
  return *found;
}

std::string text_of(const json& value, const std::string& location) {
  if (!value.is_string()) refuse(location, ": wanted a string");
  return value.get<std::string>();
}

std::int64_t index_of(const json& answer, const std::vector<std::string>& choices,
                      const std::string& location) {
  const std::int64_t count = std::ssize(choices);
  if (answer.is_number_unsigned() && answer.get<std::uint64_t>() < choices.size())
    return answer.get<std::int64_t>();
  if (answer.is_string()) {
    const std::string text = answer.get<std::string>();
    if (const auto same = std::ranges::find(choices, text); same != choices.end())
      return same - choices.begin();
    if (text.size() == 1 && text[0] >= 'A' && text[0] - 'A' < count) return text[0] - 'A';
  }
  refuse(location, ": the answer is none of its ", count, " choices: wanted an index from 0 to ",
         count - 1, ", the text of a choice, or a letter from A");
}

ChoiceQuestion question_of(std::string_view text, const std::string& location) {
  const auto line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) refuse(location, ": this is not a JSON object");
  ChoiceQuestion question{
      .question = text_of(member(line, "question", location), location + ": question"),
      .choices = {}};
  const json& choices = member(line, "choices", location);
  if (!choices.is_array() || choices.size() < 2)
    refuse(location, ": choices: wanted a list of at least two");
  for (const json& choice : choices) {
    question.choices.push_back(text_of(choice, location + ": choices"));
    if (question.choices.back().empty()) refuse(location, ": choices: one is empty");
  }
  question.answer = index_of(member(line, "answer", location), question.choices, location);
  return question;
}

/// A choice after its question, or after as much of its end as the model's positions allow.
struct ChoiceSequence {
  std::size_t question, choice;
  ScoredSequence text;
};

/// Returns all choices of all questions, the longest first.
std::vector<ChoiceSequence> sequences_of(std::span<const ChoiceQuestion> questions,
                                         const Tokenizer& tokenizer, std::int64_t positions) {
  constexpr std::int64_t kStep = 16;  // lengths are padded to multiples of it
  std::vector<ChoiceSequence> sequences;
  for (std::size_t q = 0; q < questions.size(); ++q)
    for (std::size_t c = 0; c < questions[q].choices.size(); ++c) {
      ScoredSequence text;
      try {
        text = encode_continuation(tokenizer, questions[q].question, " " + questions[q].choices[c]);
      } catch (const UsageError& error) {
        refuse("question ", q + 1, ": ", error.what());
      }
      if (text.scored > positions)
        refuse("question ", q + 1, ": choice ", c, " has ", text.scored, " tokens; the model has ",
               positions, " positions");
      const std::int64_t beyond = std::ssize(text.tokens) - (positions + 1);
      if (beyond > 0) text.tokens.erase(text.tokens.begin(), text.tokens.begin() + beyond);
      const std::int64_t inputs = std::ssize(text.tokens) - 1;
      text.positions = std::min((inputs + kStep - 1) / kStep * kStep, positions);
      sequences.push_back({q, c, std::move(text)});
    }
  std::ranges::stable_sort(sequences, std::greater(), [](const ChoiceSequence& sequence) {
    return sequence.text.tokens.size();
  });
  return sequences;
}

void choose(ChoiceScore& score, const ChoiceQuestion& question) {
  const auto likeliest = [&](const auto& length) {
    std::vector<double> values = score.log_likelihoods;
    for (std::size_t c = 0; c < values.size(); ++c)
      values[c] /= static_cast<double>(length(question.choices[c]));
    return std::ranges::max_element(values) - values.begin();
  };
  score.chosen = likeliest([](const std::string&) { return 1; });
  score.chosen_by_character = likeliest([](const std::string& text) { return code_points(text); });
  score.chosen_by_byte = likeliest([](const std::string& text) { return text.size(); });
}

/// Of one way to choose.
Accuracy accuracy_of(std::span<const ChoiceScore> scores, std::span<const ChoiceQuestion> questions,
                     std::int64_t ChoiceScore::*chosen) {
  double right = 0;
  for (std::size_t q = 0; q < scores.size(); ++q)
    right += scores[q].*chosen == questions[q].answer ? 1 : 0;
  const auto count = static_cast<double>(scores.size());
  const double share = right / count;
  return {share, std::sqrt(share * (1 - share) / std::max(count - 1, 1.0))};
}

}  // namespace

std::vector<ChoiceQuestion> parse_choice_questions(std::string_view text, const std::string& path) {
  std::vector<ChoiceQuestion> questions;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(kWhiteSpace) == line.npos) continue;
    questions.push_back(question_of(line, concat(path, ':', number)));
  }
  if (questions.empty()) refuse(path, " holds no questions");
  return questions;
}

std::vector<ChoiceQuestion> read_choice_questions(const std::string& path) {
  const TextFile file(path);
  return parse_choice_questions(file.text(), path);
}

ScoredSequence encode_continuation(const Tokenizer& tokenizer, std::string_view context,
                                   std::string_view continuation) {
  const std::size_t end = context.find_last_not_of(kWhiteSpace) + 1;  // npos + 1 is 0
  const std::string whole = std::string(context) + std::string(continuation);
  const std::size_t before = tokenizer.encode(context.substr(0, end)).size();
  ScoredSequence result{.tokens = tokenizer.encode(whole)};
  result.scored = std::ssize(result.tokens) - static_cast<std::int64_t>(before);
  if (result.scored <= 0)
    refuse("no token of ", tokenizer.name(), " is left for the continuation '", continuation, "'");
  std::vector<std::int32_t> first = tokenizer.begin_of_text();
  if (first.empty() && before == 0) {
    const auto ends = tokenizer.end_of_text();
    if (!ends)
      refuse("the context is empty, and ", tokenizer.name(),
             " has no token to put before the continuation");
    first = {*ends};
  }
  if (before == 0)
    result.tokens.insert(result.tokens.begin(), first.begin(), first.end());
  else
    tokenizer.add_begin(result.tokens);
  return result;
}

ChoiceReport evaluate_choices(LoadedModel& model, std::span<const ChoiceQuestion> questions,
                              const Tokenizer& tokenizer, const ScoreOptions& options) {
  AXONN_CHECK(!questions.empty(), "evaluate_choices: there are no questions");
  const std::vector<ChoiceSequence> sequences =
      sequences_of(questions, tokenizer, model.config().model.positions);
  ChoiceReport report;
  for (const ChoiceQuestion& question : questions) {
    const std::size_t choices = question.choices.size();
    report.questions.push_back(
        {.log_likelihoods = std::vector<double>(choices), .greedy = std::vector<bool>(choices)});
  }
  const std::vector<SequenceScore> scores = score(
      model,
      {.count = std::ssize(sequences), .at = [&](std::int64_t n) { return sequences[n].text; }},
      options);
  for (std::size_t n = 0; n < scores.size(); ++n) {
    const auto& [q, choice, text] = sequences[n];
    report.questions[q].log_likelihoods[choice] = -scores[n].nats;
    report.questions[q].greedy[choice] = scores[n].greedy == scores[n].targets;
  }
  for (std::size_t q = 0; q < questions.size(); ++q) choose(report.questions[q], questions[q]);
  const auto of = [&](auto chosen) { return accuracy_of(report.questions, questions, chosen); };
  report.accuracy = of(&ChoiceScore::chosen);
  report.accuracy_by_character = of(&ChoiceScore::chosen_by_character);
  report.accuracy_by_byte = of(&ChoiceScore::chosen_by_byte);
  return report;
}

}  // namespace axonn
