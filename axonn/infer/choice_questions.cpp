#include "axonn/infer/choice_questions.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/utf8.h"

namespace axonn {

namespace {

using nlohmann::json;

const json& member(const json& line, const char* key, const std::string& place) {
  const auto found = line.find(key);
  if (found == line.end()) refuse(place, ": there is no \"", key, '"');
  return *found;
}

std::string text_of(const json& value, const std::string& place) {
  if (!value.is_string()) refuse(place, ": wanted a string");
  return value.get<std::string>();
}

std::int64_t index_of(const json& answer, const std::vector<std::string>& choices,
                      const std::string& place) {
  const std::int64_t count = std::ssize(choices);
  if (answer.is_number_unsigned() && answer.get<std::uint64_t>() < choices.size())
    return answer.get<std::int64_t>();
  if (answer.is_string()) {
    const std::string text = answer.get<std::string>();
    if (const auto same = std::ranges::find(choices, text); same != choices.end())
      return same - choices.begin();
    if (text.size() == 1 && text[0] >= 'A' && text[0] - 'A' < count) return text[0] - 'A';
  }
  refuse(place, ": the answer is none of its ", count, " choices: wanted an index from 0 to ",
         count - 1, ", the text of a choice, or a letter from A");
}

ChoiceQuestion question_of(std::string_view text, const std::string& place) {
  const auto line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) refuse(place, ": this is not a JSON object");
  ChoiceQuestion question{
      .question = text_of(member(line, "question", place), place + ": question"), .choices = {}};
  const json& choices = member(line, "choices", place);
  if (!choices.is_array() || choices.size() < 2)
    refuse(place, ": choices: wanted a list of at least two");
  for (const json& choice : choices) {
    question.choices.push_back(text_of(choice, place + ": choices"));
    if (question.choices.back().empty()) refuse(place, ": choices: one is empty");
  }
  question.answer = index_of(member(line, "answer", place), question.choices, place);
  return question;
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
  const MappedFile file(path);
  return parse_choice_questions(file.text(), path);
}

Continuation encode_continuation(const Tokenizer& tokenizer, std::string_view context,
                                 std::string_view continuation) {
  const std::size_t end = context.find_last_not_of(kWhiteSpace) + 1;  // npos + 1 is 0
  const std::string whole = std::string(context) + std::string(continuation);
  const std::size_t before = tokenizer.encode(context.substr(0, end)).size();
  Continuation result{.tokens = tokenizer.encode(whole)};
  result.scored = std::ssize(result.tokens) - static_cast<std::int64_t>(before);
  if (result.scored <= 0)
    refuse("no token of ", tokenizer.name(), " is left for the continuation '", continuation, "'");
  auto first = tokenizer.begin_of_text();
  if (!first && before == 0) {
    first = tokenizer.end_of_text();
    if (!first)
      refuse("the context is empty, and ", tokenizer.name(),
             " has no token to put before the continuation");
  }
  if (first) result.tokens.insert(result.tokens.begin(), *first);
  return result;
}

}  // namespace axonn
