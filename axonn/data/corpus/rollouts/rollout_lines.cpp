#include "axonn/data/corpus/rollouts/rollout_lines.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/files/line_keys.h"
#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kRolloutLine =
    "a line for a loss of [rl] has \"prompt\" or \"prompt_ids\", \"completion_ids\" or "
    "\"completion\", and \"rewards\" or \"reward\"";

/// The list under one of two keys; null if there is none.
const List* list_of(Members& line, const char* key, const char* also, const std::string& location) {
  const Value* found = line.find(key);
  if (!found && also) found = line.find(also);
  if (found && !found->list()) refuse(location, ": \"", key, "\" is not a list");
  return found ? found->list() : nullptr;
}

double number_or_none(const Value& value, const char* key, const std::string& location) {
  if (value.is_none()) return kNone;
  if (const double* real = value.as<double>()) return *real;
  if (const std::int64_t* integer = value.as<std::int64_t>()) return static_cast<double>(*integer);
  if (const bool* truth = value.as<bool>()) return *truth ? 1 : 0;
  refuse(location, ": \"", key, "\" has a value that is neither a number nor null");
}

std::vector<std::int32_t> ids_of(const List& list, const char* key, const RolloutTokens& tokens,
                                 const std::string& location) {
  std::vector<std::int32_t> ids;
  for (const Value& item : list.items) {
    const std::int64_t* id = item.as<std::int64_t>();
    if (!id || *id < 0 || *id > std::numeric_limits<std::int32_t>::max())
      refuse(location, ": \"", key, "\" has a value that is no token");
    if (tokens.vocab > 0 && *id >= tokens.vocab)
      refuse(location, ": \"", key, "\" has the token ", *id, ", but model.vocab is ",
             tokens.vocab);
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

std::vector<std::int32_t> prompt_of(Members& members, const AnswerFormat& format,
                                    const RolloutTokens& tokens, const Line& line) {
  if (const List* ids = list_of(members, "prompt_ids", nullptr, line.location))
    return ids_of(*ids, "prompt_ids", tokens, line.location);
  const Value* prompt = members.find("prompt");
  if (!prompt) refuse(line.location, ": there is no \"prompt\"; ", kRolloutLine);
  if (const jinja::Text* text = prompt->text())
    return format.tokenizer->encode_prompt(text->bytes());
  const List messages = messages_in_answers(members, "prompt", line.location);
  if (!format.chat)
    refuse(line.location, ": \"prompt\" is a list of messages, and that of the first line a text; ",
           "put each kind into separate files and runs");
  std::vector<std::string> unread;
  const MessageAnswer talk =
      join_answer(members, messages, {}, {"prompt", line.text.size(), line.location}, unread);
  return format.chat->prompt(talk.talk, line.location);
}

/// Calls f for each line of the files, in order.
template <typename F>
void for_each_line(const std::vector<std::string>& files, const F& f) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  for (TextFiles reader(files); !reader.at_end(); reader.advance()) {
    const std::int64_t before = reader.reader().line();
    for (const Line& line : lines_of(reader.reader().lines(kBytes), reader.file(), before)) f(line);
  }
}

bool has_answer(const Members& line) {
  return line.peek("completion_ids") || line.peek("completion");
}

class LineReader {
 public:
  LineReader(const AnswerFormat& format, const RolloutTokens& tokens, RolloutFile& to)
      : format_(format), tokens_(tokens), to_(to) {}

  void read(const Line& line) {
    const Value value = parse_line(line.text, line.location);
    Members members(*value.dict());
    Rollout rollout = without_rewards(members, line);
    read_rewards(members, line.location, rollout);
    to_.answers.push_back(std::move(rollout));
  }

  Rollout without_rewards(Members& members, const Line& line) const {
    Rollout rollout;
    if (const List* ids = list_of(members, "completion_ids", nullptr, line.location)) {
      rollout.answer = ids_of(*ids, "completion_ids", tokens_, line.location);
      rollout.prompt = prompt_of(members, format_, tokens_, line);
    } else {
      encode(members, line, rollout);
    }
    if (rollout.answer.empty() || rollout.prompt.empty())
      refuse(line.location, ": the ", rollout.prompt.empty() ? "prompt" : "answer",
             " has no token; leave the line out");
    read_lists(members, line.location, rollout);
    read_end(members, line.location, rollout);
    return rollout;
  }

 private:
  void encode(Members& members, const Line& line, Rollout& rollout) const {
    const Value* answer = members.peek("completion");
    if (!answer || !members.peek("prompt"))
      refuse(line.location, ": there is no \"", answer ? "prompt" : "completion_ids", "\"; ",
             kRolloutLine);
    std::vector<std::string> unread;
    const Answer both =
        answer->list()
            ? Answer(join_answer(members, messages_in_answers(members, "prompt", line.location),
                                 messages_in_answers(members, "completion", line.location),
                                 {"completion", line.text.size(), line.location}, unread))
            : Answer(TextAnswer{string_in_answers(members, "prompt", line.location),
                                string_in_answers(members, "completion", line.location)});
    const std::vector<std::int32_t> coded = encode_answer(format_, both, line.location);
    const std::size_t border = prompt_size(coded);
    for (std::size_t i = 0; i < coded.size(); ++i)
      (i < border ? rollout.prompt : rollout.answer).push_back(token_of(coded[i]));
  }

  static void read_lists(Members& members, const std::string& location, Rollout& rollout) {
    const auto check = [&](const List& list, const char* key) {
      if (list.items.size() != rollout.answer.size())
        refuse(location, ": \"", key, "\" has ", list.items.size(), " values, and the answer ",
               rollout.answer.size(), " tokens");
    };
    rollout.counts.assign(rollout.answer.size(), 1);
    if (const List* mask = list_of(members, "mask", "tool_mask", location)) {
      check(*mask, "mask");
      for (std::size_t i = 0; i < mask->items.size(); ++i) {
        const std::optional<bool> counts = flag_of(mask->items[i]);
        if (!counts) refuse(location, ": \"mask\" has a value that is neither 0 nor 1");
        rollout.counts[i] = *counts ? 1 : 0;
      }
    }
    if (const List* logs = list_of(members, "logprobs", "sampling_logps", location)) {
      check(*logs, "logprobs");
      for (const Value& item : logs->items)
        rollout.sampler.push_back(number_or_none(item, "logprobs", location));
      for (const double log : rollout.sampler)
        if (log > 0) refuse(location, ": \"logprobs\" has ", log, ", which is above log 1 = 0");
    }
  }

  void read_end(Members& members, const std::string& location, Rollout& rollout) const {
    rollout.truncated =
        std::ranges::find(tokens_.ends, rollout.answer.back()) == tokens_.ends.end();
    const Value* said = members.find("truncated");
    if (!said) return;
    const std::optional<bool> truncated = flag_of(*said);
    if (!truncated) refuse(location, ": \"truncated\" is neither true nor false");
    rollout.truncated = *truncated;
  }

  void read_rewards(Members& members, const std::string& location, Rollout& rollout) {
    std::vector<std::string> names;
    const Value* all = members.find("rewards");
    const Value* one = members.find("reward");
    if (all && all->dict()) {
      for (const auto& [name, value] : all->dict()->items()) {
        names.push_back(name.text()->bytes());
        rollout.rewards.push_back(number_or_none(value, "rewards", location));
      }
    } else if (one) {
      names = {"reward"};
      rollout.rewards = {number_or_none(*one, "reward", location)};
    }
    if (names.empty() && !(all && all->dict()))
      refuse(location,
             ": there is neither \"rewards\", an object of numbers by name, nor \"reward\"; ",
             kRolloutLine);
    for (const double reward : rollout.rewards)
      if (std::isinf(reward)) refuse(location, ": a reward is infinite; give a number or null");
    if (to_.answers.empty()) to_.reward_names = names;
    if (names != to_.reward_names)
      refuse(location,
             ": the names of its rewards, or their order, are not those of the first line");
  }

  const AnswerFormat& format_;
  const RolloutTokens& tokens_;
  RolloutFile& to_;
};

}  // namespace

RolloutFile read_rollouts(const std::vector<std::string>& files, const AnswerFormat& format,
                          const RolloutTokens& tokens, std::int64_t group) {
  RolloutFile all;
  LineReader lines(format, tokens, all);
  for_each_line(files, [&](const Line& line) {
    lines.read(line);
    const std::size_t here = all.answers.size() - 1,
                      first = here - here % static_cast<std::size_t>(group);
    if (all.answers[here].prompt != all.answers[first].prompt)
      refuse(line.location, ": its prompt is not that of answer ", first + 1, ", but ", group,
             " answers in a row are one group; set rl.group to the answers of a prompt, and keep ",
             "these together");
  });
  const std::int64_t over = std::ssize(all.answers) % group;
  if (all.answers.empty() || over > 0)
    refuse(files.front(), ": its ", all.answers.size(),
           " answers are no groups of rl.group = ", group, "; give whole groups");
  return all;
}

RolloutFile parse_rollouts(std::string_view text, const std::string& location) {
  const AnswerFormat none;
  const RolloutTokens any;
  RolloutFile all;
  LineReader lines(none, any, all);
  for (const Line& line : lines_of(text, location, 0)) lines.read(line);
  return all;
}

PromptFile read_prompts(const std::vector<std::string>& files, const AnswerFormat& format,
                        const RolloutTokens& tokens, bool with_answers) {
  PromptFile all{.prompts = {}, .ends = tokens.ends};
  RolloutFile unread;
  const LineReader answers(format, tokens, unread);
  for_each_line(files, [&](const Line& line) {
    const Value value = parse_line(line.text, line.location);
    Members members(*value.dict());
    if (has_answer(members) && !with_answers)
      refuse(line.location, ": this line has an answer, and the first one none; put prompts and ",
             "recorded answers into separate files and runs");
    Prompt& prompt = all.prompts.emplace_back();
    if (with_answers) prompt.given = answers.without_rewards(members, line);
    prompt.tokens = prompt_of(members, format, tokens, line);
    prompt.line = line.text;
    if (prompt.tokens.empty())
      refuse(line.location, ": the prompt has no token; leave the line out");
  });
  if (all.prompts.empty()) refuse(files.front(), " has no line with a prompt");
  return all;
}

RolloutForm form_of_rollouts(const std::string& file) {
  const std::vector<std::string> files{file};
  for (TextFiles reader(files); !reader.at_end(); reader.advance())
    for (const Line& line : lines_of(reader.reader().lines(1), file, 0)) {
      const Value value = parse_line(line.text, line.location);
      const Members members(*value.dict());
      const Value* prompt = members.peek("prompt");
      return {.recorded = has_answer(members),
              .messages = !members.peek("prompt_ids") && prompt && prompt->list()};
    }
  refuse(file, " has no line with a prompt");
}

std::string text_of_answer(const Tokenizer& tokenizer, std::vector<std::int32_t> tokens) {
  std::erase_if(tokens, [&](std::int32_t token) { return token >= tokenizer.vocab_size(); });
  return tokenizer.decode(tokens);
}

std::string rollout_line(const Rollout& rollout, const std::vector<std::string>& reward_names,
                         double advantage, const Tokenizer* tokenizer) {
  nlohmann::ordered_json line;
  if (tokenizer) {
    line["prompt"] = tokenizer->decode(rollout.prompt);
    line["completion"] = text_of_answer(*tokenizer, rollout.answer);
  }
  const auto number = [](double value) {
    return std::isnan(value) ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
  };
  line["rewards"] = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < reward_names.size(); ++i)
    line["rewards"][reward_names[i]] = number(rollout.rewards[i]);
  line["advantage"] = advantage;
  line["truncated"] = rollout.truncated;
  line["prompt_ids"] = rollout.prompt;
  line["completion_ids"] = rollout.answer;
  if (std::ranges::find(rollout.counts, 0) != rollout.counts.end()) line["mask"] = rollout.counts;
  for (const double value : rollout.sampler) line["logprobs"].push_back(number(value));
  using Json = nlohmann::ordered_json;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace axonn
