#include "axonn/data/corpus/preferences/labelled_lines.h"

#include <optional>

#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/files/line_keys.h"
#include "axonn/data/corpus/preferences/pair_lines.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr const char* kLabelledLine =
    "a line for the loss kto has \"prompt\", \"completion\" and \"label\", or is a pair with "
    "\"chosen\" and \"rejected\"";

bool label_of(Members& line, const std::string& place) {
  const std::optional<bool> good = flag_of(*line.find("label"));
  if (!good)
    refuse(place, ": \"label\" is neither true nor false (1 or 0): true says that the answer is ",
           "good");
  return *good;
}

Answer labelled_answer(Members& line, std::size_t bytes, const std::string& place,
                       std::vector<std::string>& unread) {
  if (!line.peek("completion")->list())
    return TextAnswer{string_in_answers(line, "prompt", place),
                      string_in_answers(line, "completion", place)};
  const jinja::List prompt = messages_in_answers(line, "prompt", place),
                    answer = messages_in_answers(line, "completion", place);
  if (prompt.items.empty() || answer.items.empty())
    refuse(place, ": \"prompt\" or \"completion\" has no messages; leave the line out");
  return join_answer(line, prompt, answer, {"completion", bytes, place}, unread);
}

LabelledLine labelled_pair(std::string_view line, const std::string& place) {
  AnswerPair pair = parse_pair(line, place);
  auto [chosen, rejected] = answers_of(pair);
  return {.answers = {{std::move(chosen), true}, {std::move(rejected), false}},
          .line_keys = std::move(pair.line_keys),
          .message_keys = std::move(pair.message_keys)};
}

}  // namespace

LabelledLine parse_labelled(std::string_view line, const std::string& place) {
  const jinja::Value value = parse_line(line, place);
  Members members(*value.dict());
  const bool pair = members.peek("chosen") || members.peek("rejected");
  for (const char* key : {"completion", "label"}) {
    if (pair && members.peek(key))
      refuse(place, ": \"", key, "\" stands beside a pair of answers; leave one of them out");
    if (!pair && !members.peek(key)) refuse(place, ": there is no \"", key, "\"; ", kLabelledLine);
  }
  if (pair) return labelled_pair(line, place);
  if (!members.peek("prompt")) refuse(place, ": there is no \"prompt\"; ", kLabelledLine);
  refuse_pair_keys(members, place);
  LabelledLine labelled;
  Answer answer = labelled_answer(members, line.size(), place, labelled.message_keys);
  labelled.answers.push_back({std::move(answer), label_of(members, place)});
  for (const std::string& name : members.unread()) {
    if (is_preference_key(name))
      refuse(place, ": \"", name, "\" belongs to preference data of another form; ", kLabelledLine);
    if (!is_harmless_key(name)) labelled.line_keys.push_back(name);
  }
  return labelled;
}

}  // namespace axonn
