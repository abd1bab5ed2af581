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

bool label_of(Members& line, const std::string& location) {
  const std::optional<bool> good = flag_of(*line.find("label"));
  if (!good)
    refuse(location,
           ": \"label\" is neither true nor false (1 or 0): true says that the answer is ", "good");
  return *good;
}

Answer labelled_answer(Members& line, std::size_t bytes, const std::string& location,
                       std::vector<std::string>& unread) {
  if (!line.peek("completion")->list())
    return TextAnswer{string_in_answers(line, "prompt", location),
                      string_in_answers(line, "completion", location)};
  const jinja::List prompt = messages_in_answers(line, "prompt", location),
                    answer = messages_in_answers(line, "completion", location);
  if (prompt.items.empty() || answer.items.empty())
    refuse(location, ": \"prompt\" or \"completion\" has no messages; leave the line out");
  return join_answer(line, prompt, answer, {"completion", bytes, location}, unread);
}

LabelledLine labelled_pair(std::string_view line, const std::string& location) {
  AnswerPair pair = parse_pair(line, location);
  auto [chosen, rejected] = answers_of(pair);
  return {.answers = {{std::move(chosen), true}, {std::move(rejected), false}},
          .line_keys = std::move(pair.line_keys),
          .message_keys = std::move(pair.message_keys)};
}

}  // namespace

LabelledLine parse_labelled(std::string_view line, const std::string& location) {
  const jinja::Value value = parse_line(line, location);
  Members members(*value.dict());
  const bool pair = members.peek("chosen") || members.peek("rejected");
  for (const char* key : {"completion", "label"}) {
    if (pair && members.peek(key))
      refuse(location, ": \"", key, "\" stands beside a pair of answers; leave one of them out");
    if (!pair && !members.peek(key))
      refuse(location, ": there is no \"", key, "\"; ", kLabelledLine);
  }
  if (pair) return labelled_pair(line, location);
  if (!members.peek("prompt")) refuse(location, ": there is no \"prompt\"; ", kLabelledLine);
  refuse_pair_keys(members, location);
  LabelledLine labelled;
  Answer answer = labelled_answer(members, line.size(), location, labelled.message_keys);
  labelled.answers.push_back({std::move(answer), label_of(members, location)});
  for (const std::string& name : members.unread()) {
    if (is_preference_key(name))
      refuse(location, ": \"", name, "\" belongs to preference data of another form; ",
             kLabelledLine);
    if (!is_harmless_key(name)) labelled.line_keys.push_back(name);
  }
  return labelled;
}

}  // namespace axonn
